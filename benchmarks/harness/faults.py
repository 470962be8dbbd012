"""A contender that parts of are killed while it runs: its processes, what it tells, and the pause that a kill makes."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.contenders import ContenderError, environment
from harness.places import ROOT
from harness.processes import descendants

sys.path.append(str(ROOT))

from tests.spark.standalone import Cluster as Cluster

SOON_S = 5.0
"""A kill makes its pause within this time: whatever was under way may end before."""


class Running:
    """A contender in a session of its own, which tells what it has done in a file."""

    def __init__(self, module: str, parameters: Mapping[str, Any], folder: Path, name: str, source: Path | None = None) -> None:
        self.name = name
        self.told = folder / f"{name}.told"
        self.told.touch()
        self._log = folder / f"{name}.log"
        request = folder / name / "request.json"
        request.parent.mkdir()
        request.write_text(json.dumps({**parameters, "told": str(self.told)}))
        self._answer = request.with_name("result.json")
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "harness.contenders", module, str(request)],
                cwd=folder,
                env=environment(sys.executable, folder, source),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def commits(self) -> list[float]:
        """When epochs with records were committed."""
        return [line["at"] for line in self._lines() if "at" in line]

    def said(self, pattern: str) -> bool:
        return any(re.search(pattern, line["said"]) for line in self._lines() if "said" in line)

    def _lines(self) -> list[dict[str, Any]]:
        whole, _, _ = self.told.read_text().rpartition("\n")  # the last line may be half written
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 180) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() not in (None, 0) or time.monotonic() > deadline:
                raise ContenderError(f"{self.name}: no {what}; the end of {self._log}:\n{self._tail()}")
            time.sleep(0.05)

    def wait_for_commits(self, number: int) -> None:
        self.wait_for(lambda: len(self.commits()) >= number, f"{number} commits")

    def finish(self) -> None:
        self.wait_for(lambda: self.process.poll() is not None, "end")
        if self.process.returncode != 0 or not self._answer.exists():
            raise ContenderError(f"{self.name} ended with code {self.process.returncode}:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])

    def find(self, pattern: str, below: list[int] | None = None) -> list[int]:
        """The processes of the contender (or below others) whose command line has a pattern."""
        roots = [self.process.pid] if below is None else below
        return [pid for root in roots for pid in descendants(root) if re.search(pattern, command(pid))]

    def close(self) -> None:
        """End it, and all below it."""
        for pid in descendants(self.process.pid)[::-1]:
            kill(pid)
        kill_group(self.process.pid)
        self.process.wait()


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> float:
    """SIGKILL; when that was."""
    at = time.time()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return at


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def recovered(commits: list[float], killed: float) -> float:
    """Seconds from the kill to the end of the longest pause between commits that began before it or soon after."""
    pauses = [
        (after - before, after)
        for before, after in itertools.pairwise(sorted(commits))
        if after > killed and before < killed + SOON_S
    ]
    if not pauses:
        raise ContenderError("nothing was committed after the kill")
    return max(pauses, key=lambda pause: pause[0])[1] - killed
