"""Windows by record and over columns, sessions, and a function with a map, a list, a value and timers; files come in parts.

    visits ─→ by who ─┬─ tumbling, over columns ─┐
                      ├─ tumbling, by record     ├─→ out
                      ├─ sessions                │
                      └─ `Digest`                ┘

What comes out does not depend on epochs and partitions: times ascend, and event time goes on at every step of `EVERY_MS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock import (
    FileSink,
    FileSource,
    KeyedContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    OnTimerContext,
    RestartPolicy,
    SessionWindows,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    Watermarks,
    aggregates,
    count,
)

VISITS, WHO, STEP_MS, EVERY_MS = 900, 23, 37, 200


def write_part(folder: Path, part: int) -> None:
    """A third of the visits; the last one ends with one that is hours later, so that all windows close."""
    folder.mkdir(exist_ok=True)
    numbers = range(part * VISITS // 3, (part + 1) * VISITS // 3)
    rows = [{"who": f"w{n * n % WHO}", "time": n * STEP_MS, "page": f"p{n % 5}", "n": n % 7} for n in numbers]
    if part == 2:
        rows.append({"who": "end", "time": 10_000_000, "page": "p0", "n": 0})
    hidden = folder / f".{part}.tmp"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{part}.json")


class Digest(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    """Tells, three seconds after every fourth visit, what has been seen of a visitor since and ever."""

    pages: MapState[str, int] = MapState(str, int)
    recent: ListState[int] = ListState(int)
    total = ValueState(int, default=0)

    def process(self, visit: dict[str, Any], ctx: KeyedContext[str]) -> None:
        self.pages[visit["page"]] = self.pages.get(visit["page"], 0) + visit["n"]
        self.recent.add(visit["time"])
        self.total.update(self.total.value + 1)
        if self.total.value % 4 == 0:
            ctx.timers.register_event_time(visit["time"] + 3_000)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[dict[str, Any]]:
        seen = [time for time in self.recent if time <= timestamp - 3_000]
        later = [time for time in self.recent if time > timestamp - 3_000]
        yield {"who": ctx.key, "at": timestamp, "pages": len(list(self.pages.keys())), "seen": seen, "all": self.total.value > 0}
        self.recent.update(later)


def tagged(kind: str) -> Any:
    return lambda row: {"kind": kind, "row": json.dumps(row, sort_keys=True)}


def program(folder: Path, files: Path, **settings: Any) -> StreamEnvironment:
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "local_dir": str(folder / "local"),
        "parallelism": 2,
        "until_idle": True,
        "max_records_per_epoch": 150,
        "first_records_per_epoch": 150,
        "restart": RestartPolicy(attempts=8, first_delay=0.05),
    }
    env = StreamEnvironment("visits", **{**defaults, **settings})
    watermarks: Watermarks[Any] = Watermarks.bounded(seconds=0.1, timestamp="time", every=timedelta(milliseconds=EVERY_MS))
    source = FileSource(str(files), format="json", watch=0.05, lanes=1)
    keyed = env.from_source(source, watermarks=watermarks, name="visits").key_by("who")
    declared = (count(), aggregates.sum("n", name="total"))
    tumbling = keyed.window(TumblingWindows(seconds=2))
    made = {
        "columns": tumbling.aggregate(*declared, name="columns"),
        "records": tumbling.aggregate(*declared, name="records", columnar=False),
        "sessions": keyed.window(SessionWindows(timedelta(seconds=0.6))).aggregate(*declared, name="sessions"),
        "digest": keyed.process(Digest(), name="digest"),
    }
    rows = [stream.map(tagged(kind), name=f"{kind}-rows") for kind, stream in made.items()]
    rows[0].union(*rows[1:]).sink_to(FileSink(str(folder / "out")), name="out")
    return env


def main() -> None:
    folder, files, source = map(Path, sys.argv[1:4])
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    env = program(folder, files, master="local[2,4]", spark_config=network, parallelism=3)
    result = env.execute(restore_from=str(source))
    print(f"epochs={result.epochs} records={result.records_in}", flush=True)


if __name__ == "__main__":
    main()
