"""`logs/driver.json` in a job's storage: the last lines that the driver's process has logged, secrets masked. For people."""

from __future__ import annotations

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Milliseconds
from penstock.jobs import paths
from penstock.storage import Storage
from penstock.storage.documents import LIST_BYTES, decode_json, read_small

VERSION = 1
LINES = 500
LONGEST = 2_000
"""Characters of a line; tracebacks are cut to as many."""


class LogLine(msgspec.Struct, frozen=True):
    at_ms: Milliseconds
    level: str
    logger: str
    text: str


class KeptLog(msgspec.Struct, frozen=True):
    """Oldest first."""

    lines: list[LogLine]
    version: int = VERSION


def read_log(storage: Storage) -> list[LogLine]:
    """What is kept; nothing if there is nothing that can be read."""
    try:
        found = decode_json(read_small(storage, paths.DRIVER_LOG, LIST_BYTES), KeptLog, paths.DRIVER_LOG)
    except (NotFoundError, CorruptFileError):
        return []
    return found.lines if found.version <= VERSION else []
