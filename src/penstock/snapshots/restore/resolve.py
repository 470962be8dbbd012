"""A snapshot that a job may start from, found: its manifest, where its files are, and who it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.config import JobConfig
from penstock.errors import NotFoundError
from penstock.ids import Epoch, Term
from penstock.jobs import paths
from penstock.jobs.manifest import Manifest, StateLayout, version_of
from penstock.jobs.pins import pin
from penstock.jobs.terms import read_job
from penstock.snapshots.restore.reference import Reference
from penstock.snapshots.savepoint.format import SavepointInfo, read_info
from penstock.snapshots.savepoint.state_file import StateFile
from penstock.snapshots.savepoint.target_folder import SAVEPOINT
from penstock.state.files.durable import FileRef, verify_file
from penstock.storage import Storage, open_storage


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


def find_starting_point(reference: Reference, text: str, config: JobConfig, storage: Storage, held: ExitStack) -> StartingPoint:
    """The snapshot behind a reference. An epoch of a job is pinned for as long as `held` is open."""
    if reference.kind == "savepoint":
        return _savepoint(open_storage(reference.place))
    if not reference.place or reference.place == config.name:
        place = storage
    else:
        place = open_storage(reference.place)
    if not place.exists(paths.JOB):
        if open_storage(text).exists(SAVEPOINT):  # a folder may have such a name
            return _savepoint(open_storage(text))
        raise NotFoundError(
            f"{place.uri} holds no job",
            hint="in JOB@EPOCH, JOB is the job's storage; `penstock jobs ROOT` lists those below a folder",
        )
    job = read_job(place)
    manifest = held.enter_context(pin(place, reference.epoch, f"start of job {config.name} in {storage.uri}"))
    return StartingPoint(
        storage=place,
        manifest=manifest,
        source=f"{place.uri}@{manifest.epoch}",
        identity=f"{job.job}@{manifest.epoch}",
        home=place.uri,
        moving=reference.epoch is None,
    )


def _savepoint(place: Storage) -> StartingPoint:
    info = read_info(place)
    for state in info.states:
        for file in state.files:
            if not file.rows:  # nothing of it is copied, so it is not read later: that it says nothing must be true
                verify_file(place, _reference(file, state.number, info.max_parallelism))
    return StartingPoint(
        storage=place, manifest=as_manifest(info), source=place.uri, identity=info.identity, home=info.job.storage
    )


def _reference(file: StateFile, state: int, groups: int) -> FileRef:
    return FileRef(file.path, "base", file.bytes, file.checksum, file.rows, 0, groups - 1, state=state)


def as_manifest(info: SavepointInfo) -> Manifest:
    """A savepoint as the manifest of an epoch with one partition, each of whose states has a stage of its own."""
    groups = info.max_parallelism
    chains = [[[_reference(file, state.number, groups) for file in state.files if file.rows]] for state in info.states]
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
