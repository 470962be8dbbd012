"""Spark stops working for a job and does not say so: the job starts it anew, or ends, and by itself.

Drivers are waited for, so none of these tests can pass while one hangs.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Job
from tests.laws.trying import check_exact
from tests.spark.launching import Driver
from tests.spark.standalone import Cluster
from tests.torture.processes import of_session

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOON, NEVER = "6", "600"
"""Seconds until a stalled job is given up."""


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.close()


def start(drivers: list[Driver], folder: Path, *arguments: str) -> Driver:
    drivers.append(Driver(folder, f"driver-{len(drivers)}", "stalled", *arguments))
    return drivers[-1]


def test_a_job_outlives_its_master_and_stops_while_there_is_none_to_work(tmp_path: Path, drivers: list[Driver]) -> None:
    with Cluster(tmp_path) as cluster:
        first = start(drivers, tmp_path, cluster.url, SOON)
        first.wait_for("epoch 4")
        cluster.kill_master()
        cluster.start_master()
        first.wait_for("the job of an epoch was given up: it has had no executor for")
        epochs = [int(epoch) for epoch in re.findall(r"^epoch (\d+)$", first.said(), re.MULTILINE)]
        first.wait_for(rf"epoch {epochs[-1] + 3}\n")  # it goes on by itself
        first.process.send_signal(signal.SIGTERM)
        assert first.ended() == 0, first.said()

        second = start(drivers, tmp_path, cluster.url, NEVER)
        second.wait_for("epoch ")
        cluster.kill_master()
        cluster.start_master()
        deadline = time.monotonic() + 120
        while any(process.is_executor_jvm for session in cluster.sessions for process in of_session(session)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        second.process.send_signal(signal.SIGTERM)
        assert second.ended() == 0, second.said()
        assert "nothing is committed after epoch" in second.said()
        assert "stopped=True" in second.said()
        assert "stopped by SIGTERM after epoch" in second.said()

        third = start(drivers, tmp_path, cluster.url, NEVER, "fast")
        assert third.ended() == 0, third.said()
    check_exact(tmp_path)


def test_a_jvm_that_hangs_is_replaced(tmp_path: Path, drivers: list[Driver]) -> None:
    driver = start(drivers, tmp_path, "local[2,4]", "3", "freeze-epoch")
    driver.wait_for("was given up: its JVM has not answered for")
    assert driver.ended() == 0, driver.said()
    assert "finished=True" in driver.said()
    check_exact(tmp_path)


def test_a_job_is_stopped_by_request_while_its_jvm_hangs(tmp_path: Path, drivers: list[Driver]) -> None:
    driver = start(drivers, tmp_path, "local[2,4]", NEVER, "freeze-epoch")
    driver.wait_for("frozen")
    stopped = Job(tmp_path / "storage").stop(timeout=120)
    assert "what came after it was discarded: asked to stop by penstock stop" in stopped.message
    assert driver.ended() == 0, driver.said()
    assert "stopped=True restarts=0" in driver.said()


def test_closing_does_not_wait_for_a_jvm_that_hangs(tmp_path: Path, drivers: list[Driver]) -> None:
    driver = start(drivers, tmp_path, "local[2,4]", NEVER, "freeze-end")
    driver.wait_for("frozen")
    assert driver.ended() == 0, driver.said()
    assert "the functions in Spark's workers did not end in" in driver.said()
    assert "finished=True" in driver.said()
    assert not of_session(driver.process.pid), "the JVM was left behind"
