"""Expressions on Spark: the rows, values and dead letters that a loop in Python gives, from Parquet and from a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock import CollectSink, FileSource, StreamEnvironment, TumblingWindows, Watermarks, col, count, when
from penstock.aggregates import sum as total
from penstock.errors import PlanError

pytestmark = pytest.mark.spark

ROWS: list[dict[str, Any]] = [
    {"user": None if n % 7 == 0 else f"u{n % 5}", "price": n / 4, "n": n % 3, "time": n * 10, "unused": "x" * 50}
    for n in range(2_000)
]


def expected() -> tuple[list[dict[str, Any]], int]:
    """What the program below makes of the rows, and how many of them fail."""
    good, failed = [], 0
    for row in ROWS:
        if row["user"] is None or not row["price"] > 1:
            continue
        if row["n"] == 0:
            failed += 1
            continue
        size = "big" if row["price"] > 100 else "small"
        good.append({"user": row["user"].upper(), "each": row["price"] / row["n"], "size": size, "time": row["time"]})
    return good, failed


def program(stream: Any) -> tuple[Any, CollectSink]:
    letters = CollectSink()
    made = stream.filter(col("user").is_not_null() & (col("price") > 1)).select(
        "time",
        user=col("user").upper(),
        each=col("price") / col("n"),
        size=when(col("price") > 100).then("big").otherwise("small"),
        errors="dead_letter",
    )
    made.dead_letters().sink_to(letters)
    return made, letters


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["time"])


def test_from_parquet_through_windows(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    for part in range(4):
        pq.write_table(table.slice(part * 500, 500), tmp_path / f"{part}.parquet")
    env = StreamEnvironment("expressions", spark=spark, parallelism=2)
    times = Watermarks[Any].bounded(seconds=30, timestamp="time")
    made, letters = program(env.from_source(FileSource(str(tmp_path)), watermarks=times, name="in"))
    windows = CollectSink()
    made.key_by("user").window(TumblingWindows(seconds=5)).aggregate(count(), total("each", name="sum"), name="w").sink_to(
        windows
    )
    found = made.execute_and_collect()
    good, failed = expected()
    assert ordered(found) == ordered(good)
    assert len(letters.results()) == failed
    sums: dict[Any, list[float]] = {}
    for row in good:
        sums.setdefault((row["user"], row["time"] // 5000 * 5000), []).append(row["each"])
    by_window = {(r["user"], r["window_start"]): (r["count"], r["sum"]) for r in windows.results()}
    assert by_window == {key: (len(values), pytest.approx(sum(values))) for key, values in sums.items()}


def test_from_a_dataframe(spark: SparkSession) -> None:
    env = StreamEnvironment("expressions-frame", spark=spark, parallelism=2)
    stream = env.from_dataframe(spark.createDataFrame(ROWS, "user string, price double, n long, time long, unused string"))
    with pytest.raises(PlanError, match="did you mean price"):
        stream.filter(col("pirce") > 1)
    made, letters = program(stream)
    found = made.execute_and_collect()
    good, failed = expected()
    assert ordered(found) == ordered(good)
    assert len(letters.results()) == failed
