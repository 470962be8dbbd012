"""The lease: a driver's sign of life in the job's storage, for those who stand by.

A small thread renews `lease.json` every quarter of the lease, with a beat that counts up. Laws:
- It guards nothing: who may commit is decided by terms and the take-over epoch alone. A lease that is wrong costs a take-over.
- It speaks for the loop, not for the process: once the job runs, a loop that has not come round for `hang_after` has no beat.
- A driver that finds a lease of a higher term is no longer the driver, and writes no more.
- Released says how the driver left: a job that is finished, or was stopped by request, is nobody's to take over.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from penstock import paths
from penstock.config import JobConfig
from penstock.epochs.fencing import take_term
from penstock.errors import NotFoundError, StorageError
from penstock.ids import Milliseconds, Term
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

VERSION = 1

HANG_LEASES = 10
"""A loop that has not come round for so many leases hangs, unless told otherwise."""

Released = Literal["", "finished", "stopped", "handed-over", "failed"]
"""`handed-over`: told to go by a signal; `failed`: gave up."""


class Lease(msgspec.Struct, frozen=True):
    """Who drives, and that it does. `lease_ms`: for how long a beat is good, by the clock of whoever sees it."""

    version: int
    term: Term
    host: str
    pid: int
    beat: int
    renewed_ms: Milliseconds
    lease_ms: Milliseconds
    released: Released = ""


def read_lease(storage: Storage) -> Lease | None:
    """The lease; None if there is none that can be read."""
    try:
        lease = msgspec.json.decode(storage.read(paths.LEASE), type=Lease)
    except (NotFoundError, msgspec.MsgspecError):
        return None
    return lease if lease.version == VERSION else None


def hang_after_ms(config: JobConfig) -> Milliseconds:
    return HANG_LEASES * to_ms(config.lease) if config.hang_after is None else to_ms(config.hang_after)


class SignOfLife:
    """A driver's side of the lease."""

    def __init__(
        self,
        storage: Storage,
        config: JobConfig,
        *,
        after: Term | None = None,
        ready: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._kept = config.storage is not None
        self._lease_ms = to_ms(config.lease)
        self._hang_s = hang_after_ms(config) / 1000
        self._after = after
        self._tell_ready = ready
        self._monotonic = monotonic
        self._touched: float | None = None
        self._hangs = False
        self._term: Term | None = None
        self._beat = 0
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    # --- what the loop tells -----------------------------------------------------------------------------------------------

    def take_term(self, storage: Storage, above: int = 0) -> Term:
        """Become the driver, and say so from now on. After a term that was watched: only if nobody else has.

        `above`: once more, above a term whose file is gone."""
        self._term = take_term(storage, above, after=None if above else self._after)
        self._after = None  # it is ours now, should it have to be taken once more
        if self._kept and self._thread is None:
            self.renew()
            self._thread = threading.Thread(target=self._keep, name="penstock-lease", daemon=True)
            self._thread.start()
        return self._term

    def ready(self) -> None:
        """The job is taken over: from now on the loop comes round, or hangs."""
        self.touch()
        self._tell_ready()

    def touch(self) -> None:
        """The loop came round."""
        self._touched = self._monotonic()

    def release(self, how: Released) -> None:
        """The driver leaves, in good order."""
        self._end()
        if self._kept and self._term is not None:
            self.renew(how)

    def close(self) -> None:
        """No more signs of life, and no word of why."""
        self._end()

    # --- beats -------------------------------------------------------------------------------------------------------------

    def renew(self, released: Released = "") -> bool:
        """One beat, if there is life; False if there is none, or the job is another's."""
        assert self._term is not None
        touched = self._touched
        hangs = touched is not None and self._monotonic() - touched > self._hang_s
        if hangs and not released:
            if not self._hangs:
                log.warning("no epoch has ended for %g s: the lease is not renewed", self._hang_s)
            self._hangs = True
            return False
        self._hangs = False
        with self._writing:
            try:
                found = read_lease(self._storage)
                if found is not None and found.term > self._term:
                    return False
                self._beat += 1
                lease = Lease(
                    VERSION,
                    self._term,
                    socket.gethostname(),
                    os.getpid(),
                    self._beat,
                    round(time.time() * 1000),
                    self._lease_ms,
                    released,
                )
                self._storage.replace(paths.LEASE, msgspec.json.encode(lease), durable=bool(released))
            except StorageError as error:
                log.warning("the lease could not be renewed: %s", error)
                return False
        return True

    def _keep(self) -> None:
        while not self._stopped.wait(self._lease_ms / 4000):
            self.renew()

    def _end(self) -> None:
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
