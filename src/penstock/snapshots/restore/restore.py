"""Starting from a snapshot: what `restore_from` names, whether the job starts from it or has already, and the start itself.

    find the snapshot → decide → claim states and sources → (the driver takes its term) → copy the files → take-over epoch

Laws:
- A job starts from a snapshot once. Started again with the same one, it resumes from its own newest epoch, unless told `again`.
- A snapshot of another job does not replace what a job has done by itself, unless told `again`.
- What can be refused is refused before anything is copied; nothing is visible before the take-over epoch.
- Files of a snapshot elsewhere are copied: the job depends on nothing outside of its storage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.compile.compatibility import Origin
from penstock.compile.compiler import Examined, examine, refuse
from penstock.config import JobConfig
from penstock.epochs.history import StartListener
from penstock.epochs.starting.draining import drained
from penstock.epochs.starting.reopening import reopened
from penstock.epochs.starting.takeover import Start
from penstock.errors import ConfigError, NotFoundError, PenstockError, StorageError
from penstock.ids import Epoch, JobId, Term
from penstock.jobs import paths
from penstock.jobs.lineage import note_restore
from penstock.jobs.manifest import Manifest, Restored, StateLayout
from penstock.jobs.terms import find_head, read_job
from penstock.plan.nodes import Graph
from penstock.snapshots.restore.imports import bring_files
from penstock.snapshots.restore.reference import LATEST, locate, parse_reference
from penstock.snapshots.restore.resolve import StartingPoint, import_name, read_snapshot
from penstock.snapshots.restore.summary import summary_of
from penstock.state.key_groups import check_parallelism
from penstock.storage import Storage, open_named

log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Resume:
    """The job resumes from its own newest epoch: that was asked for, or there is another reason."""

    because: str = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """The job starts from the snapshot. `leaves`: its own newest epoch."""

    leaves: Epoch | None = None


def decide(snapshot: StartingPoint, job: JobId | None, head: Manifest | None, *, own: bool, again: bool) -> Resume | Begin:
    """Whether to start from a snapshot, given the job's uuid and newest epoch. `own`: it is an epoch of this storage. Pure."""
    if head is None:
        return Begin()
    if own and snapshot.manifest.epoch == head.epoch:
        return Resume()
    last = head.restored
    if not again and last is not None and _same(snapshot, last):
        return Resume(f"it already started from there, in epoch {last.at}; --again starts from there once more")
    if not again and snapshot.manifest.job != job:
        came = f", and was last started from {last.source}" if last is not None else ""
        raise ConfigError(
            f"{snapshot.source} is of another job, and this one has reached epoch {head.epoch} by itself",
            detail=f"the storage is that of job {job}{came}",
            hint="give the new job a storage of its own; or start with --again, to abandon what this one has",
        )
    return Begin(head.epoch)


def _same(snapshot: StartingPoint, last: Restored) -> bool:
    if snapshot.moving:
        return last.identity.rpartition("@")[0] == snapshot.manifest.job
    return last.identity == snapshot.identity


@contextmanager
def starting_from(graph: Graph, config: JobConfig, storage: Storage, listeners: Sequence[object] = ()) -> Iterator[Start | None]:
    """What `config.restore_from` comes to; None: the job resumes from its own newest epoch."""
    if config.restore_from is None:
        yield None
        return
    hearers = [one for one in listeners if isinstance(one, StartListener)]
    with ExitStack() as held:
        yield _resolve(graph, config, config.restore_from, storage, hearers, held)


def _resolve(
    graph: Graph, config: JobConfig, text: str, storage: Storage, listeners: list[StartListener], held: ExitStack
) -> Start | None:
    info = read_job(storage) if storage.exists(paths.JOB) else None
    job = info.job if info is not None else None
    head = find_head(storage, fall_back=config.fall_back).manifest if info is not None else None
    if text == LATEST:
        if head is None:
            raise ConfigError(
                f"there is no epoch to resume from in {storage.uri}",
                hint="leave --from out to start a new job, or give a savepoint or JOB@EPOCH",
            )
        _tell(listeners, [f"resumes from its newest epoch, {head.epoch}"])
        return None
    located = locate(text, own=storage, name=config.name)
    if not located.is_savepoint and parse_reference(text).kind == "savepoint":
        raise NotFoundError(
            f"{located.storage.uri} holds no savepoint, but a job",
            hint=f"to start from the newest epoch of that job: --from {text}@latest",
        )
    snapshot = read_snapshot(located, held, f"start of job {config.name} in {storage.uri}")
    own = snapshot.storage.uri == storage.uri
    decision = decide(snapshot, job, head, own=own, again=config.restore_again)
    if isinstance(decision, Resume):
        held.close()
        assert head is not None
        instead = f", not from {snapshot.source}: {decision.because}" if decision.because else ""
        _tell(listeners, [f"resumes from its newest epoch, {head.epoch}{instead}"])
        return None
    if info is not None and config.max_parallelism is None:
        config = replace(config, max_parallelism=info.max_parallelism)
    examined = examine_start(graph, config, snapshot, foreign=not own)
    refuse(examined.problems)
    manifest = reopened(snapshot.manifest, ask_again=True)
    _tell(listeners, summary_of(snapshot.source, manifest, examined.sources, decision.leaves))
    restored = Restored(snapshot.source, snapshot.identity, manifest.epoch, Epoch(0))
    bring: dict[str, Any] = {} if own else {"bring": _bringing(snapshot, storage, listeners)}
    return Start(before=manifest, restored=restored, release=_releasing(held, storage, snapshot), **bring)


def _before_drain(snapshot: StartingPoint) -> str:
    """Where the epoch before a drain is kept; empty if it is not."""
    before = snapshot.manifest.drained
    try:
        home = open_named(snapshot.home, snapshot.storage)
        return home.uri if before is not None and home.exists(paths.manifest(before)) else ""
    except StorageError:
        return ""


def examine_start(graph: Graph, config: JobConfig, snapshot: StartingPoint, *, foreign: bool) -> Examined:
    """A program on a snapshot, with all that would be refused. Nothing is changed."""
    before, drain = snapshot.manifest, snapshot.manifest.drained
    most = before.state.max_parallelism
    problems: list[PenstockError] = []
    if drain is not None:
        problems.append(drained(snapshot.source, before.epoch, drain, _before_drain(snapshot)))
    if config.max_parallelism not in (None, most):
        problems.append(
            ConfigError(
                f"{snapshot.source} has {most} key groups; the job's max_parallelism is {config.max_parallelism}",
                hint=f"start a new job from it, with max_parallelism={most}, a new storage and new folders for its sinks; "
                f"or write it with other key groups: penstock savepoint-rewrite {snapshot.source} "
                f"--max-parallelism {config.max_parallelism} --to FOLDER",
            )
        )
    else:
        try:
            check_parallelism(config.parallelism, most)
        except ConfigError as error:
            problems.append(error)
    origin = Origin(source=snapshot.source, foreign=foreign, trusted=config.trust)
    examined = examine(graph, before.state, before.sources, allow_dropped=config.allow_dropped_state, origin=origin)
    return replace(examined, problems=(*problems, *examined.problems))


def _bringing(
    snapshot: StartingPoint, storage: Storage, listeners: list[StartListener]
) -> Callable[[StateLayout, Term], StateLayout]:
    def copied(done: int, total: int) -> None:
        for listener in listeners:
            listener.copied(done, total)

    def bring(layout: StateLayout, term: Term) -> StateLayout:
        return bring_files(snapshot.storage, storage, layout, term, import_name(snapshot), copied)

    return bring


def _releasing(held: ExitStack, storage: Storage, snapshot: StartingPoint) -> Callable[[], None]:
    """The take-over epoch is committed: let go of the snapshot, and note where the job comes from."""

    def release() -> None:
        held.close()
        head = find_head(storage).manifest
        if head is not None and head.restored is not None:
            note_restore(storage, head.restored, of=snapshot.manifest.job, home=snapshot.home, by=snapshot.storage)

    return release


def _tell(listeners: list[StartListener], lines: list[str]) -> None:
    for line in lines:
        log.info("%s", line)
    for listener in listeners:
        listener.starting(lines)
