"""Processes of this host: which one this is, and whether another still runs.

A number alone does not tell a process: numbers are used again, and in a container they are its own. So a process is known by the
run of the machine, the space of numbers it is in, its number, and when it was started.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from penstock.ids import Milliseconds
from penstock.state.stores.local import boot_id


class Located(Protocol):
    """What tells of a process: a lease, a term."""

    @property
    def pid(self) -> int: ...

    @property
    def machine(self) -> str: ...

    @property
    def born(self) -> int: ...


def this_machine() -> str:
    """The run of this machine, and the space of process numbers."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{boot_id()} {space}".strip()


def born(pid: int) -> int:
    """When a process was started, in ticks of this run of the machine; 0 if there is none, or that cannot be known."""
    fields = _stat(pid)
    return int(fields[19]) if fields is not None and fields[0] != "Z" else 0


def has_died(process: Located) -> bool:
    """Was it a process of this host, and is it gone? False also if that cannot be known."""
    return bool(process.born) and process.machine == this_machine() and born(process.pid) != process.born


def is_this(process: Located) -> bool:
    """Is it the process that asks?"""
    return process.pid == os.getpid() and process.machine == this_machine() and process.born == born(process.pid)


def process_lives(pid: int, known_ms: Milliseconds) -> bool:
    """Does a process of this host run? One that is younger than `known_ms` only has the old one's number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    fields = _stat(pid)
    try:
        with open("/proc/uptime") as file:
            boot_s = time.time() - float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        fields = None
    if fields is None:
        return True  # no /proc here: the number must do
    started_s = boot_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] != "Z" and started_s * 1000 <= known_ms + 2000


def _stat(pid: int) -> list[str] | None:
    """What /proc says of a process, from its state on."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None
