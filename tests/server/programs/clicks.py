"""A job that keeps a total for each user of what is appended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from penstock import KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.connectors import AppendLogSource


class Totals(KeyedProcessFunction[str, dict[str, Any], int]):
    total = ValueState(int, default=0, queryable=True)
    count = ValueState(int, default=0, queryable=True)

    def process(self, value: dict[str, Any], ctx: KeyedContext[str]) -> Iterator[int]:
        self.total.update(self.total.value + value["n"])
        self.count.update(self.count.value + 1)
        return iter(())


def clicks(storage: str) -> StreamEnvironment:
    env = StreamEnvironment("basket", executor="inline", parallelism=2, storage=storage)
    source = env.from_source(AppendLogSource(), name="clicks")
    source.key_by(lambda click: str(click["user"])).process(Totals(), name="totals").print()
    return env


if __name__ == "__main__":
    clicks(sys.argv[1]).execute()
