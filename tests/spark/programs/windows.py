"""Tumbling, sliding and session windows and a trigger of one's own, in one job, with late updates and late records.

    events ─→ by key ─┬─ tumbling, over columns ─┐
                      ├─ tumbling, by record     │
                      ├─ sliding, both ways      ├─→ results
                      ├─ sessions                ├─→ late
                      ├─ brief sessions, both    │
                      └─ tumbling, `Portions`    ┘

The n-th event happens about 10 ms after the one before. All events of a key are in one source partition, so their order is the
order of their numbers. Whether one is on time, late or too late is clear by seconds, whatever the parallelism and the epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import (
    DataStream,
    FileSink,
    GeneratorSource,
    OutputTag,
    ReducingState,
    RestartPolicy,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    Watermarks,
    WindowFunction,
    aggregates,
    count,
)
from penstock.aggregates import first, last
from penstock.windows import TimeWindow, Trigger, TriggerResult, WindowContext, per_window

EVENTS, KEYS, PARTITIONS = 5_000, 45, 3
STEP_MS, JITTER_MS, SLACK_MS = 10, 190, 200
TUMBLING_MS, SLIDING_MS, SLIDE_MS, GAP_MS = 2_000, 3_000, 1_000, 455
LATENESS_MS = 15_000
LATE_MS, TOO_LATE_MS = 8_000, 30_000
PORTION = 60
"""`Portions` fires whenever the amounts of a window come to so much."""

LATE: OutputTag[dict[str, Any]] = OutputTag("late")


def events(numbers: Any) -> pa.RecordBatch:
    """Most events come a little out of order, some seconds late, and some so late that no window takes them."""
    times = numbers * STEP_MS + numbers * 7919 % JITTER_MS // 10 * 10
    times = times - np.where((numbers % 41 == 7) & (numbers > 1_000), LATE_MS, 0)
    times = times - np.where((numbers % 97 == 5) & (numbers > 3_500), TOO_LATE_MS, 0)
    keys = pa.array([f"k{n}" for n in (numbers % KEYS).tolist()])
    return pa.record_batch({"n": pa.array(numbers), "key": keys, "time": pa.array(times), "amount": pa.array(numbers % 23 + 1)})


class Portions(Trigger):
    """Emits what has come since it last did: for every `PORTION`, at the end of the window, and for each late record."""

    amounts = ReducingState(int, lambda a, b: a + b)

    def on_record(self, record: Any, timestamp: int | None, window: TimeWindow, timers: Any) -> TriggerResult:
        if window.max_timestamp <= timers.current_watermark:
            return TriggerResult.FIRE_AND_PURGE
        timers.register_event_time(window.max_timestamp)
        self.amounts.add(record["amount"])
        if (self.amounts.value or 0) < PORTION:
            return TriggerResult.CONTINUE
        self.amounts.clear()
        return TriggerResult.FIRE_AND_PURGE

    def on_event_time(self, time: int, window: TimeWindow, timers: Any) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if time == window.max_timestamp else TriggerResult.CONTINUE

    def clear(self, window: TimeWindow, timers: Any) -> None:
        timers.delete_event_time(window.max_timestamp)
        self.amounts.clear()


class Numbered(WindowFunction[str, dict[str, Any], dict[str, Any]]):
    """Numbers the results of each window, and of each key."""

    of_window = per_window(ValueState(int, default=0))
    of_key = ValueState(int, default=0)

    def process(self, values: list[dict[str, Any]], ctx: WindowContext[str]) -> Iterator[dict[str, Any]]:
        self.of_window.update(self.of_window.value + 1)
        self.of_key.update(self.of_key.value + 1)
        yield {
            "key": ctx.key,
            "window_start": ctx.window.start,
            "window_end": ctx.window.end,
            "count": len(values),
            "total": sum(value["amount"] for value in values),
            "number": self.of_window.value,
            "of_key": self.of_key.value,
        }


def program(folder: Path, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`: results go to `folder/results`, late records to `folder/late`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_records_per_epoch": 450,
        "keep": 4,
        "compact_after": 4,
        "restart": RestartPolicy(attempts=8, first_delay=0.05),
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("windows", **{**defaults, **settings})
    source = GeneratorSource(events, count=EVENTS, partitions=PARTITIONS, batch_size=50, vectorised=True)
    watermarks: Watermarks[Any] = Watermarks.bounded(slack=timedelta(milliseconds=SLACK_MS), timestamp="time")
    keyed = env.from_source(source, watermarks=watermarks, name="events").key_by("key")
    lateness: dict[str, Any] = {"allowed_lateness": timedelta(milliseconds=LATENESS_MS), "late": LATE}
    tumbling = keyed.window(TumblingWindows(milliseconds=TUMBLING_MS), **lateness)
    sliding = keyed.window(SlidingWindows(timedelta(milliseconds=SLIDING_MS), timedelta(milliseconds=SLIDE_MS)), **lateness)
    sessions = keyed.window(SessionWindows(timedelta(milliseconds=GAP_MS)), **lateness)
    brief = keyed.window(SessionWindows(timedelta(milliseconds=GAP_MS)), late=LATE)
    portions = keyed.window(TumblingWindows(milliseconds=TUMBLING_MS), trigger=Portions(), **lateness)
    declared = (count(), aggregates.sum("amount", name="total"), first("n", name="first"), last("n", name="last"))
    windowed: dict[str, DataStream[Any]] = {
        "tumbling-columns": tumbling.aggregate(*declared, name="tumbling-columns"),
        "tumbling-records": tumbling.aggregate(*declared, name="tumbling-records", columnar=False),
        "sliding-columns": sliding.aggregate(*declared, name="sliding-columns"),
        "sliding-records": sliding.aggregate(*declared, name="sliding-records", columnar=False),
        "sessions": sessions.aggregate(*declared, name="sessions"),
        "brief-columns": brief.aggregate(*declared, name="brief-columns"),
        "brief-records": brief.aggregate(*declared, name="brief-records", columnar=False),
        "portions": portions.process(Numbered(), name="portions"),
    }
    results = [stream.map(Tagged(kind), name=f"{kind}-results") for kind, stream in windowed.items()]
    late = [stream.side_output(LATE).map(Tagged(kind), name=f"{kind}-late") for kind, stream in windowed.items()]
    results[0].union(*results[1:]).sink_to(FileSink(str(folder / "results")), name="results")
    late[0].union(*late[1:]).sink_to(FileSink(str(folder / "late")), name="late")
    return env


class Tagged:
    """The record with the kind of window it comes from."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        return {"kind": self.kind, **record}


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    result = program(Path(sys.argv[1]), master="local[2,4]", spark_config=network).execute()
    print(f"finished={result.finished} epochs={result.epochs} restarts={result.restarts}", flush=True)


if __name__ == "__main__":
    main()
