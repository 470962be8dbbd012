"""A loop on real Spark: to its end; killed with records in the loop, and resumed; from a savepoint, with another parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Job
from penstock.connectors.files.reading.published import read_rows
from penstock.jobs.manifest import Manifest
from penstock.jobs.terms import find_head
from penstock.storage import open_storage
from tests.spark.launching import launch
from tests.spark.programs import looped as job

pytestmark = pytest.mark.spark


def found(*folders: Path) -> list[int]:
    """The nodes, each as often as it was found."""
    return sorted(row["node"] for folder in folders for row in read_rows(folder / "out"))


def head_of(folder: Path) -> Manifest:
    manifest = find_head(open_storage(str(folder / "storage"))).manifest
    assert manifest is not None
    return manifest


def test_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    assert job.program(tmp_path, spark=spark).execute().finished
    assert found(tmp_path) == list(job.REACHABLE)
    assert head_of(tmp_path).loops["spread"].records == 0


def test_killed_with_records_in_the_loop_and_from_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    first, fork = tmp_path / "first", tmp_path / "fork"
    first.mkdir()
    launch("looped", first, str(first), points="epoch:ran=kill@5", killed=True)
    assert head_of(first).loops["spread"].records > 0
    before = found(first)
    assert 0 < len(before) < len(job.REACHABLE)
    saved = Job(first / "storage").savepoint(tmp_path / "savepoint")
    assert sum(state.rows for state in saved.states if state.info.name == "in_flight") > 0

    assert job.program(fork, spark=spark, parallelism=3).execute(restore_from=str(tmp_path / "savepoint")).finished
    assert sorted(before + found(fork)) == list(job.REACHABLE)

    assert job.program(first, spark=spark).execute().finished
    assert found(first) == list(job.REACHABLE)
