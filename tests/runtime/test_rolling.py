"""Rolling aggregations of keyed streams, on every kind of record and key."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from penstock import AggregateFunction, StreamEnvironment
from penstock.functions import ReduceFunction
from penstock.testing import ScriptedSource, run_inline, running_counts, running_sums


@dataclass
class Visit:
    page: str
    count: int
    note: str = ""


@dataclass(frozen=True)
class FrozenVisit:
    page: str
    count: int
    note: str = ""


class TupleVisit(NamedTuple):
    page: str
    count: int  # type: ignore[assignment]
    note: str = ""


class StructVisit(msgspec.Struct):
    page: str
    count: int
    note: str = ""


class FrozenStructVisit(msgspec.Struct, frozen=True):
    page: str
    count: int
    note: str = ""


RAW = [("a", 3, "x"), ("b", 5, "y"), ("a", 1, "z"), ("a", 4, "w"), ("b", 5, "v"), ("a", 1, "u")]

KINDS: dict[str, Any] = {
    "dict": lambda p, c, n: {"page": p, "count": c, "note": n},
    "dataclass": Visit,
    "frozen dataclass": FrozenVisit,
    "named tuple": TupleVisit,
    "struct": StructVisit,
    "frozen struct": FrozenStructVisit,
}


def inline(values: list[Any], cut: int | None = None, parallelism: int = 2) -> Any:
    env = StreamEnvironment("rolling", parallelism=parallelism)
    return env.from_source(ScriptedSource(values, cut=cut))


def per_key(records: list[Any], page: Any = lambda r: r[0]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for record in records:
        found.setdefault(page(record), []).append(record)
    return found


@pytest.mark.parametrize("cut", [None, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_by_name(kind: str, cut: int | None) -> None:
    make = KINDS[kind]
    wanted = {
        "sum": [("a", 3, "x"), ("b", 5, "y"), ("a", 4, "z"), ("a", 8, "w"), ("b", 10, "v"), ("a", 9, "u")],
        "min": [("a", 3, "x"), ("b", 5, "y"), ("a", 1, "x"), ("a", 1, "x"), ("b", 5, "y"), ("a", 1, "x")],
        "max": [("a", 3, "x"), ("b", 5, "y"), ("a", 3, "x"), ("a", 4, "x"), ("b", 5, "y"), ("a", 4, "x")],
        "min_by": [("a", 3, "x"), ("b", 5, "y"), ("a", 1, "z"), ("a", 1, "z"), ("b", 5, "y"), ("a", 1, "z")],
        "max_by": [("a", 3, "x"), ("b", 5, "y"), ("a", 3, "x"), ("a", 4, "w"), ("b", 5, "y"), ("a", 4, "w")],
    }
    for method, expected in wanted.items():
        stream = inline([make(*row) for row in RAW], cut).key_by("page")
        found = run_inline(getattr(stream, method)("count", name="rolling"))
        page = (lambda r: r["page"]) if kind == "dict" else (lambda r: r.page)
        assert per_key(found, page) == per_key([make(*row) for row in expected], page), method


@pytest.mark.parametrize("cut", [None, 1])
def test_by_position(cut: int | None) -> None:
    assert sorted(run_inline(inline(RAW, cut).key_by(0).sum(1))) == sorted(
        [("a", 3, "x"), ("b", 5, "y"), ("a", 4, "z"), ("a", 8, "w"), ("b", 10, "v"), ("a", 9, "u")]
    )
    named = run_inline(inline([TupleVisit(*row) for row in RAW], cut).key_by(0).max_by(1))
    assert all(isinstance(record, TupleVisit) for record in named)
    assert named[-1] in (TupleVisit("a", 4, "w"), TupleVisit("b", 5, "y"))


def test_plain_numbers() -> None:
    numbers = [5, 2, 9, 4]
    assert run_inline(inline(numbers, 1).key_by(lambda n: "all").sum()) == [5, 7, 16, 20]
    assert run_inline(inline(numbers).key_by(lambda n: "all").min()) == [5, 2, 2, 2]
    assert run_inline(inline(numbers, 2).key_by(lambda n: "all").max_by()) == [5, 5, 9, 9]
    decimals = [Decimal("1.5"), Decimal(2)]
    assert run_inline(inline(decimals, 1).key_by(lambda n: "all").sum()) == [Decimal("1.5"), Decimal("3.5")]


class Longest(ReduceFunction[str]):
    def reduce(self, left: str, right: str) -> str:
        return left if len(left) >= len(right) else right


class Average(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


@pytest.mark.parametrize("cut", [None, 1, 2])
def test_reduce_fold_aggregate(cut: int | None) -> None:
    words = ["a", "ccc", "bb", "dddd"]
    assert run_inline(inline(words, cut).key_by(lambda w: 0).reduce(Longest())) == ["a", "ccc", "ccc", "dddd"]
    assert run_inline(inline(words, cut).key_by(lambda w: 0).reduce(lambda x, y: x + y)) == ["a", "accc", "acccbb", "acccbbdddd"]
    assert run_inline(inline(words, cut).key_by(lambda w: 0).fold(10, lambda n, w: n + len(w))) == [11, 14, 16, 20]
    assert run_inline(inline([1, 2, 6], cut).key_by(lambda n: 0).aggregate(Average())) == [1.0, 1.5, 3.0]


@pytest.mark.parametrize("cut", [None, 1])
def test_a_fold_that_changes_its_value_in_place(cut: int | None) -> None:
    """What was emitted is not changed afterwards, however the input is cut."""

    def collect(seen: list[int], number: int) -> list[int]:
        seen.append(number)
        return seen

    assert run_inline(inline([1, 2, 3], cut).key_by(lambda n: 0).fold([], collect)) == [[1], [1, 2], [1, 2, 3]]


@dataclass(frozen=True)
class Place:
    street: str
    number: int


KEYS: dict[str, tuple[Any, list[Any]]] = {
    "none": (None, [None, "x", None, "x"]),
    "long": (None, ["k" * 600, "k" * 600 + "1", "k" * 600, "k" * 5000, "k" * 5000]),
    "one, true and 1.0 are three keys": (None, [1, True, 1.0, 1, True, 1.0, False, 0]),
    "so they are inside of tuples": (None, [(1, "a"), (True, "a"), (1.0, "a"), (1, "a"), (True, "a")]),
    "nested": (None, [(1, ("a", None)), (1, ("a", None)), (1, ("b", None))]),
    "bytes and text": (None, [b"a", "a", b"a", "a"]),
    "dataclass": (Place, [Place("x", 1), Place("x", 2), Place("x", 1)]),
}


def exact(key: Any) -> Any:
    """Equal only to what is the same key."""
    return (type(key).__name__, tuple(map(exact, key))) if isinstance(key, tuple) else (type(key).__name__, key)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("cut", [None, 1])
def test_keys(kind: str, cut: int | None) -> None:
    key_type, keys = KEYS[kind]
    stream = inline([(key, 1) for key in keys], cut, parallelism=3)
    found = run_inline(stream.key_by(lambda r: r[0], key_type=key_type).sum(1))
    expected = running_sums([(exact(key), 1) for key in keys])
    assert sorted(((exact(k), n) for k, n in found), key=repr) == sorted(expected, key=repr)


def test_several_columns() -> None:
    rows = [{"a": i % 2, "b": i % 3, "n": i} for i in range(12)]
    expected = sorted(running_counts(rows, lambda r: (r["a"], r["b"])))
    for batches in (False, True):
        stream = inline(rows, 5, parallelism=3)
        if batches:
            stream = stream.map_batches(lambda batch: batch)
        counted = stream.map(lambda r: {**r, "one": 1}).key_by("a", "b").sum("one")
        assert sorted(((r["a"], r["b"]), r["one"]) for r in run_inline(counted)) == expected


def test_columns_as_keys() -> None:
    rows = [{"k": k, "n": 1} for k in ["x", None, "y", None, "x"]]
    stream = inline(rows, 2, parallelism=2).map_batches(lambda batch: pa.RecordBatch.from_pylist(batch.to_pylist()))
    found = run_inline(stream.key_by("k").sum("n"))
    assert sorted(((r["k"], r["n"]) for r in found), key=str) == sorted(
        [("x", 1), ("x", 2), ("y", 1), (None, 1), (None, 2)], key=str
    )
