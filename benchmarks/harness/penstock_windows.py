"""The Penstock contender of the windows benchmark: count and sum of each window, Parquet to Parquet or CSV to CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.contenders import progress
from harness.penstock_jobs import environment
from penstock import FileSink, FileSource, JobResult, SessionWindows, SlidingWindows, TumblingWindows, Watermarks, count
from penstock import aggregates as agg
from penstock.windows.assigners import WindowAssigner

Parameters = dict[str, Any]

WINDOWS: dict[str, Callable[[Parameters], WindowAssigner]] = {
    "tumbling": lambda p: TumblingWindows(seconds=p["size"]),
    "sliding": lambda p: SlidingWindows(p["size"], p["slide"]),
    "session": lambda p: SessionWindows(p["gap"]),
}

EVENT = pa.schema({"key": pa.int64(), "ts": pa.int64(), "v": pa.float64()})
SOURCES: dict[str, Callable[[str], FileSource]] = {
    "parquet": lambda folder: FileSource(f"{folder}/*.parquet", columns=EVENT.names),
    "csv": lambda folder: FileSource(f"{folder}/*.csv", schema=EVENT, header=False),
}


def main(parameters: Parameters) -> dict[str, Any]:
    """Timed: from the start of the first epoch to the commit of the last, which may have no input and only close windows."""
    _run("warm", parameters["warm_folder"], parameters["warm_events"], parameters)
    progress("warm")
    result = _run("out", parameters["folder"], parameters["events"], parameters)
    history = list(result.history)
    return {
        "events": result.records_in,
        "seconds": (history[-1].committed_ms - history[0].started_ms) / 1000,
        "epochs": [record.records_in for record in history],
        "epoch_seconds": [round(record.seconds, 3) for record in history],
        "late": {step: found["late"] for step, found in result.counters.items() if found.get("late")},
    }


def _run(name: str, folder: str, events: int, parameters: Parameters) -> JobResult:
    records = -(-events // parameters["epochs"])
    env = environment(
        name,
        parameters,
        max_records_per_epoch=records,
        first_records_per_epoch=records,
        target_epoch=parameters["target_epoch"],
    )
    watermarks: Watermarks[Any] = Watermarks.bounded(seconds=parameters["slack"], timestamp="ts")
    source = SOURCES[parameters["format"]](folder)
    windows = WINDOWS[parameters["windows"]](parameters)
    (
        env.from_source(source, name="in", watermarks=watermarks)
        .key_by("key")
        .window(windows)
        .aggregate(count(), total=agg.sum("v"), name="windows")
        .sink_to(FileSink(str(Path(parameters["out"], name)), format=parameters["format"]), name="out")
    )
    if name == "out":
        print(env.explain())
    return env.execute()
