"""Who drives a job, as far as its storage and this host tell; and asking that one to stop."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from penstock import paths
from penstock.epochs.control import Answer, ask, wait_for_answer
from penstock.epochs.fencing import TermInfo
from penstock.epochs.status import Status, read_status
from penstock.errors import PenstockError
from penstock.ids import Milliseconds
from penstock.storage import Storage
from penstock.storage.sealed import unseal


def newest_term(storage: Storage) -> TermInfo | None:
    """Who drives the job, or did last."""
    terms = list(storage.list(paths.TERMS))
    if not terms:
        return None
    try:
        return unseal(storage.read(terms[-1].path), TermInfo, terms[-1].path)
    except PenstockError:
        return None


def is_driven(storage: Storage) -> bool | None:
    """Does a driver run? None: it is, or was, on another host."""
    term = newest_term(storage)
    if term is None or has_ended(term, read_status(storage)):
        return False
    return is_alive(term) if term.host == socket.gethostname() else None


def has_ended(term: TermInfo, status: Status | None) -> bool:
    """Has the driver itself said that it is through? One process may drive a job several times."""
    if status is None or status.phase == "running" or (status.host, status.pid) != (term.host, term.pid):
        return False
    return status.updated_ms >= term.started_ms


def is_alive(term: TermInfo) -> bool:
    """Is the driver a process of this host that still runs?"""
    return term.host == socket.gethostname() and process_lives(term.pid, term.started_ms)


def process_lives(pid: int, known_ms: Milliseconds) -> bool:
    """Does a process of this host run? One that is younger than `known_ms` only has the old one's number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open("/proc/uptime") as file:
            boot_s = time.time() - float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return True  # no /proc here: the number must do
    started_s = boot_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] != "Z" and started_s * 1000 <= known_ms + 2000


def stop_driver(storage: Storage, timeout: float) -> Answer:
    """Ask the driver to stop after its epoch; its answer. Nobody there, or no answer: an error that says so."""
    return ask_driver(storage, "stop", timeout, idle="there is nothing to stop; what it committed is safe")


def ask_driver(storage: Storage, kind: str, timeout: float, *, idle: str, **options: Any) -> Answer:
    """The driver's answer to a request; an error if it refuses, or if nobody answers. `idle`: a hint for when nobody drives."""
    term = newest_term(storage)
    if term is None or is_driven(storage) is False:
        last = "nobody has ever driven it" if term is None else f"its last driver, process {term.pid} on {term.host}, has ended"
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
    if term is not None and is_driven(storage) is False:
        return PenstockError(
            f"the job ended by itself before it was told to {kind}",
            detail=f"its driver was process {term.pid} on {term.host}",
            hint="what it committed is safe; `penstock jobs` shows how it ended",
        )
    driver = "nobody has ever driven it" if term is None else f"its last driver is process {term.pid} on {term.host}"
    return PenstockError(
        f"nobody answered within {timeout:g} seconds",
        detail=f"{driver}; the request has been taken back",
        hint="if that process still runs, it may be in a long epoch: wait longer with --timeout, or send it SIGTERM",
    )
