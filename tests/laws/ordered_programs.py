"""Programs that see order, made at random, and the input for them: what they give must not depend on the cut into epochs.

Every result carries how many came before it for its key, what the watermark was and whether time had ended: a record or a timer
in another place shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import (
    CollectionSource,
    DataStream,
    FileSink,
    KeyedProcessFunction,
    ListState,
    StreamEnvironment,
    ValueState,
    Watermarks,
)
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.executors.inline import InlineExecutor
from penstock.functions import KeyedCoProcessFunction
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.runtime.operators.co_process import KeyedCoProcess

Event = tuple[int, int, int]
"""A key, a time, and a number."""


@dataclass(frozen=True)
class Program:
    """What a random program is like. `parts`: source partitions of each source; the second has `records // shorter` records."""

    seed: int
    parts: tuple[int, ...]
    records: int
    keys: int
    parallelism: int
    slack: int
    every: int | None
    apart: int
    speeds: tuple[int, ...]
    shape: str
    ahead: int
    deletes: bool
    sets_again: bool
    shorter: int = 1


class Watcher(KeyedProcessFunction[int, Event, Any]):
    """Counts the records of a key, and tells at a timer what it has seen."""

    seen = ValueState(int, default=0)
    due: ValueState[int | None] = ValueState(int)
    held: ListState[int] = ListState(int)

    def __init__(self, ahead: int, deletes: bool, sets_again: bool) -> None:
        self.ahead, self.deletes, self.sets_again = ahead, deletes, sets_again

    def process(self, value: Event, ctx: Any) -> Iterator[Any]:
        self.seen.update(self.seen.value + 1)
        self.held.add(value[2])
        if self.deletes and self.due.value is not None and value[2] % 3:
            ctx.timers.delete_event_time(self.due.value)
        self.due.update(value[1] + self.ahead)
        ctx.timers.register_event_time(value[1] + self.ahead)
        if value[2] % 7 == 0:
            ctx.timers.register_event_time(value[1] - 20)  # which may be due already
        if value[2] % 4 == 0:
            yield ctx.key, value[1], self.seen.value * 1000 + ctx.current_watermark % 1000

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        held = list(self.held)
        if self.sets_again and len(held) > 2:
            ctx.timers.register_event_time(timestamp + self.ahead // 2)
        yield ctx.key, timestamp, self.seen.value * 1_000_000 + sum(held) * 10 + 2 * int(ctx.timers.ended) + len(held) % 2
        self.held.clear()


class Meeting(KeyedCoProcessFunction[int, Event, Event, Any]):
    """What both streams of a key have done so far is in each result of either."""

    first = ValueState(int, default=0)
    second = ValueState(int, default=0)
    held: ListState[int] = ListState(int)

    def __init__(self, ahead: int, deletes: bool) -> None:
        self.ahead, self.deletes = ahead, deletes

    def process1(self, value: Event, ctx: Any) -> Iterator[Any]:
        self.first.update(self.first.value + 1)
        self.held.add(value[2])
        ctx.timers.register_event_time(value[1] + self.ahead)
        if value[2] % 4 == 0:
            yield ctx.key, value[1], self._seen() * 1000 + ctx.current_watermark % 1000

    def process2(self, value: Event, ctx: Any) -> Iterator[Any]:
        self.second.update(self.second.value + 1)
        if self.deletes and value[2] % 3:
            ctx.timers.delete_event_time(value[1] + self.ahead)
        if value[2] % 5 == 0:
            ctx.timers.register_event_time(value[1] - 20)  # which may be due already
        yield ctx.key, value[1], self._seen() * 1000 + 500 + ctx.current_watermark % 500

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.key, timestamp, self._seen() * 1_000_000 + sum(self.held) * 10 + int(ctx.timers.ended)
        self.held.clear()

    def _seen(self) -> int:
        return self.first.value * 100 + self.second.value


class Listener(KeyedProcessFunction[int, Event, dict[str, Any]]):
    """Tells in what order it sees records."""

    seen = ValueState(int, default=0)

    def process(self, value: Event, ctx: Any) -> Iterator[dict[str, Any]]:
        self.seen.update(self.seen.value + 1)
        ctx.timers.register_event_time(value[1] + 5)
        yield {"key": ctx.key, "n": self.seen.value, "value": list(value), "w": ctx.current_watermark}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[dict[str, Any]]:
        self.seen.update(self.seen.value + 1)
        yield {"key": ctx.key, "n": self.seen.value, "value": [timestamp], "w": int(ctx.timers.ended)}


def events(program: Program, source: int) -> tuple[list[Event], int]:
    """The records of a source, and its number of partitions: each has as many records, and a speed and a beginning of its own."""
    rng = random.Random(program.seed * 31 + source)
    parts = program.parts[source]
    records = program.records // program.shorter if source else program.records
    each = max(1, records // parts)
    found: list[Event] = []
    for part in range(parts):
        time = rng.randrange(program.apart + 1) + 1_000
        speed = program.speeds[(source + part) % len(program.speeds)]
        for _ in range(each):
            time += rng.randrange(speed + 1)
            late = rng.randrange(program.slack + 1)
            found.append((rng.randrange(program.keys), time - late, len(found) + source * 5))
    return found, parts


def build(env: StreamEnvironment, program: Program) -> DataStream[Any]:
    streams: list[DataStream[Any]] = []
    for source in range(len(program.parts)):
        values, parts = events(program, source)
        every = None if program.every is None else program.every / 1000
        watermarks: Watermarks[Any] = Watermarks.bounded(seconds=program.slack / 1000, timestamp=_time, every=every)
        streams.append(
            env.from_source(CollectionSource(values, partitions=parts), watermarks=watermarks, name=f"events-{source}")
        )
    if "alone" in program.shape:
        heard = [_heard(_seen(stream, program, f"-{number}"), f"-{number}") for number, stream in enumerate(streams)]
        return heard[0] if len(heard) == 1 else heard[0].union(*heard[1:])
    stream = streams[0] if len(streams) == 1 else streams[0].union(*streams[1:])
    if "spread" in program.shape:
        stream = stream.rebalance().map(_same)
    if "forked" in program.shape:
        stream = stream.map(_same).union(stream.filter(_odd).map(_shifted))
    if "met" in program.shape:
        second = streams[1] if len(streams) > 1 else streams[0].filter(_odd).map(_shifted)
        seen = _met(streams[0].rebalance().map(_same) if "spread" in program.shape else streams[0], second, program)
    elif "apart" in program.shape:
        first, *others = [_seen(part, program, f"-{number}") for number, part in enumerate(streams)]
        seen = first.union(*others) if others else first
    else:
        seen = _seen(stream, program)
    if "past" in program.shape:
        seen = seen.union(stream.map(_shifted))
    if "twice" in program.shape:
        seen = seen.key_by(_second).process(Watcher(program.ahead // 2 + 1, False, False), name="second")
    return _heard(seen)


def _seen(stream: DataStream[Any], program: Program, number: str = "") -> DataStream[Any]:
    watcher = Watcher(program.ahead, program.deletes, program.sets_again)
    return stream.key_by(_key).process(watcher, name=f"watcher{number}")


def _met(first: DataStream[Any], second: DataStream[Any], program: Program) -> DataStream[Any]:
    env = first._env
    inputs = first.key_by(_key)._input(), second.key_by(_key)._input()
    definition = KeyedCoProcess(body=Meeting(program.ahead, program.deletes))
    return DataStream(env, env._add(definition, *inputs, name="meeting", label="co-process"))


def _heard(stream: DataStream[Any], number: str = "") -> DataStream[Any]:
    return stream.key_by(_second).process(Listener(), name=f"listener{number}")


def _time(event: Event) -> int:
    return event[1]


def _key(event: Event) -> int:
    return event[0]


def _second(event: Event) -> int:
    return (event[0] + event[1]) % 3


def _same(event: Event) -> Event:
    return event


def _odd(event: Event) -> bool:
    return event[2] % 2 == 1


def _shifted(event: Event) -> Event:
    return event[0], event[1], event[2] + 100_000


def outcome(program: Program, **settings: Any) -> list[Any]:
    """What a program gives, in one go."""
    env = StreamEnvironment("ordered", executor="inline", parallelism=program.parallelism, restart=NO_RESTART, **settings)
    return sorted(map(_plain, build(env, program).execute_and_collect()))


class _Stopped(BaseException):
    """The driver dies here: nothing catches this."""


class _Dies(InlineExecutor):
    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def run(self, order: EpochOrder) -> list[TaskReport]:
        if self._left == 0:
            raise _Stopped
        self._left -= 1
        return super().run(order)


def outcome_with_restarts(program: Program, folder: Path, runs: list[tuple[int, int]]) -> list[Any]:
    """What it gives if it dies again and again; `runs`: after how many epochs, and records of an epoch at most."""
    for epochs, records in [*runs, (1 << 30, runs[-1][1])]:
        env = StreamEnvironment(
            "ordered",
            executor="inline",
            parallelism=program.parallelism,
            restart=NO_RESTART,
            storage=str(folder / "storage"),
            local_dir=str(folder / "local"),
            max_records_per_epoch=records,
        )
        build(env, program).sink_to(FileSink(str(folder / "out"), format="json"), name="out")
        try:
            env.execute(executor=_Dies(epochs))
            break
        except _Stopped:
            continue
    return sorted(map(_plain, read_rows(folder / "out")))


def _plain(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["key"], row["n"], tuple(row["value"]), row["w"]
