"""An upgrade on real Spark: stopped, killed in the middle of its migration, and gone on with at another parallelism."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.connectors.files.reading.published import read_rows
from penstock.jobs.terms import find_head
from penstock.storage import open_storage
from tests.spark.launching import launch
from tests.spark.programs import upgraded as job

pytestmark = pytest.mark.spark


def expected() -> Counter[tuple[int, ...]]:
    """How many records each key has, and their numbers."""
    found: Counter[tuple[int, ...]] = Counter()
    for key, count in Counter(job.row(n)["key"] for n in range(job.COUNT)).items():
        found.update((key, number) for number in range(1, count + 1))
    return found


def stop_after(epochs: int) -> Any:
    def listener(record: Any) -> None:
        nonlocal epochs
        epochs -= 1
        if epochs == 0:
            signal.raise_signal(signal.SIGINT)

    return listener


def test_an_upgrade_survives_being_killed(tmp_path: Path, spark: SparkSession) -> None:
    assert job.program(tmp_path, 1, spark=spark).execute(listener=stop_after(4)).stopped
    before = find_head(open_storage(tmp_path / "storage")).manifest
    launch("upgraded", tmp_path, str(tmp_path), "2", points="migrate:written=kill", killed=True)
    assert find_head(open_storage(tmp_path / "storage")).manifest == before
    assert list((tmp_path / "storage" / "state").glob("**/*-m*.delta"))
    assert job.program(tmp_path, 2, spark=spark, parallelism=3).execute().finished
    rows = list(read_rows(tmp_path / "out"))
    assert Counter((row["key"], row["count"]) for row in rows) == expected()
    last = {row["key"]: row for row in sorted(rows, key=lambda row: row["count"])}
    totals: Counter[int] = Counter()
    for n in range(job.COUNT):
        totals[job.row(n)["key"]] += n
    assert {key: row["total"] for key, row in last.items()} == totals
    assert {key: row["sum"] for key, row in last.items()} == totals
    halves = Counter((job.row(n)["key"], n % 2) for n in range(job.COUNT))
    most: Counter[int] = Counter()
    for row in rows:
        most[row["key"]] = max(most[row["key"]], row["half"])
    assert most == {key: max(halves[key, 0], halves[key, 1]) for key in most}
