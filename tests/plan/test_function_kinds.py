"""Functions whose call runs nothing are refused when the step is built: async ones; generators where one value is expected."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock import (
    CollectSink,
    FileSink,
    GeneratorSource,
    KeyedProcessFunction,
    SessionWindows,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
)
from penstock.errors import PlanError
from penstock.functions import FlatMapFunction


def env() -> StreamEnvironment:
    return StreamEnvironment("x", executor="inline")


def stream() -> Any:
    return env().from_collection([1, 2], name="in")


def keyed() -> Any:
    return stream().key_by(lambda n: n)


async def later(*values: Any) -> Any:
    return values


async def several_later(*values: Any) -> AsyncIterator[Any]:
    yield values


def several(*values: Any) -> Iterator[Any]:
    yield values


class Called:
    async def __call__(self, value: Any) -> Any:
        return value


class Timer(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    async def on_timer(self, timestamp: int, ctx: Any) -> Any:  # type: ignore[override]
        return None


STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda f: stream().map(f, name="s"),
    "filter": lambda f: stream().filter(f, name="s"),
    "key_by": lambda f: stream().key_by(f).sum(name="s"),
    "reduce": lambda f: keyed().reduce(f, name="s"),
    "fold": lambda f: keyed().fold(0, f, name="s"),
    "window reduce": lambda f: keyed().window(TumblingWindows(seconds=1)).reduce(f, name="s"),
    "gap": lambda f: keyed().window(SessionWindows(f)).sum(name="s"),
    "split": lambda f: stream().split({"even": f}, name="s"),
    "source": lambda f: env().from_source(GeneratorSource(f), name="s"),
    "timestamp": lambda f: env().from_collection([1], watermarks=Watermarks.monotonous(timestamp=f), name="s"),
    "punctuated": lambda f: env().from_collection([1], watermarks=Watermarks.punctuated(f), name="s"),
    "sink": lambda f: stream().sink_to(FileSink("/nowhere", partition_by=f), name="s"),
}
MANY: dict[str, Callable[[Any], Any]] = {
    "flat_map": lambda f: stream().flat_map(f, name="s"),
    "map_batches": lambda f: stream().map_batches(f, name="s"),
    "apply": lambda f: keyed().window(TumblingWindows(seconds=1)).apply(f, name="s"),
    "selector": lambda f: stream().split(f, name="s"),
}


@pytest.mark.parametrize("function", [later, several_later, functools.partial(later, 1)], ids=["async", "async for", "partial"])
@pytest.mark.parametrize("step", [*STEPS, *MANY])
def test_async_functions(step: str, function: Any) -> None:
    with pytest.raises(PlanError, match=r"step 's': .* is an async function, which is never awaited") as caught:
        {**STEPS, **MANY}[step](function)
    assert f"{__file__}:" in caught.value.detail
    assert "write it with def" in caught.value.hint


def test_async_methods() -> None:
    with pytest.raises(PlanError, match=r"on_timer\(timestamp, ctx\) is an async function"):
        keyed().process(Timer(), name="s")
    with pytest.raises(PlanError, match=r"map\(value\) is an async function"):
        stream().map(Called(), name="s")


@pytest.mark.parametrize("step", STEPS)
def test_generators_where_one_value_is_expected(step: str) -> None:
    with pytest.raises(PlanError, match=r"step 's': .* is a generator function") as caught:
        STEPS[step](several)
    assert f"{__file__}:" in caught.value.detail
    assert "flat_map" in caught.value.hint


@pytest.mark.parametrize("step", MANY)
def test_generators_where_several_records_are_expected(step: str) -> None:
    MANY[step](several)


def test_a_flat_map_class_may_yield() -> None:
    class Twice(FlatMapFunction[int, int]):
        def flat_map(self, value: int) -> Iterator[int]:
            yield value
            yield value

    twice = stream().flat_map(Twice())
    twice.sink_to(CollectSink())
