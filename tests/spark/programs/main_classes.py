"""Records, keys and functions of classes that exist in the main program only, sent between two stages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock import CollectSink, KeyedProcessFunction, StreamEnvironment, ValueState


@dataclass(frozen=True)
class Reading:
    room: str
    degrees: float


@dataclass
class Summary:
    room: str
    count: int
    last: Reading | None = None


class Summarise(KeyedProcessFunction[str, Reading, Summary]):
    summary: ValueState[Summary | None] = ValueState(Summary)

    def process(self, value: Reading, ctx: Any) -> Iterator[Summary]:
        before = self.summary.value or Summary(value.room, 0)
        after = Summary(value.room, before.count + 1, value)
        self.summary.update(after)
        yield after


def main() -> None:
    env = StreamEnvironment("classes", executor="spark", master="local[2,4]", parallelism=2, max_records_per_epoch=10)
    readings = env.from_collection([Reading(f"room{n % 5}", n / 10) for n in range(50)])
    summaries = readings.key_by("room").process(Summarise(), name="summary")
    sink = CollectSink()
    summaries.key_by("count").process(Pass(), name="pass").sink_to(sink)
    env.execute()
    rows = list(sink.results())
    assert all(type(row) is Summary and type(row.last) is Reading for row in rows), rows[:2]
    assert sorted((row.room, row.count) for row in rows) == [(f"room{r}", n) for r in range(5) for n in range(1, 11)]
    print("rows", len(rows))
    sys.exit(0)


class Pass(KeyedProcessFunction[int, Summary, Summary]):
    def process(self, value: Summary, ctx: Any) -> Iterator[Summary]:
        yield value


if __name__ == "__main__":
    main()
