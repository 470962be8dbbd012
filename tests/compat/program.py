"""A program with every kind of state. It is kept as it is: the savepoints beside it were made of it, and must be restored by it.

events ─→ by key ─┬─ account: values, list, map, reducing, aggregating, with and without a ttl, timers of both kinds
                  ├─ tumbling and session windows over columns
                  ├─ tumbling windows, record by record: all records, and incrementally
                  └─ session windows, record by record, with a trigger that has state
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock import (
    AggregateFunction,
    AggregatingState,
    CollectSink,
    CountTrigger,
    GeneratorSource,
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
    WindowFunction,
    aggregates,
    count,
)
from penstock.windows import WindowContext, per_window

EVENTS, BEFORE = 400, 260
"""How many there are, and how many of them were read before the savepoint."""

Row = dict[str, Any]


def event(number: int) -> Row:
    """All events of a key are in one source partition, so their order is that of their numbers."""
    return {"key": f"key {number * 7 % 12}", "time": number * 1_000 + number * 7919 % 500, "amount": number * 37 % 101}


@dataclass
class Purchase:
    amount: int
    price: Decimal
    at: datetime
    tags: list[str] = field(default_factory=list)
    note: str | None = None


class Mean(AggregateFunction[int, tuple[int, int], int]):
    """The mean, rounded down."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0] // accumulator[1]

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] + right[1])


def add(left: int, right: int) -> int:
    return left + right


class Account(KeyedProcessFunction[str, Row, Row]):
    """Tells, for each event, what all states say."""

    number = ValueState(int, default=0)
    last: ValueState[Purchase] = ValueState(Purchase)
    lately: ValueState[int] = ValueState(int, default=0, ttl=Ttl(timedelta(seconds=20), time="event"))
    amounts: ListState[int] = ListState(int)
    recent: ListState[int] = ListState(int, ttl=Ttl(timedelta(seconds=40), time="event"))
    by_size: MapState[str, int] = MapState(str, int)
    seen: MapState[tuple[int, str], bool] = MapState(tuple[int, str], bool, ttl=timedelta(days=10_000))
    total: ReducingState[int] = ReducingState(int, add)
    mean: AggregatingState[int, int] = AggregatingState(Mean(), tuple[int, int])

    def process(self, value: Row, ctx: KeyedContext[str]) -> Iterator[Row]:
        amount, time = value["amount"], value["time"]
        before: Purchase | None = self.last.value
        self.number.update(self.number.value + 1)
        self.lately.update(self.lately.value + 1)
        self.amounts.add(amount)
        self.recent.add(amount)
        size = "large" if amount > 50 else "small"
        self.by_size[size] = self.by_size.get(size, 0) + amount
        self.seen[(amount % 3, size)] = True
        self.total.add(amount)
        self.mean.add(amount)
        at = datetime.fromtimestamp(time // 1000, UTC)
        self.last.update(Purchase(amount, Decimal(amount) / 4, at, [size], None if amount % 2 else "even"))
        ctx.timers.register_event_time(time + 30_000)
        ctx.timers.register_processing_time(10**14 + time)
        yield {
            "step": "account",
            "key": ctx.key,
            "number": self.number.value,
            "before": None
            if before is None
            else [before.amount, str(before.price), before.at.isoformat(), before.tags, before.note],
            "lately": self.lately.value,
            "amounts": sum(self.amounts),
            "recent": sorted(self.recent),
            "by_size": sorted(self.by_size.items()),
            "seen": sorted(self.seen.keys()),
            "total": self.total.value,
            "mean": self.mean.value,
        }

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[Row]:
        yield {"step": "account timer", "key": ctx.key, "time": timestamp, "number": self.number.value}


class Everything(WindowFunction[str, Row, Row]):
    """Of all records of a window."""

    of_window = per_window(ValueState(int, default=0))
    of_key = ValueState(int, default=0)

    def process(self, values: list[Row], ctx: WindowContext[str]) -> Iterator[Row]:
        self.of_window.update(self.of_window.value + 1)
        self.of_key.update(self.of_key.value + 1)
        yield {
            "window": [ctx.window.start, ctx.window.end],
            "key": ctx.key,
            "amounts": [value["amount"] for value in values],
            "numbers": [self.of_window.value, self.of_key.value],
        }


class Labelled:
    """The record with the name of the step it comes from."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __call__(self, record: Row) -> Row:
        return {"step": self.step, **record}


def program(sink: CollectSink, **settings: Any) -> StreamEnvironment:
    """The job. Its epochs have 20 events each."""
    defaults: dict[str, Any] = {"parallelism": 2, "max_parallelism": 4, "max_records_per_epoch": 20, "executor": "inline"}
    env = StreamEnvironment("compat", **{**defaults, **settings})
    source = GeneratorSource(event, count=EVENTS, partitions=2, batch_size=10)
    watermarks: Watermarks[Row] = Watermarks.bounded(slack=timedelta(seconds=2), timestamp="time")
    events = env.from_source(source, watermarks=watermarks, name="events")
    keyed = events.key_by("key", key_type=str)
    tumbling = keyed.window(TumblingWindows(seconds=50), allowed_lateness=timedelta(seconds=10))
    sessions = keyed.window(SessionWindows(timedelta(seconds=6)))
    often = keyed.window(SessionWindows(timedelta(seconds=6)), trigger=CountTrigger(3))
    declared = (count(), aggregates.sum("amount", name="total"), aggregates.max("amount", name="largest"))
    results = {
        "tumbling-columns": tumbling.aggregate(*declared, name="tumbling-columns"),
        "sessions-columns": sessions.aggregate(*declared, name="sessions-columns"),
        "tumbling-records": tumbling.aggregate(*declared, name="tumbling-records", columnar=False),
        "tumbling-all": tumbling.process(Everything(), name="tumbling-all", state_type=Row),
        "sessions-often": often.aggregate(*declared, name="sessions-often"),
    }
    labelled = [stream.map(Labelled(step), name=f"{step}-labelled") for step, stream in results.items()]
    account = keyed.process(Account(), name="account")
    account.union(*labelled, name="all").sink_to(sink, name="results")
    return env
