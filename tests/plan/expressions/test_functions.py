"""Each function: what it gives, for null too, and what it refuses."""

# ruff: noqa: DTZ001 - times without a zone are what is tested

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock import col, lit, when
from penstock.errors import PlanError
from penstock.expressions import coalesce, concat
from penstock.plan.expressions.checking import ExpressionError
from penstock.plan.expressions.registry import known_functions
from tests.plan.expressions.computing import compute

A: Any = col("a")
B: Any = col("b")
S: Any = col("s")
T: Any = col("t")
MOMENT = datetime(2024, 5, 17, 3, 4, 5, 6)
BIG = (1 << 63) - 1

GIVES: list[tuple[Any, dict[str, Any], list[Any]]] = [
    (A + 1, {"a": [1, None]}, [2, None]),
    (1 + A, {"a": [1.5, None]}, [2.5, None]),
    (A - B, {"a": [1, 2], "b": [3, None]}, [-2, None]),
    (5 - A, {"a": [1]}, [4]),
    (A * B, {"a": [2, 3], "b": [0.5, 2.0]}, [1.0, 6.0]),
    (A / 2, {"a": [1, 3, None]}, [0.5, 1.5, None]),
    (A // 2, {"a": [7, -7, None]}, [3, -4, None]),
    (A // 2.0, {"a": [7, -7]}, [3.0, -4.0]),
    (A % 3, {"a": [7, -7, None]}, [1, 2, None]),
    (A % -3.5, {"a": [7.5, -1.0]}, [-3.0, -1.0]),
    (A**2, {"a": [3, None]}, [9, None]),
    (2**A, {"a": [3.0]}, [8.0]),
    (-A, {"a": [3, None]}, [-3, None]),
    (A.abs(), {"a": [-3, None]}, [3, None]),
    (A.round(), {"a": [2.5, 3.5, None]}, [2.0, 4.0, None]),
    (A.round(1), {"a": [2.44]}, [2.4]),
    (A.round(-1), {"a": [44]}, [40]),
    (A.floor(), {"a": [2.5, -2.5]}, [2.0, -3.0]),
    (A.ceil(), {"a": [2.5, -2.5]}, [3.0, -2.0]),
    (A.floor(), {"a": [7]}, [7]),
    (A.sqrt(), {"a": [9, None]}, [3.0, None]),
    (A.exp(), {"a": [0.0]}, [1.0]),
    (A.ln(), {"a": [1.0]}, [0.0]),
    (A * 2, {"a": [Decimal("1.50"), None]}, [Decimal("3.00"), None]),
    (A == B, {"a": [1, 2, None], "b": [1, 3, None]}, [True, False, None]),
    (A != 1, {"a": [1, 2, None]}, [False, True, None]),
    (A < 2.5, {"a": [1, 3]}, [True, False]),
    (A <= 1, {"a": [1, 3]}, [True, False]),
    (Decimal("1.2") < A, {"a": [1, 3]}, [False, True]),
    (A >= "b", {"a": ["a", "b", None]}, [False, True, None]),
    (float("nan") == A, {"a": [float("nan")]}, [False]),
    (A.is_nan(), {"a": [float("nan"), 1.0, None]}, [True, False, None]),
    (A & B, {"a": [True, False, None, None], "b": [None, None, False, True]}, [None, False, False, None]),
    (A | B, {"a": [True, False, None, None], "b": [None, None, False, True]}, [True, None, None, True]),
    (~A, {"a": [True, False, None]}, [False, True, None]),
    (True & A, {"a": [True, None]}, [True, None]),
    (False | A, {"a": [True, None]}, [True, None]),
    (A.is_null(), {"a": [1, None]}, [False, True]),
    (A.is_not_null(), {"a": [1, None]}, [True, False]),
    (A.is_in([1, 2]), {"a": [1, 3, None]}, [True, False, None]),
    (A.is_in([1, None]), {"a": [1, 3, None]}, [True, None, None]),
    (A.is_in([]), {"a": [1, None]}, [False, None]),
    (A.is_in([1.0, float("nan")]), {"a": [1, 3]}, [True, False]),
    (A.between(2, 3), {"a": [1, 2, 3, 4, None]}, [False, True, True, False, None]),
    (S.lower(), {"s": ["ÄB", None]}, ["äb", None]),
    (S.upper(), {"s": ["äb", None]}, ["ÄB", None]),
    (S.length(), {"s": ["äb✅", None]}, [3, None]),
    (A.length(), {"a": [[1, 2], [], None]}, [2, 0, None]),
    (A.length(), {"a": [b"abc"]}, [3]),
    (S.contains("b"), {"s": ["abc", "x", None]}, [True, False, None]),
    (S.starts_with("a"), {"s": ["abc", "x"]}, [True, False]),
    (S.ends_with("c"), {"s": ["abc", "x"]}, [True, False]),
    (S.like("a%_"), {"s": ["abc", "a", None]}, [True, False, None]),
    (S.like(r"a\%"), {"s": ["a%", "ab"]}, [True, False]),
    (S.regexp("^a.c$"), {"s": ["abc", "abcd"]}, [True, False]),
    (S.substring(1, 2), {"s": ["äöüß", "x", None]}, ["öü", "", None]),
    (S.substring(2), {"s": ["abcd"]}, ["cd"]),
    (S.trim(), {"s": ["  a ", None]}, ["a", None]),
    (S.trim("xy"), {"s": ["xay"]}, ["a"]),
    (S.trim_start(), {"s": [" a "]}, ["a "]),
    (S.trim_end("x"), {"s": ["xax"]}, ["xa"]),
    (S.replace("a", "bb"), {"s": ["aca"]}, ["bbcbb"]),
    (S + "!", {"s": ["a", None]}, ["a!", None]),
    (concat(S, "-", S), {"s": ["a", None]}, ["a-a", None]),
    (T.year(), {"t": [MOMENT, None]}, [2024, None]),
    (T.quarter(), {"t": [date(2024, 5, 17)]}, [2]),
    (T.month(), {"t": [date(2024, 5, 17)]}, [5]),
    (T.day(), {"t": [MOMENT]}, [17]),
    (T.hour(), {"t": [MOMENT]}, [3]),
    (T.minute(), {"t": [MOMENT]}, [4]),
    (T.second(), {"t": [MOMENT]}, [5]),
    (T.truncate("hour"), {"t": [MOMENT, None]}, [datetime(2024, 5, 17, 3), None]),
    (T.truncate("week"), {"t": [MOMENT]}, [datetime(2024, 5, 13)]),
    (T.truncate("month"), {"t": [date(2024, 5, 17)]}, [date(2024, 5, 1)]),
    (T + timedelta(days=1), {"t": [MOMENT, None]}, [MOMENT + timedelta(days=1), None]),
    (T - datetime(2024, 5, 17), {"t": [MOMENT]}, [MOMENT - datetime(2024, 5, 17)]),
    (datetime(2024, 1, 1, tzinfo=UTC) < T, {"t": [MOMENT.replace(tzinfo=UTC)]}, [True]),
    (A.field("x"), {"a": [{"x": 1}, None]}, [1, None]),
    (A.element(0), {"a": [[1, 2], [], None]}, [1, None, None]),
    (A.element(-1), {"a": [[1, 2], [3], None]}, [2, 3, None]),
    (A.cast(str), {"a": [1, None]}, ["1", None]),
    (A.cast(str), {"a": [1.0, 1e300]}, ["1.0", "1e+300"]),
    (A.cast(int), {"a": [1.9, -1.9, None]}, [1, -1, None]),
    (A.cast(int), {"a": ["12"]}, [12]),
    (A.cast("timestamp[ms]"), {"a": [1000]}, [datetime(1970, 1, 1, 0, 0, 1)]),
    (A.cast("decimal(10, 2)"), {"a": [1]}, [Decimal("1.00")]),
    (coalesce(A, B, 0), {"a": [1, None, None], "b": [5, 6, None]}, [1, 6, 0]),
    (when(A > 1).then("big").when(A == 1).then("one").otherwise(None), {"a": [2, 1, 0, None]}, ["big", "one", None, None]),
    (when(A.is_null()).then(0).otherwise(A + 0.5), {"a": [None, 1]}, [0.0, 1.5]),
    (lit(5), {"a": [1, 2]}, [5, 5]),
]


@pytest.mark.parametrize(("expression", "columns", "expected"), GIVES, ids=[repr(case[0]) for case in GIVES])
def test_gives(expression: Any, columns: dict[str, Any], expected: list[Any]) -> None:
    assert compute(expression, **columns) == expected


def test_each_function_is_tested() -> None:
    text = " ".join(str(case[0].to_data()) for case in GIVES)
    assert [name for name in known_functions() if f"'{name}'" not in text] == []


FAILS: list[tuple[Any, dict[str, Any], str]] = [
    (A + 1, {"a": [BIG]}, "overflow"),
    (A * A, {"a": [1 << 40]}, "overflow"),
    (-A, {"a": [-BIG - 1]}, "overflow"),
    (A.abs(), {"a": [-BIG - 1]}, "overflow"),
    (A // -1, {"a": [-BIG - 1]}, "overflow"),
    (A**64, {"a": [2]}, "overflow"),
    (1 / A, {"a": [0]}, "divide by zero"),
    (1.0 / A, {"a": [0.0]}, "divide by zero"),
    (1 // A, {"a": [0]}, "divide by zero"),
    (1 % A, {"a": [0.0]}, "divide by zero"),
    (A.sqrt(), {"a": [-1.0]}, "square root of negative"),
    (A.ln(), {"a": [0.0]}, "logarithm of zero"),
    (A.cast(int), {"a": [1e300]}, "Float value"),
    (A.cast(int), {"a": ["x"]}, "Failed to parse"),
    (A.cast("int8"), {"a": [300]}, "not in range"),
    (A + 1, {"a": pa.array([1 << 63], pa.uint64())}, "not in range"),
]


@pytest.mark.parametrize(("expression", "columns", "message"), FAILS, ids=[repr(case[0]) for case in FAILS])
def test_fails_for_values(expression: Any, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=message):
        compute(expression, **columns)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (A + "x", {"a": [1]}, "it takes numbers, not string"),
    (A == "x", {"a": [1]}, "int64 and string cannot be compared"),
    (A == True, {"a": [1]}, "int64 and bool cannot be compared"),  # noqa: E712
    (A == MOMENT, {"a": [MOMENT.replace(tzinfo=UTC)]}, "timestamp with|cannot be compared"),
    (A == A, {"a": [[1]]}, "cannot be compared"),
    (A & 1, {"a": [True]}, "it takes conditions, not int64"),
    (A.lower(), {"a": [1]}, "it takes strings, not int64"),
    (A.year(), {"a": [1]}, r'\.cast\("timestamp\[ms\]"\)'),
    (A.truncate("hour"), {"a": [date(2024, 1, 1)]}, "a date has no hour"),
    (A.field("xx"), {"a": [{"x": 1}]}, "there is no field 'xx'; the fields are x: did you mean x"),
    (A.element(0), {"a": [1]}, "it takes lists"),
    (A.is_in(["x"]), {"a": [1]}, "cannot be compared"),
    (when(A > 0).then(1).otherwise("x"), {"a": [1]}, "alternatives are of one type, not int64 and string"),
    (when(A).then(1).otherwise(2), {"a": [1]}, "a condition is true or false"),
    (coalesce(A, "x"), {"a": [1]}, "alternatives are of one type"),
    (A + 1.5, {"a": [Decimal(1)]}, "decimals and floats do not mix"),
    (A / 2, {"a": [Decimal(1)]}, "cast to float64"),
    (A.cast(int), {"a": [{"x": 1}]}, "cannot be cast"),
    (A.regexp("("), {"a": ["x"]}, "the pattern '\\(' is not possible"),
    (A + A, {"a": [MOMENT]}, "a moment and a duration"),
    (col("amuont") > 1, {"amount": [1]}, "there is no column 'amuont'"),
]


@pytest.mark.parametrize(("expression", "columns", "message"), REFUSED, ids=[repr(case[0]) for case in REFUSED])
def test_refused_for_types(expression: Any, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        compute(expression, **columns)


MISUSED: list[tuple[Any, str]] = [
    (lambda: bool(A == 1), "neither true nor false"),
    (lambda: A == 1 and B == 2, "neither true nor false"),
    (lambda: 1 < A < 3, "neither true nor false"),
    (lambda: list(A), "has no elements"),
    (lambda: 1 in A, "has no elements"),
    (lambda: col(""), "a column has a name"),
    (lambda: A + {1}, "cannot be part of an expression"),
    (lambda: A + (1 << 64), "does not fit into 64 bits"),
    (lambda: A.contains(B), "is a constant, not a column"),
    (lambda: A.contains(1), "contains: pattern=1 is not possible"),
    (lambda: A.substring(-1), "start=-1 is not possible"),
    (lambda: A.truncate("fortnight"), "unit='fortnight' is not possible"),
    (lambda: A.cast("itn64"), "there is no type 'itn64'"),
    (lambda: A.cast(dict), "is not a type"),
    (lambda: A.is_in("abc"), "no list of values"),
    (lambda: A.is_in([1, "a"]), "of one type"),
    (lambda: A.alias(""), "a name is a string"),
    (lambda: A + when(A > 1).then(1), "a choice has no end"),
]


@pytest.mark.parametrize(("use", "message"), MISUSED, ids=[case[1] for case in MISUSED])
def test_misuse_is_explained(use: Any, message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        use()


def test_what_is_not_chosen_is_not_computed() -> None:
    columns = {"a": [2, 0, None, 4], "b": [1, 1, 1, 0]}
    assert compute(when(A != 0).then(8 // A).otherwise(-1), **columns) == [4, -1, -1, 2]
    assert compute((A != 0) & (8 // A > 2), **columns) == [True, False, None, False]
    assert compute((A == 0) | (8 // A > 2), **columns) == [True, True, None, False]
    assert compute(coalesce(A, 8 // B), a=[0, None], b=[0, 2]) == [0, 4]
    with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
        compute(coalesce(A, 8 // B), a=[0, None], b=[1, 0])


def test_columns_in_other_encodings() -> None:
    words = pa.array(["a", "b", None, "a"])
    for column in (words.dictionary_encode(), words.cast(pa.large_string()), words.cast(pa.string_view())):
        assert compute(S.upper() == "A", s=column) == [True, False, None, True]
    assert compute(A.element(1), a=pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))) == [2, None, 4]
    assert compute(A.element(1), a=pa.array([[0], [1, 2], None, [3]]).slice(1)) == [2, None, None]
    for small in (pa.int8(), pa.uint16(), pa.int32()):
        assert compute(A + 1, a=pa.array([127, None], small)) == [128, None]
