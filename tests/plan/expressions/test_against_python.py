"""Any expression gives what a naive evaluation in Python gives, row by row; and fails for the rows for which that fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from penstock.expressions import Expression
from tests.plan.expressions.computing import computed_array
from tests.plan.expressions.random_expressions import COLUMNS, EXPRESSIONS, ROWS, RowError, naive, same

TYPES = {"i": pa.int64(), "j": pa.int64(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_()}


def arrays(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row[name] for row in rows], TYPES[name]) for name in COLUMNS}


@given(EXPRESSIONS, ROWS)
def test_gives_what_python_gives(expression: Expression, rows: list[dict[str, Any]]) -> None:
    good: list[dict[str, Any]] = []
    expected: list[Any] = []
    for row in rows:
        try:
            expected.append(naive(expression.node, row))
            good.append(row)
        except RowError:
            with pytest.raises(pa.ArrowInvalid):
                computed_array(expression, arrays([row]))
    if good:
        found = computed_array(expression, arrays(good)).to_pylist()
        wrong = [
            case for case in zip(good, found, map(as_computed(expression, good), expected), strict=True) if not same(*case[1:])
        ]
        assert not wrong, f"{expression!r}: {wrong[:3]}"


def as_computed(expression: Expression, rows: list[dict[str, Any]]) -> Any:
    """Whole numbers in an expression of floats are floats there."""
    floating = pa.types.is_floating(computed_array(expression, arrays(rows)).type)
    return lambda value: float(value) if floating and isinstance(value, int) else value
