"""Drivers that die, hang and wake up, with others standing by; and rescaling while running. Output is exact each time."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.laws.trying import check_exact, manifests
from tests.spark.launching import Driver, launch
from tests.torture.processes import kill_session

pytestmark = pytest.mark.spark


def test_killed_then_stopped_then_woken(tmp_path: Path) -> None:
    drivers: list[Driver] = []

    def start(name: str, *arguments: str) -> Driver:
        drivers.append(Driver(tmp_path, name, "driven", *arguments))
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
        deadline = time.monotonic() + 150
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
        assert "no longer stands by: the job is finished" in driving.said()
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
