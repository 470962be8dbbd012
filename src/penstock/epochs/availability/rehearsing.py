"""A rehearsal of the start, for a standby: all that a take-over does for the first time, but takes and writes nothing.

It reads what is committed now, and compiles the program on it; workers can load that job, with all that it imports. What a
take-over would refuse (a state that is incompatible, say) is known while the driver still lives.

Law: nothing of it is kept. The take-over does all of it again, on what is committed then.
"""

from __future__ import annotations

from penstock.compile.compiler import compile_program
from penstock.epochs.setup import Setup
from penstock.epochs.starting.takeover import target_of
from penstock.errors import NotFoundError
from penstock.ids import Term
from penstock.jobs.listing import epochs_in
from penstock.jobs.manifest import load_manifest
from penstock.jobs.terms import read_job
from penstock.runtime.job import CompiledJob
from penstock.state.key_groups import NEW_JOBS, KeyGroups

NO_TERM = Term(0)


def rehearse(setup: Setup) -> CompiledJob | None:
    """The job as its tasks would get it now; None while there is none."""
    config, storage = setup.config, setup.storage
    try:
        info = read_job(storage)
    except NotFoundError:
        return None
    manifests = epochs_in(storage).manifests
    before = load_manifest(storage, max(manifests)) if manifests else None
    committed = before.state if before is not None else None
    key_groups = KeyGroups(info.max_parallelism, committed.key_hash if committed is not None else NEW_JOBS)
    target = target_of(config, storage, info, key_groups, NO_TERM, setup.python_paths)
    sources = before.sources if before is not None else {}
    return compile_program(
        setup.graph, committed, sources, target, allow_dropped=config.allow_dropped_state, newest=committed
    ).job
