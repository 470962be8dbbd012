"""What chooses: `and`, `or`, `not`, `when`, `coalesce`.

Each first computes all its arguments for all rows, which is fast. If that fails, the rows are careful (`Rows.careful`): then an
argument is computed only for the rows that it decides, in the order in which it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.functions.kernels import plain
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, TypeProblemError, Types, Typing, register
from penstock.plan.expressions.rows import Argument, Rows
from penstock.plan.expressions.rules import common, logical
from penstock.plan.expressions.types import is_null, type_text

Indices = npt.NDArray[np.int64]


def _logic(kernel: str, decided: bool) -> Callable[[Options, tuple[pa.DataType, ...]], Kernel]:
    """`and` (decided by False) or `or` (decided by True)."""

    def make(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
        call = pc.get_function(kernel).call

        def compute(rows: Rows, left: Argument, right: Argument) -> Any:
            if not rows.careful:
                return call([left(rows), right(rows)])
            first = rows.array(left(rows))
            open_rows = np.flatnonzero(~_where(first, decided))
            if len(open_rows) == len(rows):
                return call([first, right(rows)])
            second = _computed(rows.take(open_rows), right, pa.bool_())
            return call([first, _scattered(len(rows), [(open_rows, second)], pa.bool_())])

        return compute

    return make


def _where(conditions: pa.Array, value: bool) -> npt.NDArray[np.bool_]:
    """The rows in which a condition is that value, and not null."""
    found = conditions if value else pc.invert(conditions)
    rows: npt.NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return rows


def _computed(rows: Rows, argument: Argument, kind: pa.DataType) -> pa.Array:
    """An argument for some rows; where there are none, nothing can fail."""
    return rows.array(argument(rows)) if len(rows) else pa.nulls(0, kind)


def _scattered(size: int, parts: Sequence[tuple[Indices, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Values in the rows that they belong to; null in others."""
    at = np.full(size, -1, dtype=np.int64)
    begin = 0
    for rows, _ in parts:
        at[rows] = np.arange(begin, begin + len(rows))
        begin += len(rows)
    values = pa.concat_arrays([values for _, values in parts]) if parts else pa.nulls(0, kind)
    return values.take(pa.array(at, mask=at < 0))


def _when_rule(types: Types, options: Options) -> Typing:
    if len(types) % 2 == 0:
        raise TypeProblemError("it takes pairs of a condition and a value, and a last value")
    conditions, values = types[:-1:2], (*types[1::2], types[-1])
    for kind in conditions:
        if kind is not None and not is_null(kind) and not pa.types.is_boolean(kind):
            raise TypeProblemError(f"a condition is true or false, not of type {type_text(kind)}")
    found = common(values)
    casts: list[pa.DataType | None] = [pa.bool_(), found] * len(conditions)
    return Typing((*casts, found), found)


def _when(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    kind = types[-1]

    def compute(rows: Rows, *arguments: Argument) -> Any:
        if rows.careful:
            return careful(rows, arguments)
        found = arguments[-1](rows)
        for condition, value in zip(reversed(arguments[:-1:2]), reversed(arguments[1::2]), strict=True):
            taken = pc.fill_null(condition(rows), False)
            found = pc.if_else(taken, value(rows), found)
        return found

    def careful(rows: Rows, arguments: Sequence[Argument]) -> pa.Array:
        parts: list[tuple[Indices, pa.Array]] = []
        left = np.arange(len(rows), dtype=np.int64)
        for condition, value in zip(arguments[:-1:2], arguments[1::2], strict=True):
            taken = _where(_computed(rows.take(left), condition, pa.bool_()), True)
            chosen = rows.take(left[taken])
            parts.append((left[taken], _computed(chosen, value, kind)))
            left = left[~taken]
        parts.append((left, _computed(rows.take(left), arguments[-1], kind)))
        return _scattered(len(rows), parts, kind)

    return compute


def _coalesce_rule(types: Types, options: Options) -> Typing:
    found = common(types)
    return Typing((found,) * len(types), found)


def _coalesce(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    kind = types[0]

    def compute(rows: Rows, *arguments: Argument) -> Any:
        if not rows.careful:
            return pc.coalesce(*(argument(rows) for argument in arguments))
        parts: list[tuple[Indices, pa.Array]] = []
        left = np.arange(len(rows), dtype=np.int64)
        for argument in arguments:
            values = _computed(rows.take(left), argument, kind)
            there = values.is_valid().to_numpy(zero_copy_only=False)
            parts.append((left[there], values.filter(pa.array(there))))
            left = left[~there]
        return _scattered(len(rows), parts, kind)

    return compute


register(Function(name="and", least=2, most=2, rule=logical, kernel=_logic("and_kleene", False), lazy=True, operator="&"))
register(Function(name="or", least=2, most=2, rule=logical, kernel=_logic("or_kleene", True), lazy=True, operator="|"))
register(Function(name="not", least=1, most=1, rule=logical, kernel=plain("invert")))
register(Function(name="when", least=3, most=None, rule=_when_rule, kernel=_when, lazy=True))
register(Function(name="coalesce", least=1, most=None, rule=_coalesce_rule, kernel=_coalesce, lazy=True))
