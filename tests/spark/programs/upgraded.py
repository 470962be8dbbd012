"""A job of two versions: the second has renamed steps, a renamed field, and state that only a function can make anew.

numbers ─→ by key ─→ ledger ─→ out
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import (
    FileSink,
    GeneratorSource,
    KeyedProcessFunction,
    ListState,
    MapState,
    RestartPolicy,
    StreamEnvironment,
    ValueState,
)

COUNT, KEYS = 4_000, 67


def row(number: int) -> dict[str, int]:
    return {"n": number, "key": number * 7919 % KEYS}


@dataclass
class Account:
    count: int
    total: int


class Ledger(KeyedProcessFunction[int, Any, Any]):
    account: ValueState[Account | None] = ValueState(Account)
    halves: MapState[int, int] = MapState(int, int)
    numbers: ListState[int] = ListState(int)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        before = self.account.value
        count, total = (0, 0) if before is None else (before.count, before.total)
        self.account.update(Account(count + 1, total + record["n"]))
        half = record["n"] % 2
        self.halves[half] = (self.halves.get(half) or 0) + 1
        self.numbers.add(record["n"])
        sums = sum(self.numbers)
        yield {"key": ctx.key, "count": count + 1, "total": total + record["n"], "half": self.halves[half], "sum": sums}


@dataclass
class NewAccount:
    total: float
    entries: int
    owner: str = "nobody"


@dataclass
class Half:
    count: int


class NewLedger(KeyedProcessFunction[int, Any, Any]):
    account: ValueState[NewAccount | None] = ValueState(NewAccount, aliases={"count": "entries"})
    halves: MapState[int, Half] = MapState(int, Half, migrate=Half)
    texts: ListState[str] = ListState(str, previous_names=("numbers",), migrate=str)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        before = self.account.value
        count, total = (0, 0.0) if before is None else (before.entries, before.total)
        self.account.update(NewAccount(total + record["n"], count + 1))
        half = record["n"] % 2
        held = self.halves.get(half)
        self.halves[half] = Half(1 if held is None else held.count + 1)
        self.texts.add(str(record["n"]))
        sums = sum(map(int, self.texts))
        entry = self.halves[half].count
        yield {"key": ctx.key, "count": count + 1, "total": int(total + record["n"]), "half": entry, "sum": sums}


def program(folder: Path, version: int, **settings: Any) -> StreamEnvironment:
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_records_per_epoch": 500,
        "first_records_per_epoch": 500,
        "restart": RestartPolicy(attempts=2),
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("upgraded", **{**defaults, **settings})
    source, sink = GeneratorSource(row, count=COUNT, partitions=2), FileSink(str(folder / "out"))
    if version == 1:
        stream = env.from_source(source, name="numbers").key_by("key")
        stream.process(Ledger(), name="ledger").sink_to(sink, name="out")
    else:
        stream = env.from_source(source, name="rows", previous_names=("numbers",)).key_by("key")
        out = stream.process(NewLedger(), name="accounts", previous_names=("ledger",))
        out.sink_to(sink, name="published", previous_names=("out",))
    return env


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    result = program(Path(sys.argv[1]), int(sys.argv[2]), master="local[2,4]", spark_config=network).execute()
    print(f"finished={result.finished} epochs={result.epochs} restarts={result.restarts}", flush=True)


if __name__ == "__main__":
    main()
