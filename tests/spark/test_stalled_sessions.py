"""A session that was given to the environment: it is watched as well, but cannot be started anew. And what tasks raise."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectionSource, FileSink, StreamEnvironment
from penstock.connectors.files.reading.published import read_rows
from penstock.diagnosis.failures import nature_of
from penstock.errors import EpochFailedError, ExecutorLostError, StorageError
from penstock.executors.spark.engine import SparkEngine
from penstock.executors.spark.executor import SparkExecutor
from penstock.executors.spark.watch import Sight

pytestmark = pytest.mark.spark


def slowly(folder: Path, spark: Any) -> StreamEnvironment:
    """A job with a task that takes three times as long as a stalled job is waited for."""

    def slow(value: int) -> int:
        time.sleep(3.0)
        return value

    env = StreamEnvironment("slowly", spark=spark, parallelism=2, stall_after=1.0, storage=str(folder / "job"))
    env.from_source(CollectionSource([1]), name="one").map(slow).sink_to(FileSink(str(folder / "out")), name="out")
    return env


def test_a_long_task_is_not_a_stall(tmp_path: Path, spark: Any) -> None:
    result = slowly(tmp_path, spark).execute()
    assert (result.finished, result.restarts) == (True, 0)
    assert [row["value"] for row in read_rows(tmp_path / "out")] == [1]


def test_a_given_session_that_stalls_fails_the_job_and_is_left_to_its_owner(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkEngine, "look", lambda engine: Sight(0, 0, lost=True))
    with pytest.raises(ExecutorLostError, match="the Spark session that was given to the environment is gone") as raised:
        slowly(tmp_path, spark).execute()
    assert "it has had no executor for" in raised.value.detail
    assert "make a new session" in raised.value.hint
    assert spark.sparkContext.parallelize([1, 2], 2).sum() == 3
    assert not spark.sparkContext.getJobTags()


def unanswered(number: int) -> int:
    raise StorageError("the storage gave no answer", hint="try again")


def test_a_storage_that_fails_in_a_worker_fails_the_epoch_and_not_the_job(spark: Any) -> None:
    executor = SparkExecutor("one", None, {}, spark)
    job = spark.sparkContext.parallelize([1], 1).map(unanswered)
    said = pytest.raises(
        EpochFailedError, match=r"a Spark job failed: penstock\.errors\.StorageError: the storage gave no answer"
    )
    with said as raised, executor._on_spark("a job", spark.sparkContext):
        job.collect()
    assert "in unanswered" in raised.value.detail
    assert nature_of(raised.value) == "machine"
