"""At most once: what an epoch is about to read is noted first, and never read again whatever becomes of the epoch."""

from __future__ import annotations

import msgspec

from penstock import paths
from penstock.errors import AlreadyExistsError, CorruptFileError
from penstock.ids import Epoch, JobId, Term
from penstock.runtime.manifest import SourceState
from penstock.storage import Storage
from penstock.storage.sealed import is_sealed, seal, unseal

VERSION = 1


class Intent(msgspec.Struct, frozen=True):
    """The sources' states after an epoch that is about to be run."""

    version: int
    job: JobId
    epoch: Epoch
    sources: dict[str, SourceState]


def write_intent(storage: Storage, job: JobId, epoch: Epoch, term: Term, sources: dict[str, SourceState]) -> None:
    data = seal(Intent(VERSION, job, epoch, sources))
    try:
        storage.create(paths.intent(epoch, term), data)
    except AlreadyExistsError:
        storage.replace(paths.intent(epoch, term), data)
    storage.delete([listed.path for listed in storage.list(paths.INTENTS) if paths.epoch_number(listed.path) < epoch])


def read_intent(storage: Storage, job: JobId, head: Epoch) -> dict[str, SourceState]:
    """The sources' states after the epoch that was to follow `head`; empty if none was begun."""
    found: dict[str, SourceState] = {}
    for listed in storage.list(paths.INTENTS):
        if paths.epoch_number(listed.path) == head + 1:
            found = _decode(storage.read(listed.path), f"{storage.uri}/{listed.path}", job, Epoch(head + 1))
    return found


def _decode(data: bytes, path: str, job: JobId, epoch: Epoch) -> dict[str, SourceState]:
    if not is_sealed(data):  # from before intents carried a version: nothing but the sources
        return unseal(data, dict[str, SourceState], path)
    intent = unseal(data, Intent, path)
    if intent.version != VERSION:
        raise CorruptFileError(f"{path} is of format {intent.version}; this Penstock reads format {VERSION}")
    if (intent.job, intent.epoch) != (job, epoch):
        raise CorruptFileError(f"{path} is of job {intent.job} and epoch {intent.epoch}: files were mixed up")
    return intent.sources
