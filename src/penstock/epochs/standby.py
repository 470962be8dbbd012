"""Standing by: watch the driver's lease, and say when to take the job over.

    watching ── the beat stands still for a lease ──────────→ take over, if no other has: the term after the one watched
       │  └──── the driver handed the job over, or gave up ──→ take over at once
       └─────── the job is finished, or was stopped ─────────→ end

Clocks of hosts are not compared: a beat is seen to change, or not, by the watcher's own monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock import paths
from penstock.epochs.fencing import JobInfo, TermInfo, read_job, read_term
from penstock.epochs.lease import Lease, read_lease
from penstock.errors import NotFoundError, StorageError
from penstock.ids import Term
from penstock.storage import Storage

log = logging.getLogger("penstock")

PREPARE_EVERY_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at the storage showed. `lease` is None unless it is of the newest term."""

    term: Term
    taken: TermInfo | None = None
    lease: Lease | None = None

    @property
    def driver(self) -> str:
        who = self.lease or self.taken
        return "its driver" if who is None else f"process {who.pid} on {who.host}"


@dataclass(frozen=True, slots=True)
class Wait:
    because: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """`after`: the term that was watched. Whoever makes the next one takes over."""

    after: Term
    because: str


@dataclass(frozen=True, slots=True)
class End:
    because: str
    finished: bool


Verdict = Wait | TakeOver | End


class Watch:
    """What the looks at a lease come to."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._mark: tuple[Term, int] | None = None
        self._changed = 0.0

    def look(self, seen: Seen, now: float) -> Verdict:
        """`now`: seconds of a monotonic clock."""
        lease = seen.lease
        if lease is not None and lease.released:
            return _left(seen, lease)
        mark = (seen.term, lease.beat if lease is not None else 0)
        if mark != self._mark:
            self._mark, self._changed = mark, now
        limit = self._lease_s if lease is None else max(self._lease_s, lease.lease_ms / 1000)
        silent = now - self._changed
        if silent < limit:
            if seen.term == 0:
                return Wait("nobody has driven the job yet")
            return Wait(f"{seen.driver} drives the job" if lease is not None else f"{seen.driver} is starting the job")
        if seen.term == 0:
            return TakeOver(seen.term, "nobody drives the job")
        return TakeOver(seen.term, f"{seen.driver} has given no sign of life for {silent:.1f} s")


def _left(seen: Seen, lease: Lease) -> Verdict:
    if lease.released in ("finished", "stopped"):
        how = "is finished" if lease.released == "finished" else "was stopped on purpose"
        return End(f"the job {how}; its driver was {seen.driver}", lease.released == "finished")
    how = "has handed the job over" if lease.released == "handed-over" else "has given up"
    return TakeOver(seen.term, f"{seen.driver} {how}")


def observe(storage: Storage) -> Seen:
    """Look at the newest term, and at the lease if it is of that term."""
    newest = max((paths.epoch_number(listed.path) for listed in storage.list(paths.TERMS)), default=0)
    term = Term(newest)
    lease = read_lease(storage)
    if lease is not None and lease.term >= term:
        return Seen(term=lease.term, lease=lease)
    return Seen(term=term, taken=read_term(storage, term) if term else None)


def stand_by(
    storage: Storage,
    lease_s: float,
    *,
    tell: Callable[[str], None],
    prepare: Callable[[], None],
    stopping: Callable[[], bool],
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> TakeOver | End | None:
    """Wait until the job is to be taken over or is over; None if told to stop."""
    watch = Watch(lease_s)
    told = ""
    prepared: float | None = None
    while not stopping():
        try:
            verdict = watch.look(observe(storage), monotonic())
        except StorageError as error:
            verdict = Wait(f"the storage does not answer: {error.what}")
        if not isinstance(verdict, Wait):
            return verdict
        if verdict.because != told:
            told = verdict.because
            tell(f"stands by: {told}")
        if prepared is None or monotonic() - prepared > PREPARE_EVERY_S:
            prepare()
            prepared = monotonic()
            continue  # that may have taken a while
        sleep(min(1.0, lease_s / 10))
    return None


def job_of(storage: Storage) -> JobInfo | None:
    try:
        return read_job(storage)
    except NotFoundError:
        return None
