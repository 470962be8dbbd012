"""A standby on Spark is warm: its session runs, and its Python workers have imported the program, before it is needed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.executors.spark.executor import SparkExecutor
from penstock.jobs.terms import open_job
from penstock.storage import open_storage
from tests.laws.trying import check_exact
from tests.spark.launching import Driver
from tests.torture.processes import kill_session, of_session, python_workers

pytestmark = pytest.mark.spark


def _wait_until(condition: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline, told()[-3000:]
        time.sleep(0.05)


def test_it_goes_on_with_the_session_and_the_workers_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    drivers = [Driver(tmp_path, "first", "marking", "drive")]
    try:
        drivers[0].wait_for("epoch 4")
        standby = Driver(tmp_path, "standby", "marking", "standby")
        drivers.append(standby)
        standby.wait_for("stands by: process")

        def imported() -> set[int]:
            """Workers of the standby that have imported the program."""
            workers = {worker.pid for worker in python_workers(of_session(standby.process.pid))}
            return workers & {int(mark.name) for mark in marks.iterdir()}

        _wait_until(lambda: len(imported()) == 2, standby.said)
        assert "takes over" not in standby.said(), "it was warm before it was needed"
        warm = imported()
        java = [process.pid for process in of_session(standby.process.pid) if process.is_driver_jvm]
        os.kill(drivers[0].process.pid, signal.SIGKILL)
        kill_session(drivers[0].process.pid)
        standby.wait_for(r"has taken over")
        standby.wait_for(r"epoch \d+")
        now = of_session(standby.process.pid)
        assert [process.pid for process in now if process.is_driver_jvm] == java
        assert warm <= {worker.pid for worker in python_workers(now)}
        assert standby.ended() == 0
        assert "finished=True sql=False" in standby.said(), "no SQL session is made for a program that needs none"
    finally:
        for driver in drivers:
            driver.close()
    check_exact(tmp_path)


def test_a_refused_start_leaves_no_session_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is begun before the job is looked at: the storage holds another one."""
    monkeypatch.setenv("MARKS", str(tmp_path))
    open_job(open_storage(tmp_path / "storage"), "letters", None, otherwise=128)
    driver = Driver(tmp_path, "refused", "marking", "drive")
    try:
        assert driver.ended() != 0
        assert "holds the job 'letters', not 'numbers'" in driver.said()
        assert not [process for process in of_session(driver.process.pid) if process.is_driver_jvm]
    finally:
        driver.close()


def test_an_executor_that_is_used_again_is_watched_again(spark: SparkSession) -> None:
    """A standby closes it when a take-over has failed, and stands by again."""

    def watches() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "penstock-spark-watch"}

    executor = SparkExecutor("again", None, {}, spark)
    executor.prepare(2, lambda: None)
    executor.context()
    executor.close()
    before = watches()
    executor.prepare(2, lambda: None)
    executor.context()
    assert watches() - before
    executor.close()
