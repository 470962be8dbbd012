"""A function that returns one value, where records are yielded, is refused: the value would be taken apart."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock import KeyedProcessFunction, ProcessFunction, StreamEnvironment, TumblingWindows, WindowFunction
from penstock.errors import ReturnedValueError
from penstock.testing import End, Record, ScriptedSource, Watermark, run_inline, scripted_watermarks


@dataclass
class Reading:
    room: str

    def __iter__(self) -> Iterator[str]:
        yield self.room


class Pair(NamedTuple):
    left: int
    right: int


class Struct(msgspec.Struct):
    room: str


ONE: dict[str, Any] = {
    "str": "abc",
    "empty str": "",
    "bytes": b"abc",
    "bytearray": bytearray(b"abc"),
    "dict": {"room": "attic"},
    "empty dict": {},
    "dataclass": Reading("attic"),
    "named tuple": Pair(1, 2),
    "struct": Struct("attic"),
    "int": 5,
    "zero": 0,
    "float": 0.5,
    "bool": True,
    "array": np.arange(3),
    "frame": pd.DataFrame({"n": [1]}),
    "arrow array": pa.array([1, 2]),
    "batch": pa.record_batch({"n": [1]}),
    "object": SimpleNamespace(n=1),
    "class": Reading,
}

SEVERAL: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2],
    "tuple": lambda: (1, 2),
    "generator": lambda: (n for n in (1, 2)),
    "iterator": lambda: iter([1, 2]),
    "map": lambda: map(int, "12"),
    "range": lambda: range(1, 3),
    "set": lambda: {1, 2},
    "deque": lambda: deque([1, 2]),
    "keys": lambda: {1: "a", 2: "b"}.keys(),
    "values": lambda: {"a": 1, "b": 2}.values(),
    "subclass of list": lambda: type("Many", (list,), {})([1, 2]),
}


class Process(ProcessFunction[Any, Any]):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process(self, value: Any, ctx: Any) -> Any:
        return self.make()


class Keyed(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process(self, value: Any, ctx: Any) -> Any:
        return self.make()


class OnTimer(Keyed):
    def process(self, value: Any, ctx: Any) -> Any:
        ctx.timers.register_event_time(5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return self.make()


class InWindow(WindowFunction[Any, Any, Any]):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process(self, values: list[Any], ctx: Any) -> Any:
        return self.make()


def source(timed: bool) -> Any:
    env = StreamEnvironment("returned", parallelism=1)
    if not timed:
        return env.from_collection(["x"])
    return env.from_source(ScriptedSource([Record("x", 1), Watermark(10), End()]), watermarks=scripted_watermarks())


STEPS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "flat_map": lambda make: source(False).flat_map(lambda value: make(), name="step"),
    "process": lambda make: source(False).process(Process(make), name="step"),
    "keyed process": lambda make: source(False).key_by(lambda v: v).process(Keyed(make), name="step"),
    "keyed process with times": lambda make: source(True).key_by(lambda v: v).process(Keyed(make), name="step"),
    "on_timer": lambda make: source(True).key_by(lambda v: v).process(OnTimer(make), name="step"),
    "window process": lambda make: (
        source(True).key_by(lambda v: v).window(TumblingWindows(seconds=1)).process(InWindow(make), name="step")
    ),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("value", ONE)
def test_one_value_is_refused(step: str, value: str) -> None:
    with pytest.raises(ReturnedValueError) as caught:
        run_inline(STEPS[step](lambda: ONE[value]))
    text = str(caught.value)
    assert re.match(
        rf"step 'step': \w+ returned one value, of type {type(ONE[value]).__qualname__}, where records are yielded", text
    )
    assert re.search(r"function: \S+ \(\S*test_returned_values.py:\d+\)", text)
    assert "hint: to emit it as one record, yield it" in text


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("value", SEVERAL)
def test_several_values_are_emitted(step: str, value: str) -> None:
    assert sorted(run_inline(STEPS[step](SEVERAL[value]))) == [1, 2]
    assert run_inline(STEPS[step](lambda: None)) == []


@pytest.mark.parametrize("value", ["str", "dict", "dataclass", "array", "arrow array"])
def test_functions_of_whole_batches(value: str) -> None:
    with pytest.raises(ReturnedValueError, match="step 'step': map_batches returned one value"):
        run_inline(source(False).map_batches(lambda batch: ONE[value], name="step"))
    windows = source(True).key_by(lambda v: v).window(TumblingWindows(seconds=1))
    with pytest.raises(ReturnedValueError, match="apply returned one value"):
        run_inline(windows.apply(lambda key, window, batch: ONE[value], name="step"))


def test_a_window_may_return_a_frame() -> None:
    windows = source(True).key_by(lambda v: v).window(TumblingWindows(seconds=1))
    assert run_inline(windows.apply(lambda key, window, batch: batch.to_pandas())) == [{"value": "x"}]


@pytest.mark.parametrize("errors", ["skip", "dead_letter"])
def test_no_policy_hides_it(errors: Any) -> None:
    """The function is wrong, not the record."""
    for stream in (
        source(False).process(Process(lambda: "abc"), errors=errors),
        source(False).flat_map(lambda value: "abc", errors=errors),
        source(False).key_by(lambda v: v).process(Keyed(lambda: "abc"), errors=errors),
    ):
        with pytest.raises(ReturnedValueError):
            run_inline(stream)
