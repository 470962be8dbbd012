"""`mirror.json`: what a mirror is of, and how far. `epochs/availability/` mirrors, and starts a job from a mirror."""

from __future__ import annotations

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Epoch, JobId, Milliseconds, Term
from penstock.jobs import paths
from penstock.jobs.terms import Head
from penstock.storage import Storage
from penstock.storage.documents import NOTE_BYTES, read_small
from penstock.storage.sealed import seal, unseal

VERSION = 1

GAP = 100_000
"""Numbers passed over: this many epochs may have been committed without the mirror's knowledge."""


class MirrorInfo(msgspec.Struct, frozen=True):
    """Of which storage and job; the newest epoch known to be committed there, and the newest that is here.

    `term`: of the driver that mirrors; `started_ms`: when the mirror became a job of its own.
    """

    version: int
    job: JobId
    storage: str
    term: Term
    committed: Epoch
    mirrored: Epoch
    updated_ms: Milliseconds
    started_ms: Milliseconds | None = None

    @property
    def lost(self) -> str:
        """Which epochs are known to be lost, in words."""
        if self.committed <= self.mirrored:
            return "no epoch is known to be lost"
        first, last = self.mirrored + 1, self.committed
        return f"epoch {first} is lost" if first == last else f"epochs {first} to {last} are lost"


def write_mirror(storage: Storage, info: MirrorInfo, *, durable: bool = False) -> None:
    storage.replace(paths.MIRROR, seal(info), durable=durable)


def read_mirror(storage: Storage) -> MirrorInfo | None:
    """What a storage is a mirror of; None if it is none."""
    try:
        data = read_small(storage, paths.MIRROR, NOTE_BYTES)
    except NotFoundError:
        return None
    info = unseal(data, MirrorInfo, f"{storage.uri}/{paths.MIRROR}")
    if info.version != VERSION:
        raise CorruptFileError(f"{storage.uri}/{paths.MIRROR} is of format {info.version}; this Penstock reads {VERSION}")
    return info


def unstarted(info: MirrorInfo | None, head: Head) -> MirrorInfo | None:
    """The mirror, if no job has been started from it yet: such a job's take-over epoch is beyond the gap. Pure."""
    if info is None or info.started_ms is not None or any(epoch > info.committed + GAP for epoch in head.epochs):
        return None
    return info


def passed_over(info: MirrorInfo | None, head: Head) -> Epoch:
    """Epochs up to this number may have been committed elsewhere. Pure."""
    mirror = unstarted(info, head)
    return Epoch(0) if mirror is None else Epoch(max(mirror.committed, mirror.mirrored, *head.epochs, 0) + GAP)
