"""The Penstock contender of the patterns benchmark: three stages, from CSV to CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.contenders import progress
from harness.penstock_jobs import environment
from harness.processes import peak_memory
from penstock import FileSink, FileSource, JobResult, Pattern, SkipStrategy, Watermarks, col

Parameters = dict[str, Any]
Row = dict[str, Any]

EVENT = pa.schema({"key": pa.int64(), "ts": pa.int64(), "kind": pa.int64()})


def main(parameters: Parameters) -> dict[str, Any]:
    """Timed: from the start of the first epoch to the commit of the last."""
    _run("warm", parameters["warm_folder"], parameters["warm_events"], parameters)
    progress("warm")
    with peak_memory() as peak:
        result = _run("out", parameters["folder"], parameters["events"], parameters)
    history = list(result.history)
    return {
        "events": result.records_in,
        "seconds": (history[-1].committed_ms - history[0].started_ms) / 1000,
        "epochs": [record.records_in for record in history],
        "epoch_seconds": [round(record.seconds, 3) for record in history],
        "late": {step: found["late"] for step, found in result.counters.items() if found.get("late")},
        "peak_memory": peak(),
    }


def pattern_of(parameters: Parameters) -> Pattern:
    conditions = [_function(*bounds) if parameters["functions"] else _columns(*bounds) for bounds in parameters["stages"]]
    pattern = Pattern.begin("a", SkipStrategy.to_next()).where(conditions[0])
    follow = "next" if parameters["strict"] else "followed_by"
    for name, condition in zip("bc", conditions[1:], strict=True):
        pattern = getattr(pattern, follow)(name).where(condition)
    return pattern.within(parameters["within_ms"] / 1000)


def _columns(start: int, stop: int) -> Any:
    return (col("kind") >= start) & (col("kind") < stop)


def _function(start: int, stop: int) -> Callable[[Row], bool]:
    return lambda event: start <= event["kind"] < stop


def first_and_last(match: dict[str, list[Row]]) -> Row:
    first = match["a"][0]
    return {"key": first["key"], "first": first["ts"], "last": match["c"][0]["ts"]}


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
    (
        env.from_source(FileSource(f"{folder}/*.csv", schema=EVENT, header=False), name="in", watermarks=watermarks)
        .key_by("key")
        .pattern(pattern_of(parameters))
        .select(first_and_last, name="pattern")
        .sink_to(FileSink(str(Path(parameters["out"], name)), format="csv"), name="out")
    )
    if name == "out":
        print(env.explain())
    return env.execute()
