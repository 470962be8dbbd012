"""A job under torture: three processes of one program, each of which drives it or stands by, and looks at it from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.jobs.lease import read_lease
from penstock.jobs.listing import epochs_in
from penstock.storage import Storage
from tests.torture.jobs.tapped import Tap
from tests.torture.oracle import Job, Rows, difference
from tests.torture.processes import Process, kill, kill_session, of_session

ROOT = Path(__file__).resolve().parents[3]
DRIVER = "PENSTOCK_TORTURE_DRIVER"
"""Which process an executor works for: Penstock hands its own environment on to executors."""


@dataclass(slots=True)
class Member:
    """A process that drives or stands by. It leads a session of its own, its JVM included."""

    name: str
    process: subprocess.Popen[bytes]
    said: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def told(self, characters: int = 3000) -> str:
        return self.said.read_text(errors="replace")[-characters:]

    def send(self, number: int, *, jvm: bool) -> None:
        """To the process alone, or with its JVM and all else that it has started."""
        for one in of_session(self.pid) if jvm else [self]:
            kill(one.pid, number)

    def end(self) -> None:
        kill_session(self.pid)
        self.process.wait()


@dataclass(slots=True)
class TorturedJob:
    """`storage`, `out`: as the program is told. `looked_at`: the same storage, without faults. `fetch`: a folder with its output,
    copied there if need be, so that it can be read without Penstock."""

    name: str
    program: Job
    folder: Path
    storage: str
    out: str
    looked_at: Storage
    fetch: Callable[[], Path]
    members: list[Member] = field(default_factory=list)

    @property
    def tap(self) -> Path:
        return self.folder / f"{self.name}.tap"

    def open_tap(self, events: int, *, last: bool = False) -> None:
        Tap(events, last).write(self.tap)

    def start(self, members: int, master: str, lease_s: float, environment: Mapping[str, str]) -> None:
        self.open_tap(0)
        command = [sys.executable, str(ROOT / "tests" / "torture" / "jobs" / f"{self.program.name}.py")]
        command += ["--storage", self.storage, "--out", self.out, "--input", str(self.folder / "input"), "--tap", str(self.tap)]
        command += ["--size", str(self.program.size), "--lease", str(lease_s), "--master", master, "--parallelism", "2"]
        for number in range(members):
            name = f"{self.name}-{number}"
            said = self.folder / f"{name}.log"
            with open(said, "wb") as file:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **environment, DRIVER: name},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            self.members.append(Member(name, process, said))

    def newest_epoch(self) -> int:
        return max(epochs_in(self.looked_at).manifests, default=0)

    def driver(self) -> Member | None:
        """The process that the lease names, if it is one of ours."""
        lease = read_lease(self.looked_at)
        return next((one for one in self.members if lease is not None and one.pid == lease.pid), None)

    def standbys(self) -> list[Member]:
        driver = self.driver()
        return [one for one in self.members if one is not driver and one.process.poll() is None]

    def executors(self, workers: list[int]) -> list[Process]:
        """The executors of its driver, among all of these workers' sessions."""
        driver = self.driver()
        found = [one for session in workers for one in of_session(session) if one.is_executor_jvm]
        return [one for one in found if driver is not None and _works_for(one.pid) == driver.name]

    def take_overs(self) -> int:
        return sum(one.said.read_text(errors="replace").count("has taken over") for one in self.members)

    def judge(self, events: int) -> tuple[Rows, Rows]:
        """(lost, duplicated)."""
        return difference(replace(self.program, size=events), str(self.folder / "input"), str(self.fetch()))

    def end(self) -> None:
        for member in self.members:
            member.send(signal.SIGCONT, jvm=True)
            member.end()


def _works_for(pid: int) -> str:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    marked = f"{DRIVER}=".encode()
    return next((one.removeprefix(marked).decode() for one in variables if one.startswith(marked)), "")
