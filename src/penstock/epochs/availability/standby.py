"""Standing by: watch the driver's lease, and decide when to take the job over.

    watching ── no sign of life for a lease ────────────────→ take over, if no other has: the term after the one watched
       │ ↑ └─── the driver handed the job over, or gave up ──→ take over at once
       │ └───── the take-over failed, or another won ────────── rest, watch again
       └─────── the job is finished, or was stopped ─────────→ end

Laws:
- A standby ends only when it is asked to, or when the job is finished or was stopped on purpose. After anything that goes wrong,
  while it takes over or later while it drives, it stands by again.
- Silence counts only while the watcher itself can read the storage. A look that fails, that takes long, or that comes long after
  the one before proves nothing: the full lease starts anew.
- Any beat is a sign of life: that of the driver, of a process that takes the job over, and a new term. A take-over that was
  abandoned says nothing about the driver, whose lease is watched as before.
- Clocks of hosts are not compared: a beat is seen to change, or not, by the watcher's own monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import CorruptFileError, Nature
from penstock.ids import Term
from penstock.jobs.lease import Lease, Released, read_attempt, read_lease
from penstock.jobs.listing import epochs_in, newest_term_in
from penstock.jobs.manifest import load_manifest
from penstock.jobs.terms import TermInfo, read_term
from penstock.storage import Storage

SHARE = 0.5
"""Of a lease: how long a look may take, and how long after the one before it may begin. A beat is due after a quarter."""

LONGEST_REST_S = 300.0

_OVER: tuple[Released, ...] = ("finished", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at the storage showed. `term`: the newest.

    `lease`: the driver's. Where it is of an older term a take-over is under way, or was left: `attempt`, or else `taken`,
    says by which process. `overtaken`: that take-over was committed, though it has no lease yet; looked for only if the
    lease says that the job is over.
    """

    term: Term
    taken: TermInfo | None = None
    lease: Lease | None = None
    attempt: Lease | None = None
    overtaken: bool = False

    @property
    def who(self) -> Lease | TermInfo | None:
        """The process that drives the job, or takes it over."""
        if self.lease is not None and (self.lease.term == self.term or self.abandoned):
            return self.lease
        return self.attempt or self.taken or self.lease

    @property
    def driver(self) -> str:
        who = self.who
        return "its driver" if who is None else f"process {who.pid} on {who.host}"

    @property
    def abandoned(self) -> bool:
        """Was the newest term's take-over given up?"""
        return self.attempt is not None and self.attempt.released == "abandoned"

    def alive(self, before: Seen) -> Seen | None:
        """Who has given a sign of life since `before`; None if there was none."""
        if (self.term, self.attempt and self.attempt.mark) != (before.term, before.attempt and before.attempt.mark):
            return self
        if (self.lease and self.lease.mark) != (before.lease and before.lease.mark):
            return self if self.lease is None else Seen(term=self.lease.term, lease=self.lease)
        return None

    @property
    def left(self) -> Lease | None:
        """The lease of a driver that has left, unless a take-over is under way."""
        lease = self.lease
        if lease is None or not lease.released or self.overtaken:
            return None
        return lease if lease.term == self.term or self.abandoned else None


@dataclass(frozen=True, slots=True)
class Wait:
    because: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """`after`: the term that was watched; the process that makes the next one takes over. `lease`: the driver's, as last seen."""

    after: Term
    because: str
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class End:
    because: str
    finished: bool


Verdict = Wait | TakeOver | End


class Watch:
    """What the looks at the leases come to."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._driver = _Silence()
        self._newest = _Silence()
        """Of the process that has taken the newest term, where that is not the driver."""
        self._looked: float | None = None
        """When the last look ended; None: it failed."""

    def blind(self) -> None:
        """A look failed."""
        self._looked = None

    def look(self, seen: Seen, began: float, ended: float | None = None) -> Verdict:
        """`began`, `ended`: of the look, in seconds of a monotonic clock."""
        ended = began if ended is None else ended
        limit = max(self._lease_s, *(lease.lease_ms / 1000 for lease in (seen.lease, seen.attempt) if lease is not None), 0.0)
        before, self._looked = self._looked, ended
        if seen.left is not None:
            return _left(seen, seen.left)
        sees = before is not None and began - before <= SHARE * limit and ended - began <= SHARE * limit
        lease = seen.lease
        silent = self._driver.lasts(lease and lease.mark, sees, began, ended)
        newest_silent = self._newest.lasts((seen.term, seen.attempt and seen.attempt.mark), sees, began, ended)
        if min(silent, newest_silent) < limit:
            return Wait(_goes_on(seen, newest_silent < limit))
        if lease is not None and lease.released in _OVER and not seen.overtaken:
            return _left(seen, lease)
        if seen.who is None or (seen.abandoned and lease is None):
            return TakeOver(seen.term, "no process drives the job")
        return TakeOver(seen.term, f"{seen.driver} has given no sign of life for {min(silent, newest_silent):.1f} s", lease)


class _Silence:
    """How long nothing has changed, as far as that was seen."""

    def __init__(self) -> None:
        self._mark: object = None
        self._since = 0.0

    def lasts(self, mark: object, sees: bool, began: float, ended: float) -> float:
        if not sees or mark != self._mark:
            self._mark, self._since = mark, ended
        return began - self._since


def _goes_on(seen: Seen, newest_lives: bool) -> str:
    if seen.who is None:
        return "the job has not been driven yet"
    if seen.lease is not None and (seen.who is seen.lease or not newest_lives):
        return f"process {seen.lease.pid} on {seen.lease.host} drives the job"
    if seen.abandoned:
        return f"{seen.driver} could not start the job"
    return f"{seen.driver} is {'starting the job' if seen.lease is None else 'taking the job over'}"


def _left(seen: Seen, lease: Lease) -> Verdict:
    driver = f"process {lease.pid} on {lease.host}"
    if lease.released in _OVER:
        how = "is finished" if lease.released == "finished" else "was stopped on purpose"
        return End(f"the job {how}; its driver was {driver}", lease.released == "finished")
    how = "has handed the job over" if lease.released == "handed-over" else "has given up"
    return TakeOver(seen.term, f"{driver} {how}", lease)


def rest_s(failures: int, nature: Nature, lease_s: float) -> float:
    """How long a standby lets the job be after this many take-overs of its own failed in a row. Pure.

    Never longer than a lease where the machine or the storage was in trouble; an error of the program or its input is
    likely to come again.
    """
    longest = lease_s if nature in ("machine", "transient") else max(lease_s, LONGEST_REST_S)
    return min(longest, lease_s / 4 * 2.0 ** min(failures - 1, 30))


def observe(storage: Storage) -> Seen:
    """Look at the newest term, at the driver's lease, and at that of a take-over."""
    newest = newest_term_in(storage)
    lease = read_lease(storage)
    if lease is not None and lease.term >= newest:
        return Seen(term=lease.term, lease=lease)
    attempt = read_attempt(storage)
    if attempt is not None and attempt.term < newest:
        attempt = None
    term = newest if attempt is None else attempt.term
    taken = read_term(storage, term) if attempt is None and term else None
    overtaken = lease is not None and lease.released in _OVER and _committed_after(storage, lease.term)
    return Seen(term=term, taken=taken, lease=lease, attempt=attempt, overtaken=overtaken)


def _committed_after(storage: Storage, term: Term) -> bool:
    """Is the newest epoch of a later term?"""
    manifests = epochs_in(storage).manifests
    try:
        return bool(manifests) and load_manifest(storage, max(manifests)).term > term
    except CorruptFileError:
        return False
