"""Who drives a job, as far as its storage and this host tell; and asking that one to stop."""

from __future__ import annotations

import socket
import time
from typing import Any

from penstock.errors import PenstockError
from penstock.jobs import paths
from penstock.jobs.lease import read_attempt, read_lease
from penstock.jobs.listing import newest_term_in
from penstock.jobs.processes import has_died, process_lives
from penstock.jobs.requests import Answer, ask, wait_for_answer
from penstock.jobs.status import Status, read_status
from penstock.jobs.terms import TermInfo, read_term
from penstock.storage import Storage


def newest_term(storage: Storage) -> TermInfo | None:
    """Who drives the job, or did last. A take-over that came to nothing leaves the job to the driver before."""
    term = newest_term_in(storage)
    newest = read_term(storage, term) if term else None
    if newest is None:
        return None
    lease = read_lease(storage)
    if lease is None or lease.released or lease.term >= newest.term:
        return newest
    attempt = read_attempt(storage)
    abandoned = attempt is not None and attempt.term == newest.term and attempt.released == "abandoned"
    return (read_term(storage, lease.term) if abandoned or has_died(newest) else None) or newest


def is_driven(storage: Storage) -> bool | None:
    """Does a driver run? None: it is, or was, on another host."""
    term = newest_term(storage)
    if term is None or has_ended(term, read_status(storage)):
        return False
    return is_alive(term) if term.host == socket.gethostname() else None


def wrote(term: TermInfo, status: Status) -> bool:
    """Is the status of this driver? One process may drive a job several times."""
    return (status.host, status.pid) == (term.host, term.pid) and status.updated_ms >= term.started_ms


def has_ended(term: TermInfo, status: Status | None) -> bool:
    """Has the driver itself said that it is through?"""
    return status is not None and status.phase != "running" and wrote(term, status)


def state_of(storage: Storage, term: TermInfo, status: Status | None) -> str:
    """What a driver that lives is doing (see `penstock.epochs.lifecycle`); "" if it has not said."""
    lease, attempt = read_lease(storage), read_attempt(storage)
    if attempt is not None and attempt.term == term.term and (lease is None or lease.term < term.term):
        return "taking over"
    return status.state if status is not None and wrote(term, status) else ""


def is_alive(term: TermInfo) -> bool:
    """Is the driver a process of this host that still runs?"""
    return not has_died(term) and term.host == socket.gethostname() and process_lives(term.pid, term.started_ms)


def stop_driver(storage: Storage, timeout: float, *, drain: bool = False) -> Answer:
    """Ask the driver to stop after its epoch; its answer. No driver, or no answer: an error that says so."""
    idle = "there is nothing to stop; what it committed is safe"
    if drain:
        idle = "a job is drained while it runs: start it with --until-idle --drain"
    answer = ask_driver(storage, "stop", timeout, idle=idle, **({"drain": True} if drain else {}))
    if drain and not answer.result.get("drained"):
        raise PenstockError(
            f"the job was not drained: it {answer.message}",
            detail="its driver is of an earlier version of Penstock, which cannot drain",
            hint="start it again with this version, with --until-idle --drain",
        )
    return answer


def ask_driver(storage: Storage, kind: str, timeout: float, *, idle: str, **options: Any) -> Answer:
    """The driver's answer to a request; an error if it refuses or does not answer. `idle`: a hint for when there is no driver."""
    term = newest_term(storage)
    if term is None or is_driven(storage) is False:
        last = "it has never been driven" if term is None else f"its last driver, process {term.pid} on {term.host}, has ended"
        raise PenstockError("the job is not running", detail=last, hint=idle)
    identity = ask(storage, kind, **options)
    deadline = time.monotonic() + timeout
    answer = None
    while answer is None and time.monotonic() < deadline:
        driven = is_driven(storage)
        answer = wait_for_answer(storage, identity, max(0.0, min(1.0, deadline - time.monotonic())))
        if driven is False:
            break  # and it had not answered before it ended
    if answer is None:
        storage.delete([paths.request(identity)])
        raise _unanswered(storage, term, timeout, kind)
    if not answer.ok:
        raise PenstockError(f"the driver refused: {answer.message}")
    return answer


def _unanswered(storage: Storage, term: TermInfo | None, timeout: float, kind: str) -> PenstockError:
    status = read_status(storage)
    if term is not None and status is not None and status.phase == "failed" and has_ended(term, status):
        return PenstockError(
            f"the job failed when it was asked to {kind}",
            detail=status.error,
            hint="what it committed is safe: fix the cause, start it, and ask again",
        )
    if term is not None and is_driven(storage) is False:
        return PenstockError(
            f"the job ended by itself before it was asked to {kind}",
            detail=f"its driver was process {term.pid} on {term.host}",
            hint="what it committed is safe; `penstock jobs` shows how it ended",
        )
    driver = "it has never been driven" if term is None else f"its last driver is process {term.pid} on {term.host}"
    return PenstockError(
        f"no answer within {timeout:g} seconds",
        detail=f"{driver}; the request has been withdrawn",
        hint="if that process still runs, it may be in a long epoch: wait longer with --timeout, or send it SIGTERM",
    )
