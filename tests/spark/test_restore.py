"""A savepoint of a job on real Spark, restored at other parallelisms, by a process that is killed meanwhile.

Each way, what was published before the savepoint and after the restore is what the undisturbed job publishes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Job
from penstock.connectors.files.reading.published import read_rows
from penstock.snapshots.edit.regrouping import regroup
from tests.spark.launching import launch
from tests.spark.programs import restored as job

pytestmark = pytest.mark.spark


def output(*folders: Path) -> Counter[tuple[str, str]]:
    return Counter((row["kind"], row["row"]) for folder in folders for row in read_rows(folder / "out"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    for part in range(3):
        job.write_part(folder / "files", part)
    job.program(folder, folder / "files", executor="inline").execute()
    return output(folder)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that has read a third, with a savepoint; then the other files come."""
    folder = tmp_path_factory.mktemp("first")
    job.write_part(folder / "files", 0)
    result = job.program(folder, folder / "files", spark=spark).execute()
    assert (result.stopped, result.records_in) == (True, job.VISITS // 3)
    saved = Job(folder / "storage").savepoint(folder / "savepoint")
    assert {state.info.kind for state in saved.states if state.rows} >= {"value", "map", "list", "timers", "slices"}
    for part in (1, 2):
        job.write_part(folder / "files", part)
    return folder


@pytest.mark.parametrize(("parallelism", "groups"), [(1, 128), (2, 128), (4, 128), (3, 256)])
def test_restored(
    spark: SparkSession, first: Path, undisturbed: Counter[tuple[str, str]], tmp_path: Path, parallelism: int, groups: int
) -> None:
    source = str(first / "savepoint")
    if groups != 128:
        source = regroup(source, groups, str(tmp_path / "regrouped")).uri
    fork = job.program(tmp_path, first / "files", spark=spark, parallelism=parallelism, max_parallelism=groups)
    result = fork.execute(restore_from=source)
    assert result.records_in == job.VISITS * 2 // 3 + 1
    assert {kind for kind, _ in output(first)} == {kind for kind, _ in output(tmp_path)} == {kind for kind, _ in undisturbed}
    assert output(first, tmp_path) == undisturbed


def test_killed_while_restoring(first: Path, undisturbed: Counter[tuple[str, str]], tmp_path: Path) -> None:
    arguments = [str(tmp_path), str(first / "files"), str(first / "savepoint")]
    for point in ("restore:half-copied", "restore:copied"):
        launch("restored", tmp_path, *arguments, points=f"{point}=kill", killed=True)
    told = launch("restored", tmp_path, *arguments, points="task:frame=kill")
    assert f"records={job.VISITS * 2 // 3 + 1}" in told
    assert output(first, tmp_path) == undisturbed
    imported = (tmp_path / "storage" / "state" / "imported").iterdir()
    assert len([folder for folder in imported if any(folder.glob("*.parquet"))]) == 1
