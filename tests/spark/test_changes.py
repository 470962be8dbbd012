"""Streams that update, on Spark: kinds cross exchanges, in order; sinks hold the table that the changes describe."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import FileSink, StreamEnvironment, col, read_output
from penstock.connectors import SqliteSink
from penstock.testing import Crash, Cut, End, Record, ScriptedSource

pytestmark = pytest.mark.spark


def changelog(seed: int, part: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Random changes of the keys of one source partition, and the table that they make."""
    rng = random.Random(seed * 10 + part)
    rows: list[dict[str, Any]] = []
    table: dict[str, int] = {}
    for _ in range(300):
        key, n = f"{part}-{rng.randrange(12)}", rng.randrange(1000)
        if key not in table:
            rows.append({"op": "+I", "key": key, "n": n})
            table[key] = n
        elif rng.random() < 0.3:
            rows.append({"op": "-D", "key": key, "n": table.pop(key)})
        else:
            rows += [{"op": "-U", "key": key, "n": table[key]}, {"op": "+U", "key": key, "n": n}]
            table[key] = n
    return rows, table


def test_changes_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """With a task that dies on the way, twice, and batches as columns behind the exchange."""
    parts = [changelog(7, part) for part in range(3)]
    scripts: list[list[Any]] = []
    for rows, _ in parts:
        script: list[Any] = [*map(Record, rows)]
        script.insert(100, Crash())
        script.insert(200, Cut())
        scripts.append([*script, End()])
    env = StreamEnvironment("changes", spark=spark, parallelism=2, storage=str(tmp_path / "job"))
    stream = (
        env.from_source(ScriptedSource.of(*scripts, cut=130), name="in")
        .map_batches(lambda batch: batch, aligned=True)
        .as_changes("op", name="changes")
        .key_by("key")
        .filter(col("n") >= 0)
        .key_by(lambda row: row["key"])
        .map(lambda row: {**row, "twice": row["n"] * 2})
    )
    stream.sink_to(SqliteSink(str(tmp_path / "t.db"), "t", ["key", "n"], key=["key"]), name="table")
    stream.sink_to(FileSink(str(tmp_path / "log"), format="parquet", kind_field="op"), name="log")
    stream.changes_as_rows("op").sink_to(FileSink(str(tmp_path / "rows")), name="rows")
    env.execute()

    expected: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for rows, _ in parts:
        for row in rows:
            expected[row["key"]].append((row["op"], row["n"]))
    for place in ("log", "rows"):
        found: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for row in read_output(tmp_path / place):
            assert row["twice"] == row["n"] * 2
            found[row["key"]].append((row["op"], row["n"]))
        assert found == expected
    with sqlite3.connect(tmp_path / "t.db") as database:
        assert dict(database.execute("SELECT * FROM t")) == {key: n for _, table in parts for key, n in table.items()}
