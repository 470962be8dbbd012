"""Work beside a job that needs the processors more.

Priority is not enough: the tasks of an epoch wait for one another, so delaying one of them delays all. Where no processor is
free, a worker therefore pauses after each piece of work.
"""

from __future__ import annotations

import contextlib
import os
import time

NICENESS = 19
PAUSES = 5
"""Sleep this multiple of the time just worked."""

LOOK_S = 0.25
FREE = 0.75
"""A processor is free if others leave at least this share of it idle."""


def lower_priority(process: int) -> None:
    """Give every other process precedence over this one."""
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, process, NICENESS)
    with contextlib.suppress(OSError):  # Linux: also for its session, if that is the process alone
        if os.getsid(process) == process:
            with open(f"/proc/{process}/autogroup", "w") as file:
                file.write(str(NICENESS))


class Throttle:
    """To be called after each piece of work: pauses, unless a processor is free."""

    def __init__(self) -> None:
        self._crowded = True
        self._since, self._used, self._idle = time.monotonic(), time.process_time(), idle_s()
        self._piece = self._used

    def __call__(self) -> None:
        now, used = time.monotonic(), time.process_time()
        if now - self._since >= LOOK_S:
            idle = idle_s()
            self._crowded = is_crowded(idle - self._idle, used - self._used, now - self._since)
            self._since, self._used, self._idle = now, used, idle
        if self._crowded:
            time.sleep(PAUSES * (used - self._piece))
        self._piece = time.process_time()


def is_crowded(idle_s: float, own_s: float, seconds: float) -> bool:
    """Do others use nearly all processors? `idle_s`: idle time of all processors; `own_s`: time that this process used. Pure."""
    return idle_s + own_s < FREE * seconds


def idle_s() -> float:
    """How long the processors of this machine have been idle, all together; 0 where that is not known."""
    try:
        with open("/proc/stat") as file:
            fields = file.readline().split()
        return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
