"""The folder that a savepoint is made in.

Laws:
- It is empty, or holds nothing but what a savepoint left that was never finished: that is swept. Anything else is refused.
- One maker at a time: `making.json` says who, is renewed while that one works, and is looked at again before the end.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from penstock.errors import AlreadyExistsError, ConfigError, CorruptFileError, NotFoundError, StorageError
from penstock.ids import Milliseconds
from penstock.jobs.processes import process_lives
from penstock.storage import Listed, Storage
from penstock.storage.documents import NOTE_BYTES, decode_json, read_small

SAVEPOINT = "savepoint.json"
MAKING = "making.json"
STATE = "state"
RENEW_S = 20.0
STALE_MS = 180_000

_OWN = re.compile(rf"{STATE}/\d+(-[a-z0-9_-]*)?(\.\d+)?\.parquet|{re.escape(MAKING)}")
"""What a savepoint in the making consists of."""


class Making(msgspec.Struct, frozen=True):
    """Who is making a savepoint here."""

    version: int
    identity: str
    host: str
    pid: int
    started_ms: Milliseconds


@contextlib.contextmanager
def claimed(place: Storage, identity: str) -> Iterator[Callable[[], None]]:
    """Hold the folder while the block runs; yields a check that it is still held. If the block raises, its files are removed."""
    _clear(place)
    mark = Making(1, identity, socket.gethostname(), os.getpid(), round(time.time() * 1000))
    try:
        place.create(MAKING, msgspec.json.encode(mark), durable=False)
    except AlreadyExistsError:
        _check_held(place, identity)  # a repeated request may find its own
    stop = threading.Event()
    renewing = threading.Thread(target=_renew, args=(place, mark, stop), name="penstock-savepoint", daemon=True)
    renewing.start()
    try:
        yield lambda: _check_held(place, identity)
    except BaseException:
        with contextlib.suppress(StorageError, ConfigError):  # the next one sweeps it
            _check_held(place, identity)
            if not place.exists(SAVEPOINT):
                _remove([listed for listed in place.list() if _OWN.fullmatch(listed.path)], place)
        raise
    else:
        with contextlib.suppress(StorageError):
            place.delete([MAKING])
    finally:
        stop.set()
        renewing.join()


def _renew(place: Storage, mark: Making, stop: threading.Event) -> None:
    while not stop.wait(RENEW_S):
        with contextlib.suppress(StorageError, ConfigError):
            _check_held(place, mark.identity)
            place.replace(MAKING, msgspec.json.encode(mark), durable=False)


def _clear(place: Storage) -> None:
    _remove(check_free(place), place)


def check_free(place: Storage) -> list[Listed]:
    """What is left there of a savepoint that was never finished. Anything else is refused."""
    found = list(place.list())
    names = {listed.path for listed in found}
    if SAVEPOINT in names:
        raise ConfigError(f"{place.uri} holds a savepoint already", hint="savepoints are never overwritten: name another place")
    foreign = sorted(name for name in names if not _OWN.fullmatch(name))
    if foreign:
        raise ConfigError(
            f"{place.uri} is not empty",
            detail=f"it holds {', '.join(foreign[:5])}" + (" and more" if len(foreign) > 5 else ""),
            hint="a savepoint needs a folder of its own: name one that is empty or does not exist",
        )
    mark = _read_mark(place)
    if mark is not None and _lives(mark, next(listed for listed in found if listed.path == MAKING)):
        raise _taken(place, mark)
    return found


def _lives(mark: Making, listed: Listed) -> bool:
    if listed.modified_ms < round(time.time() * 1000) - STALE_MS:
        return False
    return mark.host != socket.gethostname() or process_lives(mark.pid, mark.started_ms)


def _remove(found: list[Listed], place: Storage) -> None:
    """The mark last: what is left half-way is still known for what it is."""
    if not found:
        return
    place.delete([listed.path for listed in found if listed.path != MAKING])
    place.delete([MAKING])


def _check_held(place: Storage, identity: str) -> None:
    mark = _read_mark(place)
    if mark is None or mark.identity != identity:
        raise _taken(place, mark)


def _read_mark(place: Storage) -> Making | None:
    try:
        return decode_json(read_small(place, MAKING, NOTE_BYTES), Making, MAKING)
    except (NotFoundError, CorruptFileError):
        return None


def _taken(place: Storage, mark: Making | None) -> ConfigError:
    who = "it is not known who" if mark is None else f"process {mark.pid} on {mark.host}"
    return ConfigError(
        f"another savepoint is being made in {place.uri}",
        detail=f"by: {who}",
        hint=f"name another place, or wait; a maker that died on another host is forgotten after {STALE_MS // 60_000} minutes",
    )
