"""Async steps and lookup joins on real Spark: straight; workers and drivers killed with calls in flight; a savepoint restored at
another parallelism. What is published is the same each time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Job
from penstock.connectors.files.reading.published import read_rows
from tests.spark.launching import launch
from tests.spark.programs import asked as job

pytestmark = pytest.mark.spark


def output(*folders: Path) -> Counter[tuple[str, str]]:
    return Counter((row["kind"], row["row"]) for folder in folders for row in read_rows(folder / "out"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    for part in range(3):
        job.write_part(folder / "files", part)
    job.program(folder, folder / "files", executor="inline").execute()
    found = output(folder)
    assert Counter(kind for kind, _ in found.elements())["loose"] == job.NUMBERS
    return found


def test_restored_at_another_parallelism(spark: SparkSession, undisturbed: Counter[tuple[str, str]], tmp_path: Path) -> None:
    """A third straight, the rest from a savepoint."""
    first, fork = tmp_path / "first", tmp_path / "fork"
    first.mkdir()
    fork.mkdir()
    job.write_part(first / "files", 0)
    result = job.program(first, first / "files", spark=spark).execute()
    counters = result.counters["squares"]
    assert counters["calls"] == job.NUMBERS // 3
    assert counters["retries"] == len([n for n in range(job.NUMBERS // 3) if n % 7 == 0])
    Job(first / "storage").savepoint(first / "savepoint")
    for part in (1, 2):
        job.write_part(first / "files", part)
    job.program(fork, first / "files", spark=spark, parallelism=3).execute(restore_from=str(first / "savepoint"))
    assert output(first, fork) == undisturbed


def test_killed_with_calls_in_flight(undisturbed: Counter[tuple[str, str]], tmp_path: Path) -> None:
    """First the driver goes, in the middle of a commit; the next one loses a worker that waits for answers."""
    for part in range(3):
        job.write_part(tmp_path / "files", part)
    arguments = [str(tmp_path), str(tmp_path / "files")]
    launch("asked", tmp_path, *arguments, points="manifest:after=kill@2", killed=True)
    launch("asked", tmp_path, *arguments, points="async:call=kill@40")
    assert output(tmp_path) == undisturbed
