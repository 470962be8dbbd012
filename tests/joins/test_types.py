"""Types flow through joins: mypy checks this file, as it does all tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

from penstock import DataStream, KeyedStream, StreamEnvironment, TumblingWindows
from penstock.joins import JoinContext, JoinFunction, ProcessJoinFunction


@dataclass
class Order:
    id: int
    item: str


@dataclass
class Payment:
    id: int
    cents: int


class Receipts(ProcessJoinFunction[Order, Payment, str]):
    def process(self, left: Order, right: Payment, ctx: JoinContext) -> Iterator[str]:
        yield f"{left.item}: {right.cents}"


class Owed(JoinFunction[Order, Payment | None, int]):
    def join(self, left: Order, right: Payment | None) -> int:
        return 0 if right is None else right.cents


def sides() -> tuple[KeyedStream[int, Order], KeyedStream[int, Payment]]:
    env = StreamEnvironment("types", executor="inline")
    orders, payments = env.from_collection([Order(1, "tea")]), env.from_collection([Payment(1, 300)])
    return orders.key_by(lambda order: order.id), payments.key_by(lambda payment: payment.id)


def test_types_flow() -> None:
    orders, payments = sides()
    near = orders.interval_join(payments).between(-1, 1)
    assert_type(near.apply(lambda order, payment: (order.item, payment.cents)), DataStream[tuple[str, int]])
    assert_type(near.process(Receipts()), DataStream[str])
    assert_type(near.left().apply(Owed()), DataStream[int])
    assert_type(near.select(left=["id"]), DataStream[dict[str, Any]])
    assert_type(near.full().apply(lambda order, payment: order), DataStream[Order | None])
    minute = TumblingWindows(minutes=1)
    assert_type(orders.join(payments).window(minute).right().apply(lambda order, payment: order), DataStream[Order | None])
    assert_type(orders.join(payments).left().apply(lambda order, payment: payment), DataStream[Payment | None])
    assert_type(orders.join(payments).semi(), DataStream[Order])
    assert_type(orders.temporal_join(payments).left().apply(lambda order, payment: payment), DataStream[Payment | None])
    assert_type(orders.deduplicate(), DataStream[Order])
    assert_type(orders.top_n(2, "id"), DataStream[Order])
