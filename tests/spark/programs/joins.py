"""Interval joins with outer sides, over columns and record by record, a temporal join and enrichment, in one job.

    left  ─→ by key ─┬─ interval, over columns ─┐
                     ├─ interval, by record     ├─→ results
    right ─→ by key ─┴─ temporal, enriched      ┘   late

The n-th event of a stream happens about 10 ms after the one before; some come seconds late. Times are such that it is clear which
records are late and which meet, whatever the parallelism and the epochs.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import DataStream, FileSink, GeneratorSource, KeyedStream, OutputTag, RestartPolicy, StreamEnvironment, Watermarks

EVENTS, KEYS, PARTITIONS = 4_000, 45, 2
STEP_MS, JITTER_MS, SLACK_MS = 10, 190, 200
LATE_MS = 8_000
LOWER_MS, UPPER_MS = -150, 250

LATE: tuple[OutputTag[Any], OutputTag[Any]] = (OutputTag("late left"), OutputTag("late right"))
NAMES = pa.table({"key": [f"k{n}" for n in range(0, KEYS, 2)], "name": [f"name {n}" for n in range(0, KEYS, 2)]})


def times(numbers: Any) -> Any:
    found = numbers * STEP_MS + numbers * 7919 % JITTER_MS // 10 * 10
    return found - np.where((numbers % 41 == 7) & (numbers > 1_000), LATE_MS, 0)


def lefts(numbers: Any) -> pa.RecordBatch:
    keys = pa.array([f"k{n}" for n in (numbers % KEYS).tolist()])
    return pa.record_batch({"l": pa.array(numbers), "key": keys, "time": pa.array(times(numbers))})


def rights(numbers: Any) -> pa.RecordBatch:
    keys = pa.array([f"k{n}" for n in (numbers * 7 % KEYS).tolist()])
    return pa.record_batch({"r": pa.array(numbers), "key": keys, "time": pa.array(times(numbers + 3))})


class Tagged:
    """The result with the kind of join it comes from."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"kind": self.kind, **row}


def numbers_of(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    return {"l": None if left is None else left["l"], "r": None if right is None else right["r"]}


def program(folder: Path, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`: results go to `folder/results`, late records to `folder/late`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_records_per_epoch": 700,
        "keep": 4,
        "compact_after": 4,
        "restart": RestartPolicy(attempts=8, first_delay=0.05),
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("joins", **{**defaults, **settings})
    watermarks: Watermarks[Any] = Watermarks.bounded(slack=timedelta(milliseconds=SLACK_MS), timestamp="time")

    def side(make: Any, name: str) -> KeyedStream[Any, Any]:
        source = GeneratorSource(make, count=EVENTS, partitions=PARTITIONS, batch_size=50, vectorised=True)
        return env.from_source(source, watermarks=watermarks, name=name).key_by("key")

    left, right = side(lefts, "left"), side(rights, "right")
    near = left.interval_join(right).between(timedelta(milliseconds=LOWER_MS), timedelta(milliseconds=UPPER_MS)).full()
    near = near.late(left=LATE[0], right=LATE[1])
    versions = left.temporal_join(right).left().late(left=LATE[0])
    joined: dict[str, DataStream[Any]] = {
        "columns": near.select(left=["l"], right=["r"], name="columns"),
        "records": near.apply(numbers_of, name="records"),
        "temporal": versions.select(left=["key", "l"], right=["r"], name="temporal"),
    }
    late = [joined[kind].side_output(LATE[0]).map(Tagged(kind), name=f"{kind}-late") for kind in joined]
    late += [joined[kind].side_output(LATE[1]).map(Tagged(kind), name=f"{kind}-late-right") for kind in ("columns", "records")]
    joined["temporal"] = joined["temporal"].enrich(NAMES, on="key", name="enrich")
    results = [stream.map(Tagged(kind), name=f"{kind}-results") for kind, stream in joined.items()]
    results[0].union(*results[1:]).sink_to(FileSink(str(folder / "results")), name="results")
    late[0].union(*late[1:]).sink_to(FileSink(str(folder / "late")), name="late")
    return env


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    result = program(Path(sys.argv[1]), master="local[2,4]", spark_config=network).execute()
    print(f"finished={result.finished} epochs={result.epochs} restarts={result.restarts}", flush=True)


if __name__ == "__main__":
    main()
