"""Two sources united, two keyed stages in a row, a side output, two file sinks: three Spark stages."""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock import FileSink, FileSource, GeneratorSource, KeyedContext, KeyedProcessFunction, MapState, OutputTag, ValueState
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import chain_event

ROUND = OutputTag[tuple[str, int]]("round")
END_OF_TIME = 4_000_000_000_000


class Number(KeyedProcessFunction[str, tuple[str, int], tuple[int, str, int, int]]):
    """Numbers the records of each key; round amounts also go to the side."""

    seen = ValueState(int, default=0)

    def process(self, value: tuple[str, int], ctx: KeyedContext[str]) -> Iterator[tuple[int, str, int, int]]:
        name, amount = value
        self.seen.update(self.seen.value + 1)
        if amount % 10 == 0:
            ctx.output(ROUND, value)
        yield (amount % 7, name, self.seen.value, amount)


class Totals(KeyedProcessFunction[int, tuple[int, str, int, int], tuple[str, str, int, int]]):
    """Passes every numbered record on; when all time is over, also the sum for each name."""

    sums: MapState[str, int] = MapState(str, int)

    def process(self, value: tuple[int, str, int, int], ctx: KeyedContext[int]) -> Iterator[tuple[str, str, int, int]]:
        _, name, number, amount = value
        self.sums[name] = (self.sums.get(name) or 0) + amount
        ctx.timers.register_event_time(END_OF_TIME)
        yield ("number", name, number, 0)

    def on_timer(self, timestamp: int, ctx: KeyedContext[int]) -> Iterator[tuple[str, str, int, int]]:
        for name, total in sorted(self.sums.items()):
            yield ("total", name, ctx.key, total)


def parsed(line: str) -> tuple[str, int]:
    name, amount = line.split("\t")
    return name, int(amount)


def main() -> None:
    args = arguments()
    env = args.environment("chain", max_records_per_epoch=args.size // 12, max_bytes_per_epoch=args.size // 3)
    made = env.from_source(GeneratorSource(chain_event, count=args.size, partitions=2), name="made")
    read = env.from_source(FileSource(args.input, format="text"), name="read").map(parsed)
    numbered = made.union(read).key_by(0).process(Number(), name="number")
    totals = numbered.key_by(0).process(Totals(), name="totals")
    totals.sink_to(FileSink(os.path.join(args.out, "totals"), columns=["kind", "name", "n", "total"]), name="totals-out")
    numbered.side_output(ROUND).sink_to(
        FileSink(os.path.join(args.out, "round"), format="csv", columns=["name", "amount"]), name="round-out"
    )
    finish(env.execute())


if __name__ == "__main__":
    main()
