"""What this process and everything below it hold: memory, open files, threads, from /proc; and files in a folder.

Spark watches every Python task with a thread of its own (`Worker Monitor for …`), which looks every two seconds whether the task
is over: there are as many as tasks began in the last two seconds. They are counted apart.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

_KINDS = {"java": "jvm"}
MONITORS = "Worker Monitor"
"""What the kernel keeps of the name of such a thread."""


def descendants(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children.get(process, [])
    return found


def pools(process: int) -> Counter[str]:
    """How many threads a process has, by name without numbers; the kernel keeps 15 characters of a name."""
    found: Counter[str] = Counter()
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            name = Path(f"/proc/{process}/task/{thread}/comm").read_text().strip()
        except OSError:
            continue  # it has ended meanwhile
        found[re.sub(r"[-\s#]*\d[-\d]*", "#", name)] += 1
    return found


def usage(root: int) -> dict[str, dict[str, Any]]:
    """For driver, jvm and workers (the Python processes below the JVM): processes, rss (bytes), open files, threads.

    Threads of the JVM are also counted by name (`pools`), and its monitors of tasks are not in `threads`, but in `monitors`.
    """
    used: dict[str, dict[str, Any]] = {}
    for process in descendants(root):
        try:
            name = Path(f"/proc/{process}/comm").read_text().strip()
            status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
            files = len(os.listdir(f"/proc/{process}/fd"))
            rss = int(status["VmRSS"].split()[0]) * 1024
            threads = pools(process) if name in _KINDS else Counter({name: int(status["Threads"])})
        except (OSError, KeyError):
            continue  # it has ended meanwhile
        kind = "driver" if process == root else _KINDS.get(name, "workers")
        sums = used.setdefault(kind, {"processes": 0, "rss": 0, "open_files": 0, "threads": 0})
        monitors = threads.pop(MONITORS, 0)
        for what, value in (("processes", 1), ("rss", rss), ("open_files", files), ("threads", threads.total())):
            sums[what] += value
        if name in _KINDS:
            sums["monitors"], sums["pools"] = monitors, dict(threads)
    return used


@contextmanager
def peak_memory(every: float = 0.5) -> Iterator[Callable[[], int]]:
    """How much this process and those below it hold together at most while this lasts, in bytes, by samples."""
    most, stopped = 0, threading.Event()

    def sample() -> None:
        nonlocal most
        while True:
            most = max(most, sum(kind["rss"] for kind in usage(os.getpid()).values()))
            if stopped.wait(every):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: most
    finally:
        stopped.set()
        thread.join()


class Sampler:
    """Samples this process and those below it in a thread of its own, `every` so many seconds; never, if None."""

    def __init__(self, folder: Path, *, every: float | None) -> None:
        self._folder = folder
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.mark = 0
        """Goes into each sample: how far the job is."""
        self.samples: list[dict[str, Any]] = []

    def __enter__(self) -> Sampler:
        if self._every is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        if self._every is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            files = sum(len(names) for _, _, names in os.walk(self._folder))
            self.samples.append({"mark": self.mark, "at": time.time(), "files": files, **usage(os.getpid())})
