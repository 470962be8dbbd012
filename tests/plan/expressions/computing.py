"""Expressions over columns, without streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.plan.expressions.evaluation import Bound, rows_of
from penstock.plan.expressions.expression import Expression
from penstock.plan.schema import Schema


def compute(expression: Expression, **columns: Any) -> list[Any]:
    """The values of an expression; columns are lists, or arrays."""
    arrays = {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    return computed_array(expression, arrays).to_pylist()  # type: ignore[no-any-return]


def computed_array(expression: Expression, arrays: dict[str, pa.Array]) -> pa.Array:
    rows = rows_of(arrays, len(next(iter(arrays.values()))))
    bound = Bound(expression.node, Schema.of((name, column.type) for name, column in rows.columns.items()))
    found = bound(rows)
    assert found.type == bound.type, f"promised {bound.type}, gave {found.type}"
    return found
