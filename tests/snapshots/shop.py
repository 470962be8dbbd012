"""A program that is replayed: orders of customers, with a step of every kind that has a function."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from penstock import (
    CollectionSource,
    CollectSink,
    DataStream,
    KeyedProcessFunction,
    ListState,
    MapState,
    OutputTag,
    RestartPolicy,
    SessionWindows,
    StreamEnvironment,
    Ttl,
    TumblingWindows,
    ValueState,
    Watermarks,
    aggregates,
)

LARGE: OutputTag[Any] = OutputTag("large")


@dataclass(frozen=True)
class Order:
    customer: str
    item: str
    price: float
    time: int


@dataclass
class Basket:
    total: float
    last: int


class Reminder(KeyedProcessFunction[str, Order, str]):
    """Reminds of a basket that nobody has added to for a minute."""

    basket: ValueState[Basket | None] = ValueState(Basket)
    items: ListState[str] = ListState(str)
    counts: MapState[str, int] = MapState(str, int)
    recent: ValueState[str] = ValueState(str, ttl=Ttl(timedelta(minutes=5), time="event"))

    def process(self, order: Order, ctx: Any) -> Iterator[str]:
        if order.price < 0:
            raise ValueError(f"a price of {order.price}")
        basket = self.basket.value
        if basket is None:
            basket = Basket(0.0, order.time)
        else:
            ctx.timers.delete_event_time(basket.last + 60_000)
        basket.total += order.price
        basket.last = order.time
        self.basket.update(basket)
        self.items.add(order.item)
        self.counts[order.item] = (self.counts.get(order.item) or 0) + 1
        self.recent.update(order.item)
        ctx.timers.register_event_time(order.time + 60_000)
        if order.price > 50:
            ctx.output(LARGE, order)
        yield f"{ctx.key}: {basket.total:.2f}"

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield f"{ctx.key}, your {len(self.items)} things are waiting: {', '.join(self.items)}"
        self.items.clear()
        self.basket.clear()


def build(env: StreamEnvironment, orders: Iterable[Order]) -> StreamEnvironment:
    source = CollectionSource(list(orders), partitions=2)
    stream: DataStream[Order] = env.from_source(source, watermarks=Watermarks.bounded(seconds=5, timestamp="time"), name="orders")
    priced = stream.map(with_tax, name="tax").filter(lambda o: o.item != "nothing", name="something")
    keyed = priced.key_by("customer")
    reminders = keyed.process(Reminder(), name="reminders")
    reminders.sink_to(CollectSink(), name="reminded")
    reminders.side_output(LARGE).sink_to(CollectSink(), name="large")
    keyed.reduce(dearer, name="dearest").sink_to(CollectSink(), name="out-dearest")
    keyed.sum("price", name="spent").sink_to(CollectSink(), name="out-spent")
    sessions = keyed.window(SessionWindows(gap=timedelta(seconds=30)))
    sessions.fold(Decimal(0), add, name="sessions").sink_to(CollectSink(), name="out-sessions")
    minutes = keyed.window(TumblingWindows(minutes=1))
    minutes.fold(0, lambda n, _: n + 1, name="minutes").sink_to(CollectSink(), name="out-minutes")
    minutes.aggregate(aggregates.avg("price"), name="columns").sink_to(CollectSink(), name="out-columns")
    return env


def with_tax(order: Order) -> Order:
    return Order(order.customer, order.item, round(order.price * 1.1, 2), order.time)


def dearer(left: Order, right: Order) -> Order:
    return max(left, right, key=lambda order: order.price)


def add(total: Decimal, order: Order) -> Decimal:
    return total + Decimal(str(order.price))


def orders(n: int, *, broken: int | None = None) -> list[Order]:
    """Orders of three customers, one every nine seconds; one of them is `broken`."""
    customers, items = ("ann", "bob", "eve"), ("tea", "bread", "milk", "book", "lamp")
    return [Order(customers[(k * 7) % 3], items[k * 3 % 5], -1.0 if k == broken else 5.0 * (k % 13), k * 9_000) for k in range(n)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("storage")
    parser.add_argument("--orders", type=int, default=30)
    parser.add_argument("--broken", type=int, default=None)
    parser.add_argument("--executor", default="inline")
    given = parser.parse_args()
    env = StreamEnvironment(
        "shop",
        storage=given.storage,
        executor=given.executor,
        parallelism=2,
        max_records_per_epoch=7,
        keep=100,
        restart=RestartPolicy(attempts=0),
    )
    build(env, orders(given.orders, broken=given.broken)).execute()
