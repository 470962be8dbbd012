"""Functions that are awaited, and those that are not: each where it belongs, or refused when the step is built."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.config import LookupCache, Retry
from penstock.errors import ConfigError, PenstockError, PlanError
from penstock.functions import AsyncFunction, MapFunction


def stream() -> Any:
    return StreamEnvironment("x", executor="inline").from_collection([1, 2], name="in")


def plain(value: Any) -> Any:
    return value


async def awaited(value: Any) -> Any:
    return value


async def generated(value: Any) -> AsyncIterator[Any]:
    yield value


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(value: Any) -> Any:
        return function(value)

    return wrapped


class Asks(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> int:
        return value


class Bare(AsyncFunction[int, int]):
    pass


class Maps(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value


class CalledLater:
    async def __call__(self, value: Any) -> Any:
        return value


WELL: dict[str, Callable[[], Any]] = {
    "async": lambda: stream().async_map(awaited),
    "partial": lambda: stream().async_map(functools.partial(awaited)),
    "lambda": lambda: stream().async_map(lambda value: awaited(value)),
    "decorated": lambda: stream().async_map(twice(awaited)),
    "called": lambda: stream().async_map(CalledLater()),
    "class": lambda: stream().async_map(Asks()),
    "threads": lambda: stream().async_map(plain, threads=True),
    "class in threads": lambda: stream().async_map(Maps(), threads=True),
    "generator": lambda: stream().async_flat_map(generated),
    "lookup": lambda: stream().lookup_join(lambda value: value, awaited),
    "lookup in threads": lambda: stream().lookup_join(0, plain, threads=True),
}
REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "plain": (lambda: stream().async_map(plain, name="s"), "step 's': .* is not an async function", "threads=True"),
    "plain flat": (lambda: stream().async_flat_map(plain), "is not an async function", "async def"),
    "plain lookup": (lambda: stream().lookup_join(0, plain), "is not an async function", "threads=True"),
    "awaited in threads": (lambda: stream().async_map(awaited, threads=True), "is an async function", "leave threads=True out"),
    "generator": (lambda: stream().async_map(generated), "async generator function", "async_flat_map"),
    "no method": (lambda: stream().async_map(Bare()), r"no async_invoke\(value\)", "write a method"),
    "of another kind": (lambda: stream().async_map(Maps()), r"no async_invoke\(value\)", "write a method"),
    "class": (lambda: stream().async_map(Asks), "this is a class", r"give an instance: Asks\(\)"),
    "arguments": (lambda: stream().async_map(lambda: awaited(1)), r"cannot be called as async_invoke\(value\)", "one argument"),
    "in map": (lambda: stream().map(awaited), "is an async function, which is never awaited", "async_map"),
    "capacity": (lambda: stream().async_map(awaited, capacity=0), "capacity=0", "1 or more"),
    "batch": (lambda: stream().async_map(awaited, batch=2.5), "batch=2.5", "whole number"),
    "timeout": (lambda: stream().async_map(awaited, timeout=0), "less than a millisecond", "leave it out"),
    "retry": (lambda: stream().async_map(awaited, retry=3), "retry=3", "Retry"),
    "errors": (lambda: stream().async_map(awaited, errors="ignore"), "errors='ignore'", "skip"),
    "attempts": (lambda: Retry(attempts=-1), "attempts=-1", "0 or more"),
    "exceptions": (lambda: Retry(on=(OSError, "ValueError")), "on=", "classes of exceptions"),  # type: ignore[arg-type]
    "attempt's time": (lambda: Retry(attempt_timeout=0), "less than a millisecond", "leave it out"),
    "size": (lambda: LookupCache(size=0), "size=0", "room for one key"),
    "ttl": (lambda: LookupCache(ttl=0), "less than a millisecond", "cache=None"),
}


@pytest.mark.parametrize("case", WELL)
def test_taken(case: str) -> None:
    WELL[case]()


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    build, what, hint = REFUSED[case]
    with pytest.raises((PlanError, ConfigError), match=what) as caught:
        build()
    assert isinstance(caught.value, PenstockError)
    assert hint.replace("\\", "") in caught.value.hint


def test_unordered_changes() -> None:
    changes = stream().map(lambda value: {"kind": "+I"}).as_changes("kind")
    changes.async_map(awaited)
    with pytest.raises(PlanError, match="does not take -U"):
        changes.async_map(awaited, ordered=False)


def test_explain() -> None:
    asked = stream().async_map(awaited, capacity=5, timeout=2, retry=Retry(attempts=2), errors="skip", name="ask")
    joined = asked.lookup_join(("a", "b"), awaited, how="left", cache=LookupCache(size=9, ttl=60), name="join")
    joined.print()
    text = joined._env.explain()
    assert "ask: async_map\n" in text
    assert "calls in order, 5 at once in a task, timeout 2000 ms, again 2 times after 100 ms and up to 10000 ms\n" in text
    assert "join left, by a, b\n" in text
    assert "cache 9 keys in each partition for 60000 ms\n" in text
