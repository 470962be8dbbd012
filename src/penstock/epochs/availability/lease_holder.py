"""The lease: a driver's sign of life in the job's storage, for those who stand by or are about to start.

    take a term ──→ beats in take-over.json ── take-over epoch committed ──→ beats in lease.json ──→ released
                           └── the take-over fails ──→ abandoned

A small thread renews it every quarter of the lease, with a beat that counts up. Laws:
- It guards nothing: who may commit is decided by terms and the take-over epoch alone. A lease that is wrong costs a take-over.
- `lease.json` belongs to the driver, the process whose take-over epoch was committed last. Until its own is committed, a process
  that takes the job over beats in `take-over.json`: the driver it is about to replace, if it lives, keeps its lease and is seen.
- Only its holder releases a lease: never over one of a higher term, and never before the take-over is committed. A take-over that
  fails is abandoned, which says nothing about the driver.
- A standby leaves the job to a driver whose lease has changed since it was watched.
- It speaks for the loop, not for the process: once the job runs, a loop that has not come round for `hang_after` has no beat.
- A driver that finds a lease of a higher term is no longer the driver, and stops writing.
- Released says how the driver left: a job that is finished, or was stopped by request, is not to be taken over.
- The last word is tried again by the restart policy. Leaving takes bounded time: a storage that does not answer is not waited for
  longer than `LEAVE_S`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable

import msgspec

from penstock.config import JobConfig
from penstock.errors import FencedError, PenstockError
from penstock.ids import Milliseconds, Term
from penstock.jobs import paths
from penstock.jobs.lease import VERSION, Lease, Released, read, read_lease
from penstock.jobs.processes import born, this_machine
from penstock.jobs.terms import take_term
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

HANG_LEASES = 10
"""A loop that has not come round for this many leases hangs, unless `hang_after` says otherwise."""


LEAVE_S = 10.0
"""How long a driver that leaves waits for its last word to be written."""


_driving: set[tuple[str, Term]] = set()
"""The terms, by storage, that this process drives now."""


def drives(storage: Storage, term: Term) -> bool:
    """Does this process drive a term?"""
    return (storage.uri, term) in _driving


def hang_after_ms(config: JobConfig) -> Milliseconds:
    return HANG_LEASES * to_ms(config.lease) if config.hang_after is None else to_ms(config.hang_after)


class SignOfLife:
    """A driver's side of the lease.

    A standby gives `after`, the term that it watched and takes the next of, and `watched`, the lease as it saw it last.
    """

    def __init__(
        self,
        storage: Storage,
        config: JobConfig,
        *,
        after: Term | None = None,
        watched: Lease | None = None,
        ready: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._kept = config.storage is not None
        self._lease_ms = to_ms(config.lease)
        self._hang_s = hang_after_ms(config) / 1000
        self._after = after
        self._stood_by = after is not None
        self._watched = watched
        self._tell_ready = ready
        self._monotonic = monotonic
        self._process = this_machine(), born(os.getpid())
        self._touched: float | None = None
        self._hangs = False
        self._term: Term | None = None
        self._drives = False
        """Is the take-over committed?"""
        self._beat = 0
        self._last_word: Released = ""
        self._policy = config.restart
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self._left = threading.Event()
        """The last word is no longer waited for."""
        self._thread: threading.Thread | None = None

    # --- what the loop says ------------------------------------------------------------------------------------------------

    def take_term(self, storage: Storage, above: int = 0) -> Term:
        """Begin to take the job over, and say so from now on. After a term that was watched: only if no other process has.

        `above`: once more, above a term whose file is gone."""
        self._forget()
        self._term = take_term(storage, above, after=None if above else self._after)
        _driving.add((self._storage.uri, self._term))
        self._after = None  # it is ours now, should it have to be taken once more
        if self._kept and self._thread is None:
            self.renew()
            self._thread = threading.Thread(target=self._keep, name="penstock-lease", daemon=True)
            self._thread.start()
        return self._term

    @property
    def gives_way(self) -> bool:
        """Is a driver that commits an epoch meanwhile proof that it lives, and keeps the job? Not if it had left."""
        return self._stood_by and not (self._watched is not None and self._watched.released)

    def check_silent(self) -> None:
        """Before the take-over is committed: `FencedError` if a standby finds that the driver it is to replace lives."""
        if not self._stood_by or self._term is None:
            return
        found = read_lease(self._storage)
        if found is None or found.term >= self._term or (self._watched is not None and found.mark == self._watched.mark):
            return
        raise FencedError(
            f"process {found.pid} on {found.host} gives signs of life again, and keeps the job",
            detail=f"it drives the job with term {found.term}; this process was about to take it over with term {self._term}",
            hint="only one driver may run a job; with --standby this one waits again",
        )

    def committed(self) -> None:
        """The take-over epoch is committed: this process is the driver, and the lease is its own."""
        self._drives = True
        if self._kept:
            self.renew()

    def ready(self) -> None:
        """The job is taken over: from now on the loop comes round, or hangs."""
        self.touch()
        self._tell_ready()

    def touch(self) -> None:
        """The loop came round."""
        self._touched = self._monotonic()

    def release(self, how: Released) -> None:
        """The driver leaves, in good order. A take-over that was not committed has nothing to release: it is abandoned."""
        self._leave(how if self._drives else "abandoned")

    def close(self) -> None:
        """No more signs of life, and no word of why."""
        self._leave("" if self._drives else "abandoned")

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
        try:
            return self._write(released)
        except (PenstockError, OSError) as error:
            log.warning("the lease could not be renewed: %s", error)
            return False

    def _write(self, released: Released) -> bool:
        """False if the job is another's."""
        assert self._term is not None
        with self._writing:
            path = paths.LEASE if self._drives else paths.TAKE_OVER
            found = read(self._storage, path)
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
                *self._process,
            )
            self._storage.replace(path, msgspec.json.encode(lease), durable=bool(released))
        return True

    def _keep(self) -> None:
        while not self._stopped.wait(self._lease_ms / 4000):
            self.renew()
        if self._last_word:
            self._say_last_word()

    def _say_last_word(self) -> None:
        """No later beat makes up for it: without it, standbys take over a job that was stopped on purpose."""
        failures = 0
        while True:
            try:
                self._write(self._last_word)
                return
            except (PenstockError, OSError) as error:
                failures += 1
                delay_ms = self._policy.delay_ms(failures)
                again = delay_ms is not None and not self._left.is_set()
                log.warning("the lease could not be released%s: %s", f"; trying again in {delay_ms} ms" if again else "", error)
                if delay_ms is None or self._left.wait(delay_ms / 1000):
                    return

    def _forget(self) -> None:
        if self._term is not None:
            _driving.discard((self._storage.uri, self._term))

    def _leave(self, last_word: Released) -> None:
        self._forget()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._last_word = last_word
        self._stopped.set()
        thread.join(LEAVE_S)
        self._left.set()
        if thread.is_alive():
            log.warning("the storage does not answer: the lease is not released, and a standby takes over when it has run out")
