"""Pins: epochs that are being read, in whatever process. Their manifests and files stay.

    reader      pin ── is the manifest still there? ── read, renewing the pin ── unpin
    retention   pins? ── retire the manifest ── wait for the grace ── pins? ── delete the files

Laws:
- A reader that found the manifest after pinning reads whole files until it unpins: it pinned before the manifest was retired, so
  before the grace, and the pins are read again after the grace.
- A pin that has not been renewed for `STALE_MS` belongs to a reader that died: it is ignored, and removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator

import msgspec

from penstock.errors import ConfigError, CorruptFileError, NotFoundError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Milliseconds
from penstock.jobs import paths
from penstock.jobs.listing import epochs_in, pins_in
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.terms import check_same_job, read_job
from penstock.storage import Storage
from penstock.storage.documents import NOTE_BYTES, decode_json, read_small

log = logging.getLogger("penstock")

VERSION = 1
RENEW_S = 20.0
STALE_MS = 180_000

_ATTEMPTS = 20


class Pin(msgspec.Struct, frozen=True):
    """Who reads an epoch, and what for."""

    version: int
    identity: str
    epoch: Epoch
    why: str
    host: str
    pid: int
    created_ms: Milliseconds


@contextlib.contextmanager
def pin(storage: Storage, epoch: Epoch | None, why: str) -> Iterator[Manifest]:
    """Hold an epoch (None: the newest whose output is all published) while the block runs."""
    held, manifest = _take(storage, epoch, why)
    stop = threading.Event()
    renewing = threading.Thread(target=_renew, args=(storage, held, stop), name="penstock-pin", daemon=True)
    renewing.start()
    try:
        yield manifest
    finally:
        stop.set()
        renewing.join()
        with contextlib.suppress(StorageError):  # it goes stale
            storage.delete([paths.pin(held.identity)])


def _take(storage: Storage, epoch: Epoch | None, why: str) -> tuple[Pin, Manifest]:
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(0.01)
        wanted = newest_done(storage) if epoch is None else _checked_done(storage, epoch)
        if wanted is None:
            continue  # a listing is no snapshot: it may miss what comes while it sees what goes
        held = Pin(VERSION, uuid.uuid4().hex, wanted, why, socket.gethostname(), os.getpid(), round(time.time() * 1000))
        storage.create(paths.pin(held.identity), msgspec.json.encode(held), durable=False)
        fail_point("pin:made")
        try:
            manifest = load_manifest(storage, wanted)
            check_same_job(storage, read_job(storage), manifest)
            return held, manifest
        except CorruptFileError:
            storage.delete([paths.pin(held.identity)])
            if storage.exists(paths.manifest(wanted)):
                raise
            # Retired since it was listed: an epoch that was asked for is refused above, the newest is another one now.
    raise ConfigError(
        f"{storage.uri} has no epoch that is committed with all its output",
        hint="wait until the job has run its first epoch; check that this is the storage it runs with",
    )


def _renew(storage: Storage, held: Pin, stop: threading.Event) -> None:
    while not stop.wait(RENEW_S):
        try:
            storage.replace(paths.pin(held.identity), msgspec.json.encode(held), durable=False)
        except StorageError as error:
            log.warning("the pin of epoch %d could not be renewed: %s", held.epoch, error)


def kept_epochs(storage: Storage) -> tuple[list[Epoch], list[Epoch]]:
    """The epochs with a manifest; and those of them that are done."""
    listed = epochs_in(storage)
    return list(listed.manifests), listed.published


def newest_done(storage: Storage) -> Epoch | None:
    """The newest epoch whose output is all published."""
    return max(kept_epochs(storage)[1], default=None)


def _checked_done(storage: Storage, epoch: Epoch) -> Epoch:
    epochs, done = kept_epochs(storage)
    if epoch in done:
        return epoch
    if epoch in epochs:
        raise ConfigError(f"not all output of epoch {epoch} is published yet", hint="wait, or start the job to finish it")
    kept = f"kept are {', '.join(_ranges(epochs))}" if epochs else "there are none"
    raise ConfigError(f"epoch {epoch} of {storage.uri} is not kept", detail=kept, hint="keep more epochs with keep=")


def _ranges(epochs: list[Epoch]) -> list[str]:
    found: list[list[Epoch]] = []
    for epoch in epochs:
        if found and epoch == found[-1][-1] + 1:
            found[-1][1:] = [epoch]
        else:
            found.append([epoch])
    return [str(ends[0]) if len(ends) == 1 else f"{ends[0]} to {ends[1]}" for ends in found]


def pinned(storage: Storage) -> set[Epoch]:
    """The epochs that are pinned. Removes stale pins on the way."""
    oldest = round(time.time() * 1000) - STALE_MS
    found: set[Epoch] = set()
    stale: list[str] = []
    for listed in pins_in(storage):
        if listed.modified_ms < oldest:
            stale.append(listed.path)
            continue
        try:
            found.add(decode_json(read_small(storage, listed.path, NOTE_BYTES), Pin, listed.path).epoch)
        except NotFoundError:
            continue
        except CorruptFileError as error:
            log.warning("ignored: %s", error)
    if stale:
        storage.delete(stale)
    return found
