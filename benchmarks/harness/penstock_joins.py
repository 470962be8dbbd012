"""The Penstock contender of the joins benchmark: an interval join, and enrichment by a table; Parquet to Parquet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from harness.contenders import progress
from harness.penstock_jobs import environment
from penstock import FileSink, FileSource, JobResult, StreamEnvironment, Watermarks

Parameters = dict[str, Any]


def interval(env: StreamEnvironment, folder: str, out: str, parameters: Parameters) -> None:
    watermarks: Watermarks[Any] = Watermarks.bounded(seconds=parameters["slack"], timestamp="ts")
    left, right = (
        env.from_source(FileSource(f"{folder}/{side}/*.parquet"), name=side, watermarks=watermarks) for side in ("left", "right")
    )
    bound = timedelta(milliseconds=parameters["bound_ms"])
    joined = left.key_by("key").interval_join(right.key_by("key")).between(-bound, bound)
    joined.select(left={"key": "key", "ts": "ts", "v": "left"}, right={"v": "right"}, name="join").sink_to(
        FileSink(out, format="parquet"), name="out"
    )


def static(env: StreamEnvironment, folder: str, out: str, parameters: Parameters) -> None:
    events = env.from_source(FileSource(f"{folder}/events/*.parquet"), name="events")
    events.enrich(f"{folder}/table", on="key", name="enrich").sink_to(FileSink(out, format="parquet"), name="out")


CASES: dict[str, Callable[[StreamEnvironment, str, str, Parameters], None]] = {"interval": interval, "static": static}


def main(parameters: Parameters) -> dict[str, Any]:
    """Timed: from the start of the first epoch to the commit of the last."""
    _run("warm", parameters["warm_folder"], parameters["warm_events"], parameters)
    progress("warm")
    result = _run("out", parameters["folder"], parameters["events"], parameters)
    history = list(result.history)
    return {
        "events": result.records_in,
        "seconds": (history[-1].committed_ms - history[0].started_ms) / 1000,
        "epochs": [record.records_in for record in history],
        "epoch_seconds": [round(record.seconds, 3) for record in history],
        "counters": result.counters,
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
    CASES[parameters["case"]](env, folder, str(Path(parameters["out"], name)), parameters)
    if name == "out":
        print(env.explain())
    return env.execute()
