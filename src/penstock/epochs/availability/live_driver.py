"""Is the job driven already? Asked before a driver starts: a second one would take the job over.

    it was never driven, or the last driver said that it left  ──→ no
    the last driver was a process of this host, and has ended ───→ no
    its beat changes while it is watched for half a lease ───────→ yes
    it does not ─────────────────────────────────────────────────→ no: it is gone with its host, or hangs

A wrong answer costs a take-over, or a start that is refused; who may commit is decided by terms alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from penstock.config import JobConfig
from penstock.diagnosis.invocation import UNATTENDED, Invocation
from penstock.epochs.availability.lease_holder import drives
from penstock.epochs.availability.standby import SHARE, Seen, observe
from penstock.errors import JobDrivenError
from penstock.ids import Term
from penstock.jobs.lease import Lease
from penstock.jobs.processes import has_died, is_this
from penstock.jobs.terms import TermInfo, read_term
from penstock.storage import Storage
from penstock.timing.durations import to_ms


def check_not_driven(
    storage: Storage,
    config: JobConfig,
    *,
    tell: Callable[[str], None],
    invocation: Invocation = UNATTENDED,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Refuse to start, or ask, while another driver is seen to run the job."""
    if config.take_over or config.storage is None:
        return
    seen = observe(storage)
    if not may_be_driven(storage, seen):
        return
    limit_s = SHARE * max(to_ms(config.lease), *(lease.lease_ms for lease in (seen.lease, seen.attempt) if lease), 0) / 1000
    tell(f"{seen.driver} last drove the job and has not released it: watching for {limit_s:g} s to see whether it is alive")
    driver = watch(storage, seen, limit_s, monotonic, sleep)
    if driver is None:
        tell(f"{seen.driver} gave no sign of life: it has exited or hangs")
        return
    refusal = _refusal(storage, driver, invocation)
    if not invocation.confirmed(refusal, "Take the job over from it?"):
        raise refusal


def may_be_driven(storage: Storage, seen: Seen) -> bool:
    """Unless a look at the storage, and at this host, shows that no process drives the job or takes it over."""
    newest = seen.attempt or seen.taken
    if newest is not None and not seen.abandoned and _may_live(storage, newest, seen.term):
        return True
    lease = seen.lease
    return lease is not None and not lease.released and _may_live(storage, lease, lease.term)


def _may_live(storage: Storage, process: Lease | TermInfo, term: Term) -> bool:
    return drives(storage, term) if is_this(process) else not has_died(process)


def watch(
    storage: Storage, seen: Seen, limit_s: float, monotonic: Callable[[], float], sleep: Callable[[float], None]
) -> Seen | None:
    """Who gives a sign of life within `limit_s`; None: no process does, or the driver leaves."""
    end = monotonic() + limit_s
    while monotonic() < end:
        sleep(min(0.25, limit_s / 10))
        now = observe(storage)
        if not may_be_driven(storage, now):
            return None
        if (driver := now.alive(seen)) is not None:
            return driver
    return None


def _refusal(storage: Storage, seen: Seen, invocation: Invocation) -> JobDrivenError:
    term = read_term(storage, seen.term)
    since = ""
    if term is not None:
        since = f", since {datetime.fromtimestamp(term.started_ms / 1000).astimezone().isoformat(' ', 'seconds')}"
    return JobDrivenError(
        f"the job is already driven by {seen.driver}{since}",
        detail=f"it gave a sign of life just now, in {storage.uri}",
        hint=f"`penstock stop {storage.uri.removeprefix('file://')}` stops it after its epoch; "
        f"to take the job over, which makes that driver fail: {invocation.again_with('--take-over')}",
    )
