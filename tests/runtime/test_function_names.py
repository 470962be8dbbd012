"""Errors name the user's function, with its file and line, wherever it was given."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

from penstock import AggregateFunction, SessionWindows, StreamEnvironment, Watermarks
from penstock.config import NO_RESTART
from penstock.errors import PenstockError, UserCodeError
from penstock.functions import MapFunction, function_location
from penstock.runtime.operators import map_batches
from penstock.runtime.operators.returned import rows_of


def environment() -> StreamEnvironment:
    return StreamEnvironment("failing", executor="inline", parallelism=1, restart=NO_RESTART)


def stream() -> Any:
    return environment().from_collection([1, 2, 0])


def broken(*values: Any) -> Any:
    raise ValueError("broken")


def scaled(factor: int, *values: Any) -> Any:
    raise ValueError(f"broken by {factor}")


class Adding(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        raise ValueError("broken")

    def result(self, accumulator: int) -> int:
        return accumulator


class Nothing(MapFunction[Any, Any]):
    pass


def place(function: Any) -> str:
    return f"({function.__code__.co_filename}:{function.__code__.co_firstlineno})"


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: stream().key_by(lambda n: 1).reduce(broken), f"broken {place(broken)}"),
        (lambda: stream().key_by(lambda n: 1).fold(0, broken), f"broken {place(broken)}"),
        (lambda: stream().key_by(lambda n: 1).aggregate(Adding()), f"Adding.add {place(Adding.add)}"),
        (lambda: stream().split(broken).select("a"), f"broken {place(broken)}"),
        (lambda: stream().map(functools.partial(scaled, 2)), f"scaled {place(scaled)}"),
    ],
    ids=["reduce", "fold", "aggregate", "split", "partial"],
)
def test_the_user_s_function_is_named(build: Any, named: str) -> None:
    with pytest.raises(UserCodeError, match="broken") as caught:
        build().execute_and_collect()
    assert f"function: {named}" in caught.value.detail.splitlines()


def test_the_function_of_a_gap_and_of_watermarks_is_named() -> None:
    assert function_location(SessionWindows(broken)) == f"broken {place(broken)}"
    watermarks: Watermarks[Any] = Watermarks.punctuated(broken)
    with pytest.raises(UserCodeError) as caught:
        environment().from_collection([1], watermarks=watermarks).execute_and_collect()
    assert f"timestamp: broken {place(broken)}" in caught.value.detail


def test_a_class_is_named_by_its_own_place() -> None:
    assert function_location(Nothing()).startswith(f"Nothing ({__file__}:")
    assert function_location(Nothing).startswith(f"Nothing ({__file__}:")


def test_what_has_no_place_has_its_name() -> None:
    assert function_location(math.sqrt) == "sqrt"
    assert function_location(int) == "int"


@pytest.mark.parametrize("format", ["arrow", "pandas"])
def test_the_result_of_map_batches_is_looked_at_once(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    once = rows_of

    def counted(result: Any, *about: Any) -> Any:
        looked.append(result)
        return once(result, *about)

    monkeypatch.setattr(map_batches, "rows_of", counted)
    stream().map_batches(lambda batch: batch, format=format).execute_and_collect()
    assert len(looked) == 1


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_seconds_with_fractions_are_told_of_their_unit(unit: Any) -> None:
    watermarks: Watermarks[Any] = Watermarks.monotonous(timestamp=lambda record: record["at"], unit=unit)
    with pytest.raises(PenstockError, match="is not a time") as caught:
        environment().from_collection([{"at": 1795031328.5}], watermarks=watermarks).execute_and_collect()
    assert 'unit="s"' in caught.value.hint


def test_other_fractions_are_not() -> None:
    watermarks: Watermarks[Any] = Watermarks.monotonous(timestamp="at")
    with pytest.raises(PenstockError, match="is not a time") as caught:
        environment().from_collection([{"at": 0.5}], watermarks=watermarks).execute_and_collect()
    assert 'unit="s"' not in caught.value.hint
