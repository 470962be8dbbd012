"""Declared aggregates: each against what Python says, merged in any way."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import aggregates as agg
from penstock import avg, count
from penstock.aggregates import approx_distinct, collect, first, last, stddev, top_n
from penstock.errors import ConfigError, PlanError
from penstock.state.encoding.untyped import decode_untyped, encode_untyped
from penstock.windows.aggregates import Aggregate
from penstock.windows.declared import Declared
from penstock.windows.sketches import EXACT, hash_of
from penstock.windows.window import GLOBAL, TimeWindow

numbers = st.lists(st.one_of(st.none(), st.integers(-1000, 1000)), max_size=30)

PYTHON: dict[str, tuple[Aggregate, Callable[[list[int]], Any]]] = {
    "count": (count("x"), len),
    "sum": (agg.sum("x"), lambda values: sum(values) if values else None),
    "min": (agg.min("x"), lambda values: min(values, default=None)),
    "max": (agg.max("x"), lambda values: max(values, default=None)),
    "avg": (avg("x"), lambda values: sum(values) / len(values) if values else None),
    "stddev": (stddev("x"), lambda values: statistics.stdev(values) if len(values) > 1 else None),
    "approx_distinct": (approx_distinct("x"), lambda values: len(set(values))),
    "top_n": (top_n(3, "x"), lambda values: sorted(values, reverse=True)[:3]),
    "collect": (collect("x"), list),
}


def held(aggregate: Aggregate, values: list[int | None]) -> Any:
    """The accumulator, after a trip through state."""
    get = aggregate.getter({"x": 1}, "test")
    accumulator = aggregate.create()
    for value in values:
        one = get({"x": value})
        if one is not None:
            accumulator = aggregate.add(accumulator, one)
    msgspec.msgpack.encode(accumulator)
    return decode_untyped(encode_untyped(accumulator))


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float | int):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right)


@pytest.mark.parametrize("name", sorted(PYTHON))
@given(parts=st.lists(numbers, min_size=1, max_size=4))
def test_merged_parts_are_the_whole(name: str, parts: list[list[int | None]]) -> None:
    aggregate, plainly = PYTHON[name]
    accumulator = held(aggregate, parts[0])
    for part in parts[1:]:
        accumulator = aggregate.merge(accumulator, held(aggregate, part))
    assert same(aggregate.result(accumulator), plainly([value for part in parts for value in part if value is not None]))


@given(parts=st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=8), min_size=1, max_size=4))
def test_the_first_and_the_last_by_time(parts: list[list[tuple[int, int]]]) -> None:
    whole = [pair for part in parts for pair in part]
    for aggregate in (first("x"), last("x")):
        accumulators = []
        for part in parts:
            accumulator = None
            for pair in part:
                accumulator = aggregate.add(accumulator, pair)
            accumulators.append(decode_untyped(encode_untyped(accumulator)))
        merged = accumulators[0]
        for accumulator in accumulators[1:]:
            merged = aggregate.merge(merged, accumulator)
        ordered = sorted(whole, key=lambda pair: pair[0])  # stable: equal times stay in order of arrival
        expected = None if not whole else ordered[0 if aggregate.kind == "first" else -1][1]
        assert aggregate.result(merged) == expected


def test_a_deviation_far_from_zero_is_not_lost() -> None:
    values: list[int | None] = [10**9 + n for n in range(10)]
    left, right = held(stddev("x"), values[:3]), held(stddev("x"), values[3:])
    assert stddev("x").result(stddev("x").merge(left, right)) == pytest.approx(statistics.stdev(range(10)))


@pytest.mark.parametrize("size", [EXACT, 1_000, 20_000, 200_000])
def test_distinct_values_are_counted_well(size: int) -> None:
    aggregate = approx_distinct()
    parts = []
    rng = random.Random(size)
    values = [f"user-{rng.randrange(10**12)}" for _ in range(size)]
    for start in range(0, size, 50_000):
        accumulator = aggregate.create()
        for value in values[start : start + 50_000]:
            accumulator = aggregate.add(accumulator, value)
        parts.append(accumulator)
    whole = parts[0]
    for part in parts[1:]:
        whole = aggregate.merge(whole, part)
    found, real = aggregate.result(whole), len(set(values))
    assert found == real if size <= EXACT else abs(found - real) / real < 0.05


def test_hashes_are_the_same_in_every_process() -> None:
    assert (hash_of("a"), hash_of(("a", 1))) == (15717115344539314789, 3335988758800432868)


def test_the_first_of_equals_comes_first() -> None:
    aggregate = top_n(2, "name", by="score")
    get = aggregate.getter({"name": "a", "score": 1}, "test")
    accumulator = aggregate.create()
    for name, score in [("a", 1), ("b", 2), ("c", 2), ("d", None), ("e", 2)]:
        one = get({"name": name, "score": score})
        if one is not None:
            accumulator = aggregate.add(accumulator, one)
    assert aggregate.result(accumulator) == ["b", "c"]
    with pytest.raises(ConfigError, match="n is 1 or more"):
        top_n(0)


@dataclass
class Reading:
    room: str
    temperature: float | None


def test_fields_of_any_record() -> None:
    declared = Declared((avg("temperature"), count(), count("temperature", name="known")), ("room",))
    accumulator = None
    for record in (Reading("a", 1.0), Reading("a", None), {"temperature": 3.0}):
        accumulator = declared.add(accumulator, record)
    assert accumulator is not None
    assert declared.row("a", TimeWindow(0, 5), accumulator) == {
        "room": "a",
        "window_start": 0,
        "window_end": 5,
        "avg_temperature": 2.0,
        "count": 3,
        "known": 2,
    }
    assert declared.row("a", GLOBAL, accumulator)["window_end"] is None
    by_position = Declared((agg.sum(1), agg.max(lambda record: -record[1])), ())
    assert by_position.row(None, TimeWindow(0, 1), by_position.add(None, ("a", 4))) == {
        "window_start": 0,
        "window_end": 1,
        "sum_f1": 4,
        "max": -4,
    }
    assert Declared((count(),), ("a", "b")).row((1, 2), TimeWindow(0, 1), [3]) == {
        "a": 1,
        "b": 2,
        "window_start": 0,
        "window_end": 1,
        "count": 3,
    }


def test_columns_have_names_of_their_own() -> None:
    with pytest.raises(PlanError, match="two columns of the result are called 'count'"):
        Declared((count(), count()), ())
    with pytest.raises(PlanError, match="two columns of the result are called 'room'"):
        Declared((count("x", name="room"),), ("room",))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(PlanError, match="no field 'temprature'"):
        Declared((avg("temprature"),), ()).add(None, {"temperature": 1})
