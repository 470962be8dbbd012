"""Parts of timestamps and dates, and moments rounded down. Those of a timestamp with a zone are of its local time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.functions.kernels import arrow, plain
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, TypeProblemError, Types, Typing, register
from penstock.plan.expressions.rules import Rule
from penstock.plan.expressions.types import is_integer, is_null, type_text

UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


def _moments(result: pa.DataType | None, *, dates: bool) -> Rule:
    def rule(types: Types, options: Options) -> Typing:
        kind = types[0]
        if kind is None or is_null(kind):
            null = None if kind is None else pa.timestamp("us")
            return Typing((null,), result or null)
        if is_integer(kind):
            raise TypeProblemError(
                f'it takes timestamps, not {type_text(kind)}: say .cast("timestamp[ms]") if it is milliseconds'
            )
        if not pa.types.is_timestamp(kind) and not (dates and pa.types.is_date(kind)):
            raise TypeProblemError(f"it takes timestamps{' and dates' if dates else ''}, not {type_text(kind)}")
        if pa.types.is_date(kind) and options.get("unit") in ("second", "minute", "hour"):
            raise TypeProblemError(f"a date has no {options['unit']}")
        return Typing((None,), result or kind)

    return rule


def _truncate(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    return arrow("floor_temporal", pc.RoundTemporalOptions(unit=options["unit"]))


def _is_unit(value: Any) -> bool:
    return value in UNITS


for _name in ("year", "quarter", "month", "day"):
    register(Function(name=_name, least=1, most=1, rule=_moments(pa.int64(), dates=True), kernel=plain(_name, cast=pa.int64())))
for _name in ("hour", "minute", "second"):
    register(Function(name=_name, least=1, most=1, rule=_moments(pa.int64(), dates=False), kernel=plain(_name, cast=pa.int64())))
register(
    Function(name="truncate", least=1, most=1, rule=_moments(None, dates=True), kernel=_truncate, options={"unit": _is_unit})
)
