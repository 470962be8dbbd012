"""At most once: what an epoch is about to read is noted first, and never read again whatever becomes of the epoch.

The note is of the sources as they are if the epoch fails: what it was to read counts as shed.
"""

from __future__ import annotations

import msgspec

from penstock.errors import AlreadyExistsError, CorruptFileError
from penstock.ids import Epoch, JobId, Term
from penstock.jobs import paths
from penstock.jobs.left_out import LeftOut, input_of
from penstock.jobs.listing import intents_in
from penstock.jobs.manifest import Manifest, SourceState
from penstock.jobs.source_order import SourceOrder
from penstock.storage import Storage
from penstock.storage.documents import MANIFEST_BYTES, read_small
from penstock.storage.sealed import is_sealed, seal, unseal

VERSION = 1


class Intent(msgspec.Struct, frozen=True):
    """The sources' states after an epoch that is about to be run, if it fails."""

    version: int
    job: JobId
    epoch: Epoch
    sources: dict[str, SourceState]


def write_intent(
    storage: Storage, job: JobId, epoch: Epoch, term: Term, sources: dict[str, SourceState], read: dict[str, SourceOrder]
) -> None:
    """`sources`: their states if the epoch succeeds; `read`: what it is to read."""
    unread = {step: state.without(input_of(read[step])) if step in read else state for step, state in sources.items()}
    data = seal(Intent(VERSION, job, epoch, unread))
    try:
        storage.create(paths.intent(epoch, term), data)
    except AlreadyExistsError:
        storage.replace(paths.intent(epoch, term), data)
    storage.delete([path for noted, path in intents_in(storage) if noted < epoch])


def read_intent(storage: Storage, job: JobId, head: Epoch) -> dict[str, SourceState]:
    """The sources' states after the epoch that was to follow `head`; empty if none was begun."""
    found: dict[str, SourceState] = {}
    for epoch, path in intents_in(storage):
        if epoch == head + 1:
            found = _decode(read_small(storage, path, MANIFEST_BYTES), f"{storage.uri}/{path}", job, epoch)
    return found


def left_out_at_rest(storage: Storage, head: Manifest) -> LeftOut:
    """What is not in the results of a job that no process drives: what an epoch on top of `head` was to read is never read."""
    sources = {**head.sources, **read_intent(storage, head.job, head.epoch)}
    return msgspec.structs.replace(head, sources=sources).left_out_in_all


def _decode(data: bytes, path: str, job: JobId, epoch: Epoch) -> dict[str, SourceState]:
    if not is_sealed(data):  # from before intents carried a version: nothing but the sources
        return unseal(data, dict[str, SourceState], path)
    intent = unseal(data, Intent, path)
    if intent.version != VERSION:
        raise CorruptFileError(f"{path} is of format {intent.version}; this Penstock reads format {VERSION}")
    if (intent.job, intent.epoch) != (job, epoch):
        raise CorruptFileError(f"{path} is of job {intent.job} and epoch {intent.epoch}: files were mixed up")
    return intent.sources
