"""Is anybody driving a job? As far as its storage and this host tell."""

from __future__ import annotations

import os
import socket
import time

import msgspec

from penstock import paths
from penstock.epochs.fencing import TermInfo
from penstock.epochs.status import Status, read_status
from penstock.errors import PenstockError
from penstock.ids import Milliseconds
from penstock.storage import Storage


def newest_term(storage: Storage) -> TermInfo | None:
    """Who drives the job, or did last."""
    terms = list(storage.list(paths.TERMS))
    if not terms:
        return None
    try:
        return msgspec.json.decode(storage.read(terms[-1].path), type=TermInfo)
    except (msgspec.MsgspecError, PenstockError):
        return None


def is_driven(storage: Storage) -> bool | None:
    """Does a driver run? None: it is, or was, on another host."""
    term = newest_term(storage)
    if term is None or has_ended(term, read_status(storage)):
        return False
    return is_alive(term) if term.host == socket.gethostname() else None


def has_ended(term: TermInfo, status: Status | None) -> bool:
    """Has the driver itself said that it is through?"""
    return status is not None and status.phase != "running" and (status.host, status.pid) == (term.host, term.pid)


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
