"""A program with every kind of state, for tests of snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock import (
    AggregateFunction,
    AggregatingState,
    FileSink,
    KeyedContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    OnTimerContext,
    ReducingState,
    SessionWindows,
    StreamEnvironment,
    Ttl,
    TumblingWindows,
    ValueState,
    Watermarks,
    avg,
    count,
)
from penstock import aggregates as agg
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage
from penstock.testing import Cut, ScriptedSource, execute_inline


@dataclass(frozen=True)
class Order:
    shop: str
    item: str
    cents: int
    time: int


@dataclass
class Best:
    item: str
    cents: int


class Mean(AggregateFunction[int, list[int], float]):
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0], left[1] + right[1]]


class Ledger(KeyedProcessFunction[str, Order, dict[str, Any]]):
    best: ValueState[Best] = ValueState(Best)
    orders = ValueState(int, default=0)
    recent: ListState[int] = ListState(int, ttl=Ttl(timedelta(days=365), time="event"))
    items: MapState[str, int] = MapState(str, int)
    total = ReducingState(int, lambda a, b: a + b)
    mean = AggregatingState(Mean(), list[int])

    def process(self, order: Order, ctx: KeyedContext[str]) -> Iterator[dict[str, Any]]:
        self.orders.update(self.orders.value + 1)
        best: Best | None = self.best.value
        if best is None or order.cents > best.cents:
            self.best.update(Best(order.item, order.cents))
        self.recent.add(order.cents)
        self.items[order.item] = 1 if order.item not in self.items else self.items[order.item] + 1
        self.total.add(order.cents)
        self.mean.add(order.cents)
        ctx.timers.register_event_time(order.time + 60_000)
        yield {"shop": ctx.key, "orders": self.orders.value, "total": self.total.value, "mean": self.mean.value}

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[dict[str, Any]]:
        yield {"shop": ctx.key, "quiet": timestamp, "items": dict(self.items.items()), "recent": list(self.recent)}


def orders(start: int, number: int) -> list[Order]:
    """Made by arithmetic: shops and items come again and again, and time goes on by a second an order."""
    return [
        Order(f"shop-{n * 7 % 23}", f"item-{n * 5 % 11}", n * 37 % 1000, 1_700_000_000_000 + n * 1000)
        for n in range(start, start + number)
    ]


def program(source: Any, out: Path, *, name: str = "shops", **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment(name, **{"parallelism": 2, "executor": "inline", **settings})
    stream = env.from_source(source, watermarks=Watermarks.bounded(seconds=5, timestamp=lambda o: o.time), name="orders")
    shops = stream.key_by(lambda o: o.shop, name="by-shop", key_type=str)
    shops.process(Ledger(), name="ledger").sink_to(FileSink(str(out / "ledger"), format="json"), name="ledger-out")
    rows = stream.map(lambda o: {"shop": o.shop, "cents": o.cents}, name="rows")
    by_shop = rows.key_by("shop")
    hourly = by_shop.window(TumblingWindows(minutes=10)).aggregate(count(), agg.sum("cents"), avg("cents"), name="hourly")
    hourly.sink_to(FileSink(str(out / "hourly"), format="json"), name="hourly-out")
    visits = by_shop.window(SessionWindows(gap=timedelta(seconds=30))).aggregate(count(), agg.sum("cents"), name="visits")
    visits.sink_to(FileSink(str(out / "visits"), format="json"), name="visits-out")
    slow = shops.window(TumblingWindows(minutes=5)).reduce(lambda a, b: a if a.cents >= b.cents else b, name="dearest")
    slow.sink_to(FileSink(str(out / "dearest"), format="json"), name="dearest-out")
    return env


def run_some(folder: Path, *, epochs: int = 3, each: int = 200, name: str = "job", **settings: Any) -> str:
    """A job that has run for some epochs and has more to read; returns its storage."""
    script: list[Any] = []
    for epoch in range(epochs + 2):
        script += [*orders(epoch * each, each), Cut()]
    storage = str(folder / name)
    execute_inline(program(ScriptedSource(script), folder / f"{name}-out", **settings), storage=storage, epochs=epochs + 1)
    return storage


def save(storage: str, to: Path) -> str:
    return make_savepoint(open_storage(storage), to=str(to)).uri
