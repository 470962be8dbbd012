"""Work beside a job pauses where no processor is free."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from penstock.snapshots.savepoint import throttle
from penstock.snapshots.savepoint.throttle import NICENESS, PAUSES, Throttle, idle_s, is_crowded, lower_priority


@pytest.mark.parametrize(
    ("idle", "own", "crowded"),
    [
        (0.0, 0.1, True),  # a full machine
        (0.0, 1.0, False),  # only this process has the processor
        (1.0, 0.1, False),  # one is idle
        (0.5, 0.1, True),
        (12.0, 1.0, False),
    ],
)
def test_a_machine_is_crowded_when_no_processor_is_left(idle: float, own: float, crowded: bool) -> None:
    assert is_crowded(2 * idle, 2 * own, 2.0) is crowded


def test_pauses_follow_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(throttle, "idle_s", lambda: 0.0)
    gives_way = Throttle()
    began = time.process_time()
    while time.process_time() - began < 0.02:
        pass
    gives_way()
    assert slept[0] >= PAUSES * 0.02
    monkeypatch.setattr(throttle, "LOOK_S", 0.0)
    monkeypatch.setattr(throttle, "is_crowded", lambda *_: False)
    gives_way()
    assert len(slept) == 1


def test_the_idle_time_of_this_machine_grows() -> None:
    before = idle_s()
    deadline = time.monotonic() + 120
    while idle_s() == before and sys.platform == "linux":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_gets_the_lowest_priority() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        lower_priority(process.pid)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == NICENESS
    finally:
        process.kill()
        process.communicate()
    lower_priority(process.pid)  # of one that is gone: nothing
