"""Orders and their payments: an interval join with outer sides, the exchange rate of then, and who the customer is.

An order that is not paid within half a minute is a result too, with no payment.

python examples/orders_and_payments.py
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import DataStream, StreamEnvironment, Watermarks

ORDERS = [
    {"id": 1, "at": 10, "customer": 7, "item": "tea", "currency": "EUR"},
    {"id": 2, "at": 12, "customer": 8, "item": "milk", "currency": "CHF"},
    {"id": 3, "at": 70, "customer": 9, "item": "bread", "currency": "EUR"},
]
PAYMENTS = [
    {"order": 1, "paid": 14, "cents": 300},
    {"order": 3, "paid": 69, "cents": 250},
    {"order": 2, "paid": 90, "cents": 120},
]
RATES = [{"currency": "EUR", "since": 0, "rate": 1.1}, {"currency": "EUR", "since": 60, "rate": 1.2}]
CUSTOMERS = pa.table({"customer": [7, 8], "name": ["ann", "bob"]})


def seconds(field: str) -> Watermarks[Any]:
    return Watermarks.monotonous(timestamp=field, unit="s")


def build(env: StreamEnvironment) -> DataStream[str]:
    orders = env.from_collection(ORDERS, watermarks=seconds("at"), name="orders")
    payments = env.from_collection(PAYMENTS, watermarks=seconds("paid"), name="payments")
    rates = env.from_collection(RATES, watermarks=seconds("since"), name="rates")
    paid = (
        orders.key_by("id")
        .interval_join(payments.key_by("order"))
        .between(-5, 30)
        .left()
        .select(left=["id", "customer", "item", "currency"], right=["cents"], name="paid")
    )
    then = paid.key_by("currency").temporal_join(rates.key_by("currency")).left()
    valued = then.select(left=["id", "customer", "item", "cents"], right=["rate"], name="valued")
    named = valued.enrich(CUSTOMERS, on="customer", name="named")
    return named.map(line)


def line(row: dict[str, Any]) -> str:
    who = row["name"] or "somebody"
    if row["cents"] is None:
        return f"{row['id']}: {who} has not paid for {row['item']}"
    return f"{row['id']}: {who} paid {row['cents']} for {row['item']}, at a rate of {row['rate']}"


def main() -> None:
    env = StreamEnvironment("orders")
    build(env).print()
    env.execute()


if __name__ == "__main__":
    main()
