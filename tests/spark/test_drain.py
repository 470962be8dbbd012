"""Drained on Spark: the same law, with epochs that run ahead of their commits, and with input that Spark reads."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import FileSink, SessionWindows, StreamEnvironment, Watermarks, avg, count, read_output
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import DrainedError
from tests.epochs.starting.drained_program import bounded, drain, events, output, put

pytestmark = pytest.mark.spark

SCHEMA = "user string, time long, amount double"


def test_files(spark: SparkSession, tmp_path: Path) -> None:
    expected = bounded(tmp_path / "bounded", events())
    put(tmp_path, events(), "0")
    assert drain(tmp_path, executor="spark", spark=spark).drained
    assert output(tmp_path) == expected


def test_a_feed(spark: SparkSession, tmp_path: Path) -> None:
    """It is idle when Spark has delivered what there is, not before its first batch."""
    for number in range(3):
        put(tmp_path, events()[number * 20 : number * 20 + 20], str(number))
        os.utime(tmp_path / "in" / f"{number}.json", (1_000 + number, 1_000 + number))  # Spark reads the oldest first

    def program(name: str, frame: Any, **settings: Any) -> StreamEnvironment:
        env = StreamEnvironment(name, spark=spark, parallelism=2, storage=str(tmp_path / name), **settings)
        marks: Watermarks[Any] = Watermarks.bounded(seconds=60, timestamp="time")
        users = env.from_dataframe(frame, watermarks=marks, name="events").key_by("user")
        sessions = users.window(SessionWindows(seconds=10)).aggregate(count(), avg("amount"), name="sessions")
        sessions.sink_to(FileSink(str(tmp_path / f"{name}-out"), format="json"), name="out")
        return env

    def rows(name: str) -> Counter[str]:
        return Counter(json.dumps(row, sort_keys=True) for row in read_rows(tmp_path / f"{name}-out"))

    inbox = str(tmp_path / "in")
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(inbox)
    result = program("feed", stream, until_idle=True, drain=True).execute()
    assert (result.drained, result.records_in) == (True, 60)
    assert program("frame", spark.read.schema(SCHEMA).json(inbox)).execute().finished
    assert rows("feed") == rows("frame")
    frame = read_output(tmp_path / "feed-out").to_spark(spark)
    assert frame.groupBy().sum("count").first()[0] == 60
    assert sum(json.loads(row)["count"] for row in rows("feed").elements()) == 60
    with pytest.raises(DrainedError):
        program("feed", stream, until_idle=True, drain=True).execute()
