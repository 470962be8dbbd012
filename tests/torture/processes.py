"""The processes of one driver, found by /proc: it leads a session of its own, so that what it starts can be told from others."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    session: int
    state: str
    command: str

    @property
    def is_driver_jvm(self) -> bool:
        return "java" in self.command and "org.apache.spark.deploy.SparkSubmit" in self.command

    @property
    def is_executor_jvm(self) -> bool:
        return "java" in self.command and "CoarseGrainedExecutorBackend" in self.command

    @property
    def is_python_worker(self) -> bool:
        return "pyspark.daemon" in self.command or "penstock.executors.spark.daemon" in self.command


def look(pid: int) -> Process | None:
    """A process; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            _, _, rest = file.read().rpartition(") ")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    fields = rest.split()
    return Process(pid, int(fields[1]), int(fields[3]), fields[0], command)


def of_session(session: int) -> list[Process]:
    """The living processes of a session."""
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None and process.session == session and process.state != "Z"]


def python_workers(processes: list[Process]) -> list[Process]:
    """Spark's Python workers, without the daemons that fork them."""
    all_of_them = [process for process in processes if process.is_python_worker]
    daemons = {process.parent for process in all_of_them}
    return [process for process in all_of_them if process.pid not in daemons]


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def kill_session(session: int) -> None:
    """All at once, then whatever had just been started."""
    for _ in range(5):
        processes = of_session(session)
        for process in processes:
            kill(process.pid)
        if not processes:
            return
