"""Rules that are broadcast, and change while the job runs; each also goes to all keys now and then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock import FileSink, GeneratorSource, KeyedContext, ValueState, Watermarks
from penstock.contexts import KeyedBroadcastContext
from penstock.functions import KeyedBroadcastProcessFunction
from penstock.state import BroadcastMapState
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import RULE_EVERY, rule_event, sale_event


class Points(KeyedBroadcastProcessFunction[str, dict[str, Any], dict[str, Any], tuple[str, str, int, int]]):
    rules: BroadcastMapState[str, int] = BroadcastMapState(str, int)
    points = ValueState(int, 0)

    def process(self, value: dict[str, Any], ctx: KeyedContext[str]) -> Iterator[tuple[str, str, int, int]]:
        self.points.update(self.points.value + (self.rules.get(value["rule"]) or 1))
        yield "sale", ctx.key, value["n"], self.points.value

    def process_broadcast(self, value: dict[str, Any], ctx: KeyedBroadcastContext[str]) -> Iterator[tuple[str, str, int, int]]:
        if value["worth"]:
            self.rules[value["rule"]] = value["worth"]
        else:
            self.rules.remove(value["rule"])
        if value["gift"]:
            given: list[tuple[str, str, int, int]] = []

            def give(key: str, points: ValueState[int]) -> None:
                points.update(points.value + value["gift"])
                given.append(("gift", key, value["n"], points.value))

            ctx.apply_to_keyed_state(self.points, give)
            yield from given


def main() -> None:
    args = arguments()
    env = args.environment("rules", max_records_per_epoch=args.size // 16)
    by_time: Watermarks[Any] = Watermarks.monotonous(timestamp="ts")
    sales = env.from_source(args.source(sale_event, partitions=2, batch_size=256), watermarks=by_time, name="sales")
    control = GeneratorSource(rule_event, count=args.size // RULE_EVERY + 1, partitions=1, batch_size=16)
    rules = env.from_source(control, watermarks=by_time, name="rules")
    points = sales.key_by("key").connect(rules.broadcast()).process(Points(), name="points")
    points.sink_to(FileSink(args.out, columns=["what", "key", "n", "points"]), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
