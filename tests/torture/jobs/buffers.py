"""Processing-time timers, and a state with ttl in event time: when things happen is not determined, what comes out is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from penstock import FileSink, KeyedContext, KeyedProcessFunction, ListState, Ttl, ValueState, Watermarks
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import buffer_event


class Buffer(KeyedProcessFunction[int, dict[str, Any], dict[str, Any]]):
    """Keeps records until a timer by the clock is due, then lets them all go. `recent` lives for one second of event time."""

    held: ListState[int] = ListState(int)
    due = ValueState(int, default=0)
    recent = ValueState(int, default=0, ttl=Ttl(timedelta(seconds=1), time="event"))

    def process(self, value: dict[str, Any], ctx: KeyedContext[int]) -> None:
        self.held.add(value["n"])
        self.recent.update(self.recent.value + 1)
        if not self.due.value:
            at = ctx.current_processing_time + 40 + value["n"] % 50
            self.due.update(at)
            ctx.timers.register_processing_time(at)

    def on_timer(self, timestamp: int, ctx: KeyedContext[int]) -> Iterator[dict[str, Any]]:
        for n in self.held:
            yield {"key": ctx.key, "n": n}
        self.held.clear()
        self.due.clear()


def main() -> None:
    args = arguments()
    env = args.environment("buffers", max_records_per_epoch=args.size // 24)
    source = args.source(buffer_event, partitions=2)
    events = env.from_source(source, watermarks=Watermarks.monotonous(timestamp="ts"), name="events")
    events.key_by("key").process(Buffer(), name="buffer").sink_to(FileSink(args.out), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
