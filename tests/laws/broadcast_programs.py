"""A program with broadcast state, keyed state and timers; and what it gives, worked out without any of Penstock."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock import CollectionSource, DataStream, KeyedContext, OnTimerContext, StreamEnvironment, ValueState, Watermarks
from penstock.contexts import KeyedBroadcastContext, ProcessContext
from penstock.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.state import BroadcastMapState

Purchase = tuple[int, str, int]
"""A key, the name of a rule, and a time."""

Rule = tuple[str, int | None, int]
"""A name, what it is worth, and a time. None: the rule goes; 0: everybody is given a point, and told."""

AHEAD, SLACK = 30, 25


@dataclass(frozen=True)
class Shop:
    purchases: list[Purchase]
    rules: list[Rule]


def random_shop(seed: int, count: int) -> Shop:
    """Times go up and down, mostly within the slack."""
    rng = random.Random(seed)
    times = range(1000, 1000 + 10 * count, 10)
    purchases = [(rng.randrange(4), rng.choice("abc"), time + rng.randint(-30, 30)) for time in times]
    rules = [
        (rng.choice("abc"), rng.choice([None, 0, 1, 2, 3]), time + rng.randint(-30, 30)) for time in times[:: rng.choice([2, 3])]
    ]
    return Shop(purchases, rules)


class Points(KeyedBroadcastProcessFunction[int, Purchase, Rule, Any]):
    rules: BroadcastMapState[str, int] = BroadcastMapState(str, int)
    points = ValueState(int, 0)

    def process(self, value: Purchase, ctx: KeyedContext[int]) -> Iterator[Any]:
        self.points.update(self.points.value + (self.rules.get(value[1]) or 1))
        ctx.timers.register_event_time(value[2] + AHEAD)
        yield "bought", ctx.key, value[2], self.points.value, ctx.current_watermark, [list(rule) for rule in self.rules.items()]

    def process_broadcast(self, value: Rule, ctx: KeyedBroadcastContext[int]) -> Iterator[Any]:
        name, worth, time = value
        if worth is None:
            self.rules.remove(name)
        elif worth:
            self.rules.put(name, worth)
        else:
            told: list[Any] = []

            def give(key: int, points: ValueState[int]) -> None:
                points.update(points.value + 1)
                told.append(("given", key, time, points.value, ctx.current_watermark))

            ctx.apply_to_keyed_state(self.points, give)
            yield from told

    def on_timer(self, timestamp: int, ctx: OnTimerContext[int]) -> Iterator[Any]:
        yield "due", ctx.key, timestamp, self.points.value, sorted(self.rules)
        if self.points.value > 6:
            self.points.clear()


class Priced(BroadcastProcessFunction[Purchase, Rule, Any]):
    rules: BroadcastMapState[str, int] = BroadcastMapState(str, int)

    def process(self, value: Purchase, ctx: ProcessContext) -> Iterator[Any]:
        yield "priced", value[0], value[2], self.rules.get(value[1]), sorted(self.rules)

    def process_broadcast(self, value: Rule, ctx: ProcessContext) -> None:
        if value[1] is None:
            self.rules.remove(value[0])
        else:
            self.rules[value[0]] = value[1]


def streams(env: StreamEnvironment, shop: Shop) -> tuple[DataStream[Purchase], DataStream[Rule]]:
    by_time: Watermarks[Any] = Watermarks.bounded(slack=timedelta(milliseconds=SLACK), timestamp=lambda record: record[-1])
    purchases = env.from_source(CollectionSource(shop.purchases), watermarks=by_time, name="purchases")
    rules = env.from_source(CollectionSource(shop.rules), watermarks=by_time, name="rules")
    return purchases, rules


def points(env: StreamEnvironment, shop: Shop) -> DataStream[Any]:
    purchases, rules = streams(env, shop)
    return purchases.key_by(lambda purchase: purchase[0]).connect(rules.broadcast()).process(Points(), name="points")


def priced(env: StreamEnvironment, shop: Shop) -> DataStream[Any]:
    purchases, rules = streams(env, shop)
    return purchases.rebalance().connect(rules.broadcast()).process(Priced(), name="priced")


# --- without Penstock ----------------------------------------------------------------------------------------------------------

START = -(1 << 63)


def in_order(shop: Shop) -> list[tuple[int, int, Any]]:
    """Each record with its tick, the time of its source just before it, and its side: in the order that they are taken in."""
    found: list[tuple[int, int, int, Any]] = []
    both: list[list[Any]] = [[*shop.purchases], [*shop.rules]]
    for side, records in enumerate(both):
        latest = None
        for number, record in enumerate(records):
            found.append((START if latest is None else latest - SLACK - 1, side, number, record))
            latest = record[-1] if latest is None else max(latest, record[-1])
    return [(tick, side, record) for tick, side, _, record in sorted(found, key=lambda one: one[:3])]


def expected_points(shop: Shop) -> list[Any]:
    rules: dict[str, int] = {}
    points: dict[int, int] = {}
    timers: set[tuple[int, int]] = set()
    out: list[Any] = []

    def fire(until: float) -> None:
        while timers and min(timers)[0] <= until:
            time, key = min(timers)
            timers.discard((time, key))
            out.append(("due", key, time, points.get(key, 0), sorted(rules)))
            if points.get(key, 0) > 6:
                del points[key]

    for tick, side, record in in_order(shop):
        fire(tick)
        if side == 0:
            key, name, time = record
            points[key] = points.get(key, 0) + (rules.get(name) or 1)
            timers.add((time + AHEAD, key))
            out.append(("bought", key, time, points[key], tick, [list(rule) for rule in sorted(rules.items())]))
        else:
            name, worth, time = record
            if worth is None:
                rules.pop(name, None)
            elif worth:
                rules[name] = worth
            else:
                for key in points:
                    points[key] += 1
                    out.append(("given", key, time, points[key], tick))
    fire(float("inf"))
    return out


def expected_prices(shop: Shop) -> list[Any]:
    rules: dict[str, int] = {}
    out: list[Any] = []
    for _, side, record in in_order(shop):
        if side == 0:
            out.append(("priced", record[0], record[2], rules.get(record[1]), sorted(rules)))
        elif record[1] is None:
            rules.pop(record[0], None)
        else:
            rules[record[0]] = record[1]
    return out
