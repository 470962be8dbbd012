"""What ran on Spark runs again inline, exactly."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import StreamEnvironment, snapshots
from penstock.errors import SourceError
from penstock.storage import open_storage
from tests.laws.trying import Crash
from tests.snapshots import shop
from tests.spark.test_jobs import Stopping

pytestmark = pytest.mark.spark


def program(spark: SparkSession, storage: Path, **settings: Any) -> StreamEnvironment:
    given = {"parallelism": 2, "max_records_per_epoch": 7, "keep": 100, **settings}
    return shop.build(StreamEnvironment("shop", spark=spark, storage=str(storage), **given), shop.orders(40))


def test_a_job_that_crashed_and_was_rescaled(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        program(spark, tmp_path).execute(executor=Stopping(spark, 3))
    env = program(spark, tmp_path, parallelism=3)
    assert env.execute().finished
    epochs = snapshots.replayable(open_storage(tmp_path))
    assert sum(one.records_in for one in epochs) == 40
    for one in epochs:
        replayed = snapshots.replay(tmp_path, one.epoch, env=env, step="reminders")
        assert replayed.reproduced, replayed.verdict
        assert replayed.verdict.entries > 0


def test_rows_that_spark_read(spark: SparkSession, tmp_path: Path) -> None:
    env = StreamEnvironment("rows", spark=spark, storage=str(tmp_path), parallelism=2, max_records_per_epoch=20)
    rows = env.from_dataframe(spark.range(50), name="rows")
    rows.key_by(lambda row: row["id"] % 3).sum("id", name="sums").print(name="out")
    env.execute()
    latest = snapshots.replay(tmp_path, "latest", env=env, step="sums", key=0)
    assert latest.reproduced
    assert latest.step("sums").events
    shutil.rmtree(tmp_path / "feeds")
    with pytest.raises(SourceError, match="cannot be read again") as caught:
        snapshots.replay(tmp_path, "latest", env=env)
    assert "no longer in the job's storage" in caught.value.detail
    assert "only the last batches are kept" in caught.value.hint


def test_what_a_stream_of_sparks_would_deliver_next_is_not_known(spark: SparkSession, tmp_path: Path) -> None:
    env = StreamEnvironment("ticks", spark=spark, storage=str(tmp_path), parallelism=1)
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    env.from_dataframe(ticks, name="ticks").key_by(lambda row: row["value"] % 3).sum("value", name="sums").print(name="out")
    env.execute(until_idle=True)  # before the first batch is there
    with pytest.raises(SourceError, match="would read next cannot be found out here") as caught:
        snapshots.replay(tmp_path, "next", env=env)
    assert "a Spark feed needs a job that runs on Spark" in caught.value.detail
