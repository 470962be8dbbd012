"""Lineage: notes of savepoints, restores and forks in the storages of the jobs concerned, and the tree they make.

Notes are for people. The engine never reads them, and a note that cannot be written stops nothing: what a job was started from is
in its manifests, and whose a savepoint is, in the savepoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from penstock.errors import AlreadyExistsError, PenstockError
from penstock.ids import Epoch, JobId, Milliseconds
from penstock.jobs import paths
from penstock.jobs.listing import notes_in
from penstock.jobs.manifest import Restored
from penstock.jobs.pins import newest_done
from penstock.jobs.terms import JobInfo, read_job
from penstock.storage import Storage, open_named
from penstock.storage.documents import NOTE_BYTES, read_small
from penstock.storage.sealed import seal, unseal

log = logging.getLogger("penstock")

VERSION = 1

Kind = Literal["savepoint", "restore", "fork"]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job.

    savepoint: of `epoch`, at `place`. restore: the job was started from `place`, which is `epoch` of `job` in `home`, in its
    epoch `at`. fork: the job `job` in `home` was started so from this one.
    """

    version: int = VERSION
    kind: Kind
    identity: str
    made_ms: Milliseconds
    place: str
    epoch: Epoch
    job: JobId
    name: str = ""
    home: str = ""
    at: Epoch | None = None
    program: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A job with what was made of it. `reachable`: its storage could be read."""

    name: str
    job: JobId
    storage: str
    epoch: Epoch | None = None
    reachable: bool = True
    restores: list[Note] = field(default_factory=list)
    savepoints: list[Note] = field(default_factory=list)
    forks: list[tuple[Note, Lineage]] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "job": self.job,
            "storage": self.storage,
            "epoch": self.epoch,
            "reachable": self.reachable,
            "restores": [msgspec.to_builtins(note) for note in self.restores],
            "savepoints": [msgspec.to_builtins(note) for note in self.savepoints],
            "forks": [{"note": msgspec.to_builtins(note), "job": child.describe()} for note, child in self.forks],
        }


# --- writing ------------------------------------------------------------------------------------------------------------------


def note_savepoint(storage: Storage, job: JobInfo, *, identity: str, place: str, epoch: Epoch, program: str) -> None:
    """A savepoint was made of the job in this storage."""
    _note(
        storage,
        Note(
            kind="savepoint",
            identity=identity,
            made_ms=_now(),
            place=place,
            epoch=epoch,
            job=job.job,
            name=job.name,
            home=storage.uri,
            program=program,
        ),
    )


def note_restore(storage: Storage, restored: Restored, *, of: JobId, home: str, by: Storage) -> None:
    """The job in this storage was started from a snapshot of the job `of` in `home`; that one gets a note, if it can be reached.

    `by`: the place that names `home`."""
    own = read_job(storage)
    identity = f"{restored.at:010d}-{restored.identity.replace('@', '-')}"
    note = Note(
        kind="restore",
        identity=identity,
        made_ms=_now(),
        place=restored.source,
        epoch=restored.epoch,
        job=of,
        home=home,
        at=restored.at,
    )
    _note(storage, note)
    if of != own.job and home:
        _best_effort(lambda: note_fork(open_named(home, by), own, storage.uri, note))


def note_fork(parent: Storage, child: JobInfo, home: str, restore: Note) -> None:
    """Tell the parent job of a child. Only where the parent still is."""
    if not parent.exists(paths.JOB) or read_job(parent).job != restore.job:
        return
    fork = msgspec.structs.replace(
        restore, kind="fork", identity=f"{child.job}-{restore.at or 0:010d}", job=child.job, name=child.name, home=home
    )
    _note(parent, fork)


def _note(storage: Storage, note: Note) -> None:
    def write() -> None:
        try:
            storage.create(paths.lineage(note.kind, note.identity), seal(note))
        except AlreadyExistsError:
            pass

    _best_effort(write)


def _best_effort(action: Callable[[], None]) -> None:
    try:
        action()
    except (PenstockError, OSError) as error:
        log.info("lineage was not noted: %s", error)


# --- reading ------------------------------------------------------------------------------------------------------------------


def read_notes(storage: Storage) -> list[Note]:
    """The notes of one job, oldest first. Those that cannot be read are left out, with a warning."""
    found = []
    for listed in notes_in(storage):
        try:
            note = unseal(read_small(storage, listed.path, NOTE_BYTES), Note, f"{storage.uri}/{listed.path}")
        except PenstockError as error:
            log.warning("%s", error.what)
            continue
        if note.version == VERSION:
            found.append(note)
    return sorted(found, key=lambda note: (note.made_ms, note.identity))


def read_lineage(storage: Storage) -> Lineage:
    """The tree that a job is in: from the oldest ancestor that can be reached, down through all forks."""
    return _descend(_oldest(storage), set())


def _oldest(storage: Storage) -> Storage:
    climbed = {read_job(storage).job}
    while True:
        parents = [note for note in read_notes(storage) if note.kind == "restore" and note.job not in climbed]
        if not parents:
            return storage
        parent = parents[0]
        try:
            above = open_named(parent.home, storage)
            if read_job(above).job != parent.job:
                return storage
        except (PenstockError, OSError):
            return storage
        climbed.add(parent.job)
        storage = above


def _descend(storage: Storage, above: set[JobId]) -> Lineage:
    job = read_job(storage)
    notes = read_notes(storage)
    above = above | {job.job}
    children = [(note, _child(note, above, storage)) for note in notes if note.kind == "fork" and note.job not in above]
    return Lineage(
        name=job.name,
        job=job.job,
        storage=storage.uri,
        epoch=newest_done(storage),
        restores=[note for note in notes if note.kind == "restore"],
        savepoints=[note for note in notes if note.kind == "savepoint"],
        forks=children,
    )


def _child(note: Note, above: set[JobId], by: Storage) -> Lineage:
    try:
        storage = open_named(note.home, by)
        if read_job(storage).job == note.job:
            return _descend(storage, above)
    except (PenstockError, OSError) as error:
        log.info("%s: %s", note.home, error)
    return Lineage(name=note.name, job=note.job, storage=note.home, reachable=False)


def _now() -> Milliseconds:
    return round(time.time() * 1000)
