"""A function that cannot be called as its step will call it is refused when the step is built."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    AggregateFunction,
    EventTimeTrigger,
    FileSink,
    GeneratorSource,
    GlobalWindows,
    KeyedProcessFunction,
    ReducingState,
    SessionWindows,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
    WindowFunction,
    avg,
)
from penstock.errors import PlanError
from penstock.functions import MapFunction
from penstock.timing import WatermarkGenerator
from penstock.windows import DeltaEvictor, DeltaTrigger, Trigger

BARE: Any = lambda: 1  # noqa: E731
SINGLE: Any = lambda a: a  # noqa: E731


def stream() -> Any:
    return StreamEnvironment("x", executor="inline").from_collection([1, 2], name="in")


def env() -> StreamEnvironment:
    return StreamEnvironment("x", executor="inline")


def timed(watermarks: Watermarks[Any]) -> Any:
    return env().from_collection([1, 2], watermarks=watermarks, name="s")


def keyed() -> Any:
    return stream().key_by(lambda n: n)


def windows(**options: Any) -> Any:
    return keyed().window(TumblingWindows(seconds=1), **options)


class Ticking(WatermarkGenerator[Any]):
    def on_record(self, record: Any) -> None:  # type: ignore[override]
        return None


class Bare(Trigger):
    def on_record(self, record: Any) -> Any:  # type: ignore[override]
        return None


class Reducing(KeyedProcessFunction[Any, Any, Any]):
    total = ReducingState(int, SINGLE)

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.add(value)


class NoContext(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any) -> Any:  # type: ignore[override]
        return None


class BareTimer(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        return None

    def on_timer(self, ctx: Any) -> Any:  # type: ignore[override]
        return None


class Opens(MapFunction[Any, Any]):
    def open(self) -> None:  # type: ignore[override]
        pass

    def map(self, value: Any) -> Any:
        return value


class Nothing(MapFunction[Any, Any]):
    pass


class NoResult(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator


class Swapped(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self, value: Any) -> int:  # type: ignore[override]
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator

    def result(self, accumulator: int) -> int:
        return accumulator


class Windowed(WindowFunction[Any, Any, Any]):
    def process(self, values: Any) -> Any:  # type: ignore[override]
        return None


@dataclass
class Reading:
    room: str
    celsius: float


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: stream().map(lambda: 1, name="s"), "map(value)"),
        (lambda: stream().filter(lambda a, b: True, name="s"), "filter(value)"),
        (lambda: stream().flat_map(lambda a, *, depth: [], name="s"), "flat_map(value)"),
        (lambda: stream().map(Reading, name="s"), "map(value)"),
        (lambda: stream().map(Opens(), name="s"), "open(context)"),
        (lambda: stream().map_batches(lambda: None, name="s"), "map_batch(batch)"),
        (lambda: stream().key_by(lambda: 1).process(BareTimer(), name="s"), "on_timer(timestamp, ctx)"),
        (lambda: stream().key_by(lambda a, b: 1).reduce(lambda a, b: a, name="s"), "key(value)"),
        (lambda: stream().key_by(lambda n: n).process(NoContext(), name="s"), "process(value, ctx)"),
        (lambda: stream().key_by(lambda n: n).reduce(lambda a: a, name="s"), "reduce(left, right)"),
        (lambda: stream().key_by(lambda n: n).fold(0, lambda a: a, name="s"), "fold(result, value)"),
        (lambda: stream().key_by(lambda n: n).aggregate(Swapped(), name="s"), "create_accumulator()"),
        (lambda: windows().reduce(lambda a: a, name="s"), "reduce(left, right)"),
        (lambda: windows().aggregate(Swapped(), name="s"), "create_accumulator()"),
        (lambda: windows().process(Windowed(), name="s"), "process(values, ctx)"),
        (lambda: windows().apply(lambda batch: batch, name="s"), "apply(key, window, batch)"),
        (lambda: windows().aggregate(avg(BARE, name="a"), name="s"), "value(record)"),
        (lambda: keyed().window(SessionWindows(BARE)).sum(name="s"), "gap(record)"),
        (lambda: keyed().window(GlobalWindows(), trigger=DeltaTrigger(1, SINGLE)).sum(name="s"), "delta(one, other)"),
        (lambda: windows(evictor=DeltaEvictor(1, SINGLE)).sum(name="s"), "delta(one, other)"),
        (lambda: windows(trigger=EventTimeTrigger(early=Bare())).sum(name="s"), "on_record(record, timestamp, window, timers)"),
        (lambda: keyed().process(Reducing(), name="s"), "reduce(left, right)"),
        (lambda: stream().split(BARE, name="s"), "selector(value)"),
        (lambda: stream().split({"a": BARE}, name="s"), "accepts(value)"),
        (lambda: stream().sink_to(FileSink("/nowhere", partition_by=BARE), name="s"), "partition_by(record)"),
        (lambda: env().from_source(GeneratorSource(BARE), name="s"), "function(n)"),
        (lambda: env().from_source(GeneratorSource(BARE, vectorised=True), name="s"), "function(numbers)"),
        (lambda: timed(Watermarks.monotonous(timestamp=BARE)), "timestamp(record)"),
        (lambda: timed(Watermarks.bounded(seconds=1, timestamp=BARE)), "timestamp(record)"),
        (lambda: timed(Watermarks.punctuated(SINGLE)), "function(record, timestamp)"),
        (lambda: timed(Watermarks.custom(SINGLE)), "generator()"),
        (lambda: timed(Watermarks.custom(Ticking)), "on_record(record, timestamp)"),
    ],
)
def test_arguments_that_do_not_fit(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(PlanError) as caught:
        build()
    error = caught.value
    assert "step 's'" in error.what
    assert f"cannot be called as {says}" in error.what
    assert "function: " in error.detail
    assert f"{__file__}:" in error.detail or "Reading" in error.detail
    assert error.hint.startswith("let it take ")


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: stream().map(Nothing(), name="s"), "Nothing has no map(value)"),
        (lambda: stream().key_by(lambda n: n).aggregate(NoResult(), name="s"), "NoResult has no result(accumulator)"),
        (lambda: windows().aggregate(NoResult(), name="s"), "NoResult has no result(accumulator)"),
    ],
)
def test_methods_that_are_missing(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(PlanError) as caught:
        build()
    assert caught.value.what == f"step 's': {says}"
    assert f"({__file__}:" in caught.value.detail


def added(n: int, more: int = 1, *rest: int, factor: int = 2) -> int:
    return (n + more) * factor


@pytest.mark.parametrize(
    "function",
    [
        str,
        int,
        math.sqrt,
        abs,
        operator.itemgetter(0),
        functools.partial(added, more=2),
        added,
        "{}".format,
        print,
        lambda *everything: everything,
        [1, 2].index,
        type,
    ],
)
def test_what_fits_or_cannot_be_known_is_taken(function: Any) -> None:
    stream().map(function)


def test_a_refused_step_is_not_in_the_plan() -> None:
    env = StreamEnvironment("x", executor="inline")
    numbers: Any = env.from_collection([1, 2])
    with pytest.raises(PlanError):
        numbers.map(lambda: 1, name="s")
    numbers.map(lambda n: n, name="s")
