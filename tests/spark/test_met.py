"""Streams that meet, on real Spark: to the end; killed and resumed; from a savepoint, with another parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Job
from penstock.connectors.files.reading.published import read_rows
from tests.laws.broadcast_programs import expected_points
from tests.spark.launching import launch
from tests.spark.programs import met as job

pytestmark = pytest.mark.spark


def found(what: str, *folders: Path) -> list[Any]:
    return sorted((row["row"] for folder in folders for row in read_rows(folder / what)), key=repr)


def is_whole(*folders: Path) -> None:
    assert found("pairs", *folders) == sorted(job.expected_pairs(), key=repr)
    assert found("points", *folders) == sorted((list(row) for row in expected_points(job.SHOP)), key=repr)


def test_to_the_end(spark: SparkSession, tmp_path: Path) -> None:
    assert job.program(tmp_path, spark=spark).execute().finished
    is_whole(tmp_path)


def test_killed_and_from_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    first, fork = tmp_path / "first", tmp_path / "fork"
    first.mkdir()
    launch("met", first, str(first), points="epoch:ran=kill@5", killed=True)
    assert 0 < len(found("points", first)) < len(expected_points(job.SHOP))
    saved = Job(first / "storage").savepoint(tmp_path / "savepoint")
    (rules,) = [state for state in saved.states if state.info.name == "rules"]
    assert rules.info.scope == "broadcast"
    assert 0 < rules.rows <= 3, "it is saved once"

    published = {what: found(what, first) for what in ("pairs", "points")}
    assert job.program(fork, spark=spark, parallelism=3).execute(restore_from=str(tmp_path / "savepoint")).finished
    assert found("pairs", fork) + published["pairs"] != []
    is_whole(first, fork)

    assert job.program(first, spark=spark).execute().finished
    is_whole(first)
