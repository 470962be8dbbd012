"""From files into PostgreSQL, exactly once: every purchase as a row, and what each customer has spent as a row that is replaced.

PENSTOCK_POSTGRES=postgresql://me@localhost:5432/shop python examples/postgres/files_into_table.py FOLDER
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from penstock import FileSource, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.connectors.postgres import PostgresSink
from penstock.contexts import KeyedContext


@dataclass
class Purchase:
    customer: str
    cents: int


@dataclass
class Total:
    customer: str
    cents: int


class Spent(KeyedProcessFunction[str, Purchase, Total]):
    so_far = ValueState(int, 0)

    def process(self, value: Purchase, ctx: KeyedContext[str]) -> list[Total]:
        self.so_far.update(self.so_far.value + value.cents)
        return [Total(value.customer, self.so_far.value)]


def build(env: StreamEnvironment, dsn: str, folder: str) -> None:
    purchases = env.from_source(FileSource(folder, format="json", schema=Purchase), name="purchases")
    purchases.sink_to(PostgresSink(dsn, "purchases", create=Purchase), name="rows")
    spent = purchases.key_by("customer").process(Spent(), name="spent")
    spent.sink_to(PostgresSink(dsn, "totals", create=Total, key=["customer"]), name="totals")


def main() -> None:
    env = StreamEnvironment("shop")
    build(env, os.environ["PENSTOCK_POSTGRES"], sys.argv[1])
    print(f"{env.execute().records_in} purchases")


if __name__ == "__main__":
    main()
