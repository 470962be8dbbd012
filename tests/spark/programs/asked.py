"""Asks other systems, in order, unordered and by key, and keeps state by what they answer; files come in parts.

    numbers ─┬─ asked, in order ──→ by key ─→ running total ─┐
             ├─ asked, unordered ────────────────────────────├─→ out
             └─ looked up, with a cache ─────────────────────┘

The services are coroutines that wait, and fail at the first attempt now and then.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import (
    FileSink,
    FileSource,
    KeyedContext,
    KeyedProcessFunction,
    RestartPolicy,
    StreamEnvironment,
    ValueState,
    Watermarks,
)
from penstock.config import LookupCache, Retry
from penstock.contexts import RuntimeContext
from penstock.functions import AsyncFunction

NUMBERS, KEYS, STEP_MS = 900, 17, 10
RETRY = Retry(attempts=3, first_delay=0.001)


def write_part(folder: Path, part: int) -> None:
    """A third of the numbers."""
    folder.mkdir(exist_ok=True)
    numbers = range(part * NUMBERS // 3, (part + 1) * NUMBERS // 3)
    hidden = folder / f".{part}.tmp"
    hidden.write_text("".join(json.dumps({"n": n, "key": n * n % KEYS, "time": n * STEP_MS}) + "\n" for n in numbers))
    hidden.rename(folder / f"{part}.json")


class Squares(AsyncFunction[dict[str, Any], dict[str, Any]]):
    """Fails at the first attempt for every seventh number."""

    async def open(self, context: RuntimeContext) -> None:
        self.failed: set[int] = set()

    async def async_invoke(self, value: dict[str, Any]) -> dict[str, Any]:
        n = value["n"]
        await asyncio.sleep(0.001 * (n % 5))
        if n % 7 == 0 and n not in self.failed:
            self.failed.add(n)
            raise ConnectionError("try again")
        return {**value, "square": n * n}


async def names(keys: list[int]) -> dict[int, str]:
    await asyncio.sleep(0.002)
    return {key: f"key {key}" for key in keys if key % 3}


class Total(KeyedProcessFunction[int, dict[str, Any], dict[str, Any]]):
    """The sum of the squares so far; and what had been seen five steps of time after each tenth."""

    total = ValueState(int, default=0)
    seen = ValueState(int, default=0)

    def process(self, row: dict[str, Any], ctx: KeyedContext[int]) -> Iterator[dict[str, Any]]:
        self.total.update(self.total.value + row["square"])
        self.seen.update(self.seen.value + 1)
        if self.seen.value % 10 == 0:
            ctx.timers.register_event_time(row["time"] + 5 * STEP_MS)
        yield {"n": row["n"], "total": self.total.value}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"key": ctx.key, "at": timestamp, "seen": self.seen.value}


def tagged(kind: str) -> Any:
    return lambda row: {"kind": kind, "row": json.dumps(row, sort_keys=True)}


def program(folder: Path, files: Path, **settings: Any) -> StreamEnvironment:
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "local_dir": str(folder / "local"),
        "parallelism": 2,
        "until_idle": True,
        "max_records_per_epoch": 150,
        "first_records_per_epoch": 150,
        "restart": RestartPolicy(attempts=8, first_delay=0.05),
    }
    env = StreamEnvironment("asked", **{**defaults, **settings})
    source = FileSource(str(files), format="json", watch=0.05, lanes=1)
    numbers = env.from_source(source, watermarks=Watermarks.monotonous(timestamp="time"), name="numbers")
    spread = numbers.rebalance()
    squares = spread.async_map(Squares(), capacity=20, retry=RETRY, timeout=60, name="squares")
    loose = spread.async_map(Squares(), capacity=20, ordered=False, retry=RETRY, name="loose")
    found = spread.lookup_join("key", names, how="left", cache=LookupCache(size=10), batch=4, name="names")
    made: dict[str, Any] = {
        "total": squares.key_by("key").process(Total(), name="total"),
        "loose": loose,
        "names": found,
    }
    rows: list[Any] = [stream.map(tagged(kind), name=f"{kind}-rows") for kind, stream in made.items()]
    rows[0].union(*rows[1:]).sink_to(FileSink(str(folder / "out")), name="out")
    return env


def main() -> None:
    folder, files = map(Path, sys.argv[1:3])
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    result = program(folder, files, master="local[2,4]", spark_config=network).execute()
    print(f"epochs={result.epochs} restarts={result.restarts}", flush=True)


if __name__ == "__main__":
    main()
