"""A loop: which nodes can be reached, while the edges of the graph come in. Every message that a node gets is numbered."""

from __future__ import annotations

from collections.abc import Iterator

from penstock import FileSink, KeyedContext, KeyedProcessFunction, ListState, OutputTag, ValueState
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import spread_event

Message = tuple[int, int]
"""A node, and where an edge leads from it; -1: it is reached."""

REACHED = OutputTag[tuple[int, int]]("reached")


class Spread(KeyedProcessFunction[int, Message, Message]):
    """A node that is reached for the first time says so along its edges; from then on every new edge does."""

    times: ValueState[int] = ValueState(int, default=0)
    edges: ListState[int] = ListState(int)

    def process(self, value: Message, ctx: KeyedContext[int]) -> Iterator[Message]:
        node, to = value
        if to >= 0:
            self.edges.add(to)
            if self.times.value:
                yield to, -1
            return
        self.times.update(self.times.value + 1)
        ctx.output(REACHED, (node, self.times.value))
        if self.times.value == 1:
            for other in self.edges:
                yield other, -1


def main() -> None:
    args = arguments()
    env = args.environment("spread", max_records_per_epoch=args.size // 8)
    source = args.source(spread_event, partitions=2, batch_size=256)
    loop = env.from_source(source, name="edges").iterate(record_type=tuple[int, int], turns=3, name="loop")
    messages = loop.key_by(0).process(Spread(), name="spread")
    loop.close_with(messages)
    messages.side_output(REACHED).sink_to(FileSink(args.out, columns=["node", "n"]), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
