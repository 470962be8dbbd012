"""Value, map and list state with event timers: a home-made window, from the generator to Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock import FileSink, KeyedContext, KeyedProcessFunction, ListState, MapState, ValueState, Watermarks
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import PANE_MS, pane_event

SCHEMA = pa.schema(
    [("key", pa.string()), ("end", pa.int64()), ("sum", pa.int64()), ("values", pa.string()), ("total", pa.int64())]
)


class Panes(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    closed = ValueState(int, default=0)
    sums: MapState[int, int] = MapState(int, int)
    waiting: ListState[tuple[int, int]] = ListState(tuple[int, int])

    def process(self, value: dict[str, Any], ctx: KeyedContext[str]) -> None:
        end = value["ts"] // PANE_MS * PANE_MS + PANE_MS
        self.sums[end] = (self.sums.get(end) or 0) + value["value"]
        self.waiting.add((value["ts"], value["value"]))
        ctx.timers.register_event_time(end - 1)

    def on_timer(self, timestamp: int, ctx: KeyedContext[str]) -> Iterator[dict[str, Any]]:
        end = timestamp + 1
        mine = sorted(pair for pair in self.waiting if pair[0] < end)
        self.waiting.update([pair for pair in self.waiting if pair[0] >= end])
        self.closed.update(self.closed.value + len(mine))
        total = self.sums[end]
        del self.sums[end]
        values = ",".join(str(value) for _, value in mine)
        yield {"key": ctx.key, "end": end, "sum": total, "values": values, "total": self.closed.value}


def main() -> None:
    args = arguments()
    env = args.environment("panes", max_records_per_epoch=args.size // 24)
    source = args.source(pane_event, partitions=3, batch_size=200)
    events = env.from_source(source, watermarks=Watermarks.bounded(seconds=0.05, timestamp="ts"), name="events")
    panes = events.key_by("key").process(Panes(), name="panes")
    panes.sink_to(FileSink(args.out, format="parquet", schema=SCHEMA), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
