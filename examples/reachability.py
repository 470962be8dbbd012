"""Which places can be reached from the depot, while roads are being built: a loop with keyed state.

python examples/reachability.py
"""

from collections.abc import Iterator

from penstock import KeyedProcessFunction, OutputTag, StreamEnvironment, ValueState
from penstock.api import DataStream
from penstock.contexts import KeyedContext

DEPOT = "depot"
ROADS = [("mill", "quarry"), ("harbour", "market"), ("market", "mill"), (DEPOT, "harbour"), ("island", "lighthouse")]

Message = tuple[str, str | None]
"""A place, and where a road leads from it; None: it can be reached."""

REACHED = OutputTag[str]("reached")


class Reach(KeyedProcessFunction[str, Message, Message]):
    """A place that can be reached says so to where its roads lead: once, whatever comes first."""

    reached: ValueState[bool] = ValueState(bool)
    roads: ValueState[list[str]] = ValueState(list[str])

    def process(self, value: Message, ctx: KeyedContext[str]) -> Iterator[Message]:
        place, to = value
        if to is not None:
            self.roads.update([*(self.roads.value or []), to])
            if self.reached.value:
                yield to, None
        elif not self.reached.value:
            self.reached.update(True)
            ctx.output(REACHED, place)
            for next_place in self.roads.value or []:
                yield next_place, None


def build(env: StreamEnvironment) -> DataStream[str]:
    start: Message = (DEPOT, None)
    loop = env.from_collection([*ROADS, start], name="roads").iterate(name="spread")
    messages = loop.key_by(0).process(Reach(), name="reach")
    loop.close_with(messages)
    return messages.side_output(REACHED)


def main() -> None:
    for place in sorted(build(StreamEnvironment("reachability")).execute_and_collect()):
        print(place)


if __name__ == "__main__":
    main()
