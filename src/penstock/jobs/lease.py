"""The lease, as it is written: a driver's sign of life in the job's storage (`lease.json`), and that of a process which takes the
job over (`take-over.json`). Who writes them, and when, is in `epochs/availability/lease_holder.py`.
"""

from __future__ import annotations

import logging
from typing import Literal

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Milliseconds, Term
from penstock.jobs import paths
from penstock.storage import Storage
from penstock.storage.documents import NOTE_BYTES, decode_json, read_small

log = logging.getLogger("penstock")

VERSION = 1


Released = Literal["", "finished", "stopped", "handed-over", "failed", "abandoned"]
"""`handed-over`: stopped by a signal; `failed`: gave up; `abandoned`: a take-over that was not committed, of `take-over.json`."""


class Lease(msgspec.Struct, frozen=True):
    """Who drives, and that it does. `lease_ms`: for how long a beat is good, by the clock of the process that sees it."""

    version: int
    term: Term
    host: str
    pid: int
    beat: int
    renewed_ms: Milliseconds
    lease_ms: Milliseconds
    released: Released = ""
    machine: str = ""
    born: int = 0
    """See `processes.py`."""

    @property
    def mark(self) -> tuple[Term, int, Released]:
        """Changes with every sign of life."""
        return self.term, self.beat, self.released


def read_lease(storage: Storage) -> Lease | None:
    """The driver's lease; None if there is none that can be read."""
    return read(storage, paths.LEASE)


def read_attempt(storage: Storage) -> Lease | None:
    """The lease of the process that takes the job over, or did last; None if there is none that can be read."""
    return read(storage, paths.TAKE_OVER)


def read(storage: Storage, path: str) -> Lease | None:
    """One of the two; None if there is none that can be read."""
    try:
        lease = decode_json(read_small(storage, path, NOTE_BYTES), Lease, path)
    except (NotFoundError, CorruptFileError):
        return None
    return lease if lease.version == VERSION else None
