"""A program with all that a drain must close: sessions, sliding windows over columns, timers of both kinds, two exchanges in
sequence. Its input is files, read to their end or watched.

As a script: `drained_program.py FOLDER PARALLELISM [POINT]` runs it until idle and drains it; at POINT of the drain it is killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import (
    FileSink,
    FileSource,
    JobResult,
    KeyedProcessFunction,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    Watermarks,
    avg,
    count,
    failpoints,
)
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.connectors.protocol import Source
from penstock.epochs.loop import EpochLoop

COUNT = 60
OUTPUTS = ("sessions", "sliding", "timers", "busiest")


def events(count: int = COUNT) -> list[dict[str, Any]]:
    """Of a few users, in order; the gaps differ, so that some sessions end before the input does."""
    return [{"user": f"u{n % 5}", "time": n * 700 + (n // 20) * 30_000, "amount": float(n % 7)} for n in range(count)]


class Reminder(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    """Two timers for each user: one in event time after the last record, one in processing time that is far away."""

    due: ValueState[int | None] = ValueState(int)

    def process(self, value: dict[str, Any], ctx: Any) -> None:
        if self.due.value is not None:
            ctx.timers.delete_event_time(self.due.value)
        else:
            ctx.timers.register_processing_time(10**15)
        self.due.update(value["time"] + 20_000)
        ctx.timers.register_event_time(value["time"] + 20_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[dict[str, Any]]:
        if ctx.time_domain == "event":
            self.due.clear()
        yield {"user": ctx.key, "kind": ctx.time_domain, "time": timestamp}


def program(folder: Path, source: Source, **settings: Any) -> StreamEnvironment:
    defaults: dict[str, Any] = {
        "storage": str(folder / "job"),
        "executor": "inline",
        "parallelism": 2,
        "max_records_per_epoch": 9,
        "restart": NO_RESTART,
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("drained", **{**defaults, **settings})
    marks: Watermarks[Any] = Watermarks.bounded(seconds=2, timestamp="time", every=1)
    users = env.from_source(source, watermarks=marks, name="events").key_by("user")

    def out(name: str) -> FileSink:
        return FileSink(str(folder / name), format="json")

    users.window(SessionWindows(seconds=10)).aggregate(count(), avg("amount"), name="sessions").sink_to(out("sessions"))
    sliding = users.window(SlidingWindows(20, 5)).aggregate(count(), name="sliding")
    sliding.sink_to(out("sliding"))
    users.process(Reminder(), name="reminder").sink_to(out("timers"))
    busiest = sliding.key_by("count").window(TumblingWindows(seconds=30)).aggregate(count(name="windows"), name="busiest")
    busiest.sink_to(out("busiest"))
    return env


def put(folder: Path, rows: list[dict[str, Any]], name: str) -> None:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    hidden = folder / "in" / f".{name}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / "in" / f"{name}.json")


def files(folder: Path, *, watch: bool) -> FileSource:
    return FileSource(str(folder / "in"), watch=0.05 if watch else None, lanes=1)


def output(folder: Path) -> dict[str, Counter[str]]:
    return {name: Counter(json.dumps(row, sort_keys=True) for row in read_rows(folder / name)) for name in OUTPUTS}


def bounded(folder: Path, rows: list[dict[str, Any]], **settings: Any) -> dict[str, Counter[str]]:
    """What the same input gives as bounded input, read to its end."""
    put(folder, rows, "0")
    result = program(folder, files(folder, watch=False), **settings).execute()
    assert result.finished
    assert not result.drained
    return output(folder)


def drain(folder: Path, **settings: Any) -> JobResult:
    return program(folder, files(folder, watch=True), until_idle=True, drain=True, **settings).execute()


def kill_in_the_drain(point: str) -> None:
    """Arm a fail-point when the drain begins."""
    turn = EpochLoop._turn

    def armed(self: EpochLoop, *, checkpoint: bool = False, drain: bool = False) -> None:
        if drain:
            failpoints.arm(f"{point}=kill")
        turn(self, checkpoint=checkpoint, drain=drain)

    EpochLoop._turn = armed  # type: ignore[method-assign]


if __name__ == "__main__":
    if len(sys.argv) > 3:
        kill_in_the_drain(sys.argv[3])
    where = Path(sys.argv[1])
    settings: dict[str, Any] = json.loads(os.environ.get("SETTINGS", "{}"))
    ended = drain(where, parallelism=int(sys.argv[2]), **settings)
    assert ended.drained
    assert ended.finished
