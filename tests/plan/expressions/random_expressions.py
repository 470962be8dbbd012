"""Random expressions over four columns, and what they are by a naive evaluation in Python: row by row, with SQL's nulls."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from penstock import col, lit, when
from penstock.expressions import Expression, coalesce, concat
from penstock.plan.expressions.nodes import Call, Column, Literal, Node

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
EDGES = [0, 1, -1, 2, 7, 1 << 31, INT_MAX, INT_MIN, INT_MAX - 1]

INTS = st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-100, 100))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 1e308]), st.floats(-100, 100))
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "Ab", "äÖ", "a%b", " x "]), st.text("abÄ ✅", max_size=4))
TRUTHS = st.one_of(st.none(), st.booleans())

ROWS = st.lists(st.fixed_dictionaries({"i": INTS, "j": INTS, "x": FLOATS, "s": WORDS, "b": TRUTHS}), min_size=1, max_size=12)
COLUMNS = ("i", "j", "x", "s", "b")


class RowError(Exception):
    """The row has no value."""


def _of_ints(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda p: p[0] + p[1]),
        two.map(lambda p: p[0] - p[1]),
        two.map(lambda p: p[0] * p[1]),
        two.map(lambda p: p[0] // p[1]),
        two.map(lambda p: p[0] % p[1]),
        two.map(lambda p: coalesce(*p)),
        inner.map(lambda e: -e),
        inner.map(lambda e: e.abs()),
        st.tuples(_truths(inner), inner, inner).map(lambda p: when(p[0]).then(p[1]).otherwise(p[2])),
    )


def _truths(ints: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    two = st.tuples(ints, ints)
    return st.one_of(
        two.map(lambda p: p[0] == p[1]),
        two.map(lambda p: p[0] < p[1]),
        two.map(lambda p: p[0] >= p[1]),
        st.tuples(ints, ints, ints).map(lambda p: p[0].between(p[1], p[2])),
        st.tuples(ints, st.lists(INTS, max_size=3)).map(lambda p: p[0].is_in(p[1])),
        ints.map(lambda e: e.is_null()),
        st.just(col("b")),
    )


INT_EXPRESSIONS = st.recursive(
    st.one_of(st.just(col("i")), st.just(col("j")), INTS.filter(lambda v: v is not None).map(lit)), _of_ints, max_leaves=6
)
FLOAT_EXPRESSIONS = st.recursive(
    st.one_of(st.just(col("x")), st.just(col("i")), st.floats(-10, 10).map(lit)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1] * 1.0),
        st.tuples(inner, inner).map(lambda p: p[0] / p[1]),
        inner.map(lambda e: (e * 1.0).floor()),
        inner.map(lambda e: when(e > 1.5).then(e * 1.0).otherwise(None)),
    ),
    max_leaves=5,
)
WORD_EXPRESSIONS = st.recursive(
    st.one_of(st.just(col("s")), st.sampled_from(["", "b", "ä"]).map(lit)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: concat(p[0], "-", p[1])),
        inner.map(lambda e: e.upper()),
        inner.map(lambda e: e.trim()),
        st.tuples(inner, st.integers(0, 3), st.integers(0, 3)).map(lambda p: p[0].substring(p[1], p[2])),
        st.tuples(inner, inner).map(lambda p: coalesce(*p)),
    ),
    max_leaves=4,
)
TRUTH_EXPRESSIONS = st.recursive(
    st.one_of(
        _truths(INT_EXPRESSIONS),
        WORD_EXPRESSIONS.map(lambda e: e.contains("a")),
        WORD_EXPRESSIONS.map(lambda e: e.length() > 1),
        FLOAT_EXPRESSIONS.map(lambda e: e > 0.5),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
        inner.map(lambda e: ~e),
    ),
    max_leaves=4,
)
EXPRESSIONS = st.one_of(INT_EXPRESSIONS, FLOAT_EXPRESSIONS, WORD_EXPRESSIONS, TRUTH_EXPRESSIONS)


def naive(node: Node, row: dict[str, Any]) -> Any:
    """The value of an expression for a row, as Python computes it; `RowError` if there is none."""
    if isinstance(node, Column):
        return row[node.name]
    if isinstance(node, Literal):
        return node.value
    if node.function in _LAZY:
        return _LAZY[node.function](node, row)
    values = [naive(argument, row) for argument in node.arguments]
    if node.function == "is_null":
        return values[0] is None
    if node.function == "between":
        value, low, high = values
        return _all([_compared(operator.ge, value, low), _compared(operator.le, value, high)])
    if node.function == "is_in":
        value, several = values
        if value is None:
            return None
        found = any(value == one for one in several if one is not None)
        return found or (None if None in several else False)
    if any(value is None for value in values):
        return None
    return _checked(_STRICT[node.function](dict(node.options), *values))


def _checked(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and not INT_MIN <= value <= INT_MAX:
        raise RowError("overflow")
    return value


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else compare(left, right)


def _all(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _and(node: Call, row: dict[str, Any]) -> bool | None:
    left = naive(node.arguments[0], row)
    return False if left is False else _all([left, naive(node.arguments[1], row)])


def _or(node: Call, row: dict[str, Any]) -> bool | None:
    left = naive(node.arguments[0], row)
    if left is True:
        return True
    right = naive(node.arguments[1], row)
    return True if right is True else None if left is None or right is None else False


def _when(node: Call, row: dict[str, Any]) -> Any:
    *pairs, last = node.arguments
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        if naive(condition, row) is True:
            return naive(value, row)
    return naive(last, row)


def _coalesce(node: Call, row: dict[str, Any]) -> Any:
    return next((value for value in (naive(argument, row) for argument in node.arguments) if value is not None), None)


_LAZY: dict[str, Callable[[Call, dict[str, Any]], Any]] = {"and": _and, "or": _or, "when": _when, "coalesce": _coalesce}


def _divided(compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def divide(options: Any, left: Any, right: Any) -> Any:
        if right == 0:
            raise RowError("divide by zero")
        return compute(left, right)

    return divide


_STRICT: dict[str, Callable[..., Any]] = {
    "add": lambda o, a, b: a + b,
    "subtract": lambda o, a, b: a - b,
    "multiply": lambda o, a, b: a * b,
    "divide": _divided(lambda a, b: float(a) / float(b)),
    "floor_divide": _divided(operator.floordiv),
    "modulo": _divided(operator.mod),
    "negate": lambda o, a: -a,
    "abs": lambda o, a: abs(a),
    "floor": lambda o, a: a if math.isnan(a) or math.isinf(a) else float(math.floor(a)),
    "equal": lambda o, a, b: a == b,
    "less": lambda o, a, b: a < b,
    "greater": lambda o, a, b: a > b,
    "greater_equal": lambda o, a, b: a >= b,
    "not": lambda o, a: not a,
    "upper": lambda o, a: a.upper(),
    "trim": lambda o, a: a.strip(),
    "substring": lambda o, a: a[o["start"] : o["start"] + o["length"]],
    "contains": lambda o, a: o["pattern"] in a,
    "length": lambda o, a: len(a),
    "concat": lambda o, *values: "".join(values),
}


def same(left: Any, right: Any) -> bool:
    """Equal, of the same type, NaN being NaN."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    return type(left) is type(right) and bool(left == right)
