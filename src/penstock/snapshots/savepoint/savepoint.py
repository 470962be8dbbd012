"""Making a savepoint of a job that runs or does not: from the committed files of a done epoch, in whatever process asks.

    pin the epoch ── claim the folder ── write the state, part by part ── savepoint.json ── unpin

The driver is not involved: its epochs go on. The state is as of one epoch, as are the sources' positions, and all output up to
it is published.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.ids import Epoch
from penstock.jobs import paths
from penstock.jobs.lineage import note_savepoint
from penstock.jobs.liveness import is_driven
from penstock.jobs.manifest import Manifest, StateLayout
from penstock.jobs.pins import pin
from penstock.jobs.terms import JobInfo, job_in
from penstock.snapshots.savepoint.format import SavedJob, SavedState, SavepointInfo, SavepointWriter, version_of
from penstock.snapshots.savepoint.saving import cut, joined, of_one_form, write_part
from penstock.snapshots.savepoint.saving_process import write_parts
from penstock.storage import Storage, open_storage

LARGE_BYTES = 8 * 1024 * 1024
"""State files of this size together are worth a process."""


@dataclass(frozen=True, slots=True)
class SavepointProgress:
    """How far a savepoint is."""

    groups: int
    of_groups: int
    rows: int
    seconds: float


OnProgress = Callable[[SavepointProgress], None]


def make_savepoint(
    storage: Storage,
    epoch: int | None = None,
    to: str | None = None,
    *,
    told: OnProgress | None = None,
    driven: bool | None = None,
) -> SavepointInfo:
    """Make a savepoint of an epoch (None: the newest whose output is all published); `info.uri` says where it is.

    Without `to` it goes below `savepoints/` in the job's storage. `driven`: does the job run? None: find out.
    """
    job = job_in(storage)
    identity = uuid.uuid4().hex
    place = open_storage(to) if to is not None else storage.child(paths.savepoint(datetime.now(UTC), identity))
    if driven is None:
        driven = is_driven(storage) is not False
    with pin(storage, None if epoch is None else Epoch(epoch), "savepoint") as manifest:
        layout = manifest.state
        with SavepointWriter(place, key_groups=layout.key_groups, identity=identity) as savepoint:
            written = _write(storage, place, identity, layout, told, driven)
            for state in written:
                savepoint.add(state)
            for number in {number for ids in layout.stages for number in ids} - {state.number for state in written}:
                savepoint.state(layout.ids[str(number)], number=number)  # it has no entries
            made = savepoint.finish(**as_savepoint(storage, job, manifest).about())
    note_savepoint(storage, job, identity=made.identity, place=made.uri, epoch=made.epoch, program=made.program)
    return made


def as_savepoint(storage: Storage, job: JobInfo, manifest: Manifest) -> SavepointInfo:
    """What a savepoint of this epoch would say of itself, without files."""
    layout = manifest.state
    due: dict[int, int] = {}
    for stage in layout.next_due:
        for times in stage:
            for number, at in times.items():
                due[number] = min(at, due.get(number, at))
    return SavepointInfo(
        version=version_of(layout.key_hash, manifest.sources, layout.ids.values()),
        identity=f"{manifest.job}@{manifest.epoch}",
        created_ms=manifest.created_ms,
        job=SavedJob(job.job, job.name, storage.uri),
        epoch=manifest.epoch,
        max_parallelism=layout.max_parallelism,
        key_hash=layout.key_hash,
        program=manifest.program,
        config={"parallelism": layout.parallelism, "max_parallelism": layout.max_parallelism},
        parent=manifest.restored,
        processing_time=manifest.processing_time,
        finished=manifest.finished,
        drained=manifest.drained,
        sources=manifest.sources,
        watermarks=manifest.watermarks,
        left_out=manifest.left_out,
        states=[SavedState(int(number), info, due.get(int(number)), []) for number, info in layout.ids.items()],
        uri=f"{storage.uri}@{manifest.epoch}",
    )


@dataclass(frozen=True, slots=True)
class Staffing:
    """Who writes: this process (0), or that many others, with low priority or not."""

    processes: int
    nice: bool


def staff(size: int, partitions: int, cores: int, *, driven: bool) -> Staffing:
    """Small state is not worth a process. Beside a running job there is one, with low priority. Pure."""
    if size < LARGE_BYTES:
        return Staffing(0, False)
    return Staffing(1, True) if driven else Staffing(max(1, min(cores, partitions)), False)


def _write(
    storage: Storage, place: Storage, identity: str, layout: StateLayout, told: OnProgress | None, driven: bool
) -> list[SavedState]:
    size = sum(ref.size for stage in layout.chains for chain in stage for ref in chain)
    chosen = staff(size, layout.parallelism, os.cpu_count() or 1, driven=driven)
    if chosen.processes == 0:
        (part,) = cut(identity, layout, 1)
        return write_part(storage, place, part, _Progress(layout, told))
    states = joined(
        write_parts(storage, place, cut(identity, layout, chosen.processes), _Progress(layout, told), nice=chosen.nice)
    )
    if all(of_one_form(place, state) for state in states):
        return states
    place.delete([file.path for state in states for file in state.files])
    return joined(write_parts(storage, place, cut(identity, layout, 1), _Progress(layout, told), nice=chosen.nice))


class _Progress:
    """Adds up the progress of the parts."""

    def __init__(self, layout: StateLayout, told: OnProgress | None) -> None:
        self._of = layout.max_parallelism * sum(bool(ids) for ids in layout.stages)
        self._told = told
        self._groups = self._rows = 0
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, groups: int, rows: int) -> None:
        with self._lock:
            self._groups += groups
            self._rows += rows
            if self._told is not None:
                self._told(SavepointProgress(self._groups, self._of, self._rows, time.monotonic() - self._began))
