"""A snapshot that a job may start from, found: its manifest, where its files are, and who it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.errors import NotFoundError
from penstock.ids import Epoch, Term
from penstock.jobs.manifest import Manifest, StateLayout, load_manifest, version_of
from penstock.jobs.pins import pin
from penstock.jobs.terms import find_head, read_job
from penstock.snapshots.restore.reference import Located
from penstock.snapshots.savepoint.format import SavepointInfo, read_info
from penstock.snapshots.savepoint.state_file import StateFile
from penstock.state.files.durable import FileRef, verify_file
from penstock.state.key_groups import SHARED_GROUP
from penstock.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """Something to start from: `manifest` says what it holds, `storage` has its files.

    `home`: the storage of the job that it is of. `moving`: it was asked for as the newest epoch of a job, which is another one
    each time.
    """

    storage: Storage
    manifest: Manifest
    source: str
    identity: str
    home: str = ""
    moving: bool = False


def read_snapshot(located: Located, held: ExitStack | None = None, why: str = "") -> StartingPoint:
    """The snapshot at a place, to start from it: an epoch of a job is pinned for as long as `held` is open.

    Without `held` it is only looked at: nothing is written, nor are files read."""
    place = located.storage
    if located.is_savepoint:
        info = read_info(place)
        for file, number in ((file, state.number) for state in info.states for file in state.files):
            if held is not None and not file.rows:  # it is not copied, so not read later: that it says nothing must be true
                verify_file(place, _reference(file, number))
        return StartingPoint(
            storage=place, manifest=as_manifest(info), source=place.uri, identity=info.identity, home=info.job.storage
        )
    if held is not None:
        manifest: Manifest | None = held.enter_context(pin(place, located.epoch, why))
    else:
        manifest = find_head(place).manifest if located.epoch is None else load_manifest(place, located.epoch)
    if manifest is None:
        raise NotFoundError(
            f"the job in {place.uri} has no epoch yet", hint="there is nothing to compare with: any program can start"
        )
    return StartingPoint(
        storage=place,
        manifest=manifest,
        source=f"{place.uri}@{manifest.epoch}",
        identity=f"{read_job(place).job}@{manifest.epoch}",
        home=place.uri,
        moving=located.epoch is None,
    )


def _reference(file: StateFile, state: int) -> FileRef:
    return FileRef(file.path, "base", file.bytes, file.checksum, file.rows, 0, SHARED_GROUP, state=state)


def as_manifest(info: SavepointInfo) -> Manifest:
    """A savepoint as the manifest of an epoch with one partition, each of whose states has a stage of its own."""
    groups = info.max_parallelism
    chains = [[[_reference(file, state.number) for file in state.files if file.rows]] for state in info.states]
    layout = StateLayout(
        parallelism=1,
        max_parallelism=groups,
        key_hash=info.key_hash,
        fingerprint=f"savepoint {info.identity}",
        ids={str(state.number): state.info for state in info.states},
        stages=[[state.number] for state in info.states],
        chains=chains,
        next_due=[[{} if state.next_due is None else {state.number: state.next_due}] for state in info.states],
    )
    return Manifest(
        version=version_of(layout, info.sources),
        job=info.job.uuid,
        epoch=info.epoch,
        term=Term(0),
        plan=0,
        parent=None,
        processing_time=info.processing_time,
        created_ms=info.created_ms,
        sources=info.sources,
        watermarks=info.watermarks,
        state=layout,
        finished=info.finished,
        drained=info.drained,
        program=info.program,
        restored=info.parent,
        left_out=info.left_out,
    )


def import_name(snapshot: StartingPoint) -> str:
    """For the folder of its copies."""
    job, _, epoch = snapshot.identity.partition("@")
    return f"{job[:12]}-{Epoch(int(epoch))}" if epoch else job[:12]
