"""Drivers that die, hang and wake up, with others standing by; and rescaling while running. Output is exact each time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.laws.trying import check_exact, manifests
from tests.spark.launching import ROOT, launch
from tests.torture.processes import kill_session

pytestmark = pytest.mark.spark


class Driver:
    """`programs/driven.py`, in a session of its own."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.out = folder / f"{name}.out"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
        }
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "programs" / "driven.py"), str(folder), *arguments],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.out.read_text()

    def wait_for(self, pattern: str, timeout: float = 90) -> re.Match[str]:
        deadline = time.monotonic() + timeout
        while (match := re.search(pattern, self.said())) is None:
            assert time.monotonic() < deadline, self.said()[-3000:]
            assert self.process.poll() is None or re.search(pattern, self.said()), self.said()[-3000:]
            time.sleep(0.02)
        return match

    def ended(self) -> int:
        return self.process.wait(90)

    def close(self) -> None:
        kill_session(self.process.pid)
        self.process.wait()


def test_killed_then_stopped_then_woken(tmp_path: Path) -> None:
    drivers: list[Driver] = []

    def start(name: str, *arguments: str) -> Driver:
        drivers.append(Driver(tmp_path, name, *arguments))
        return drivers[-1]

    try:
        first = start("first", "drive", "spark")
        first.wait_for("epoch 4")
        second = start("second", "standby", "spark")
        second.wait_for("stands by: process")
        third = start("third", "standby", "inline")
        third.wait_for("stands by: process")
        os.kill(first.process.pid, signal.SIGKILL)
        kill_session(first.process.pid)
        second_or_third = [second, third]
        deadline = time.monotonic() + 60
        while not (took := [one for one in second_or_third if "has taken over" in one.said()]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (driving,) = took
        (waiting,) = [one for one in second_or_third if one is not driving]
        driving.wait_for(r"epoch \d+")
        os.kill(driving.process.pid, signal.SIGSTOP)
        waiting.wait_for("has taken over")
        waiting.wait_for(r"epoch \d+")
        os.kill(driving.process.pid, signal.SIGCONT)
        driving.wait_for("another driver has taken the job over")
        assert waiting.ended() == 0
        assert driving.ended() == 0
        assert "stands by no more: the job is finished" in driving.said()
        print(*re.findall("(?:takes|has taken) over.*", second.said() + third.said()), sep="\n")
    finally:
        for driver in drivers:
            driver.close()
    assert {manifest.term for manifest in manifests(tmp_path)} <= {2, 3}
    check_exact(tmp_path)


def test_rescaled_while_it_runs(tmp_path: Path) -> None:
    for point in ("rescale:stopped", "rescale:taken-over"):
        launch("driven", tmp_path, str(tmp_path), "drive", "spark", "4", points=f"{point}=kill", killed=True)
    told = launch("driven", tmp_path, str(tmp_path), "drive", "spark", "4", "1")
    assert "rescaled from 2 to 4 partitions" in told
    assert "rescaled from 4 to 1 partitions" in told
    assert "finished=True" in told
    print(*re.findall("rescaled.*", told), sep="\n")
    check_exact(tmp_path)
