"""Savepoints of jobs on real Spark: while they run, when they are stopped for one, and after their driver was killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock import Job, StreamEnvironment
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import ConfigError, PenstockError
from penstock.snapshots.savepoint.format import SavepointInfo
from tests.snapshots.saving import contents
from tests.spark.launching import launch
from tests.spark.programs import saved as job

pytestmark = pytest.mark.spark


def counted(info: SavepointInfo) -> int:
    """How many numbers the savepoint has counted; that is where the source is."""
    ((_, entries),) = [(names, entries) for names, entries in contents(info).items() if entries]
    number = sum(msgspec.msgpack.decode(value) for value in entries.values())
    assert number == info.sources["numbers"].position["next"]
    return int(number)


def published(folder: Path) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in read_rows(folder / "out"))


@pytest.fixture
def running(spark: SparkSession, tmp_path: Path) -> Iterator[StreamEnvironment]:
    env = job.program(tmp_path, rate=3_000, count=None, spark=spark)
    thread = threading.Thread(target=env.execute)
    thread.start()
    try:
        yield env
    finally:
        with contextlib.suppress(PenstockError):  # it is stopped already
            env.job.stop()
        thread.join(60)


def handle(env: StreamEnvironment) -> Job:
    for _ in range(600):
        try:
            found = env.job
            if found.savepoint().rows:
                return found
        except ConfigError:
            pass
        time.sleep(0.1)
    raise AssertionError("the job did not start")


def test_beside_the_epochs_and_at_the_end(running: StreamEnvironment, tmp_path: Path) -> None:
    found = handle(running)
    beside = [found.savepoint() for _ in range(3)]
    assert found.running
    stopped = found.stop(savepoint=tmp_path / "last")
    assert stopped.savepoint is not None
    numbers = [counted(info) for info in (*beside, stopped.savepoint)]
    assert numbers == sorted(numbers)
    assert numbers[-1] > numbers[0]
    # All output of the last epoch is published, and nothing after it.
    assert (stopped.savepoint.uri, stopped.savepoint.epoch) == (f"file://{tmp_path}/last", stopped.epoch)
    assert published(tmp_path) == sorted(job.row(number) for number in range(numbers[-1]))


def test_of_a_job_whose_driver_was_killed(tmp_path: Path) -> None:
    """It died between a manifest and its done mark: the savepoint is of the epoch before, and a fork goes on from there."""
    launch("saved", tmp_path, str(tmp_path), points="done:before=kill@4", killed=True)
    found = Job(tmp_path / "storage")
    assert found.running is False
    info = found.savepoint(tmp_path / "savepoint")
    number = counted(info)
    assert 0 < number < job.COUNT
    first = published(tmp_path)
    assert set(first) >= {job.row(n) for n in range(number)}
    fork = job.program(tmp_path / "fork", executor="inline", parallelism=3)
    assert fork.execute(restore_from=info.uri).finished
    assert published(tmp_path / "fork") == sorted(job.row(n) for n in range(number, job.COUNT))
    assert published(tmp_path) == first
