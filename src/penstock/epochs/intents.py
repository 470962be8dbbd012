"""At most once: what an epoch is about to read is noted first, and never read again whatever becomes of the epoch."""

from __future__ import annotations

import msgspec

from penstock import paths
from penstock.errors import AlreadyExistsError
from penstock.ids import Epoch, Term
from penstock.runtime.manifest import SourceState
from penstock.storage import Storage


def write_intent(storage: Storage, epoch: Epoch, term: Term, sources: dict[str, SourceState]) -> None:
    try:
        storage.create(paths.intent(epoch, term), msgspec.json.encode(sources))
    except AlreadyExistsError:
        storage.replace(paths.intent(epoch, term), msgspec.json.encode(sources))
    storage.delete([listed.path for listed in storage.list(paths.INTENTS) if paths.epoch_number(listed.path) < epoch])


def read_intent(storage: Storage, head: Epoch) -> dict[str, SourceState]:
    """The sources' states after the epoch that was to follow `head`; empty if none was begun."""
    found: dict[str, SourceState] = {}
    for listed in storage.list(paths.INTENTS):
        if paths.epoch_number(listed.path) == head + 1:
            found = msgspec.json.decode(storage.read(listed.path), type=dict[str, SourceState])
    return found
