"""`cast`: a value in another type. What does not fit is an error, except that the fraction of a float is cut off, as Python's
`int` does; a float becomes the text that Python's `str` gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PlanError
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, TypeProblemError, Types, Typing, register
from penstock.plan.expressions.types import is_decimal, is_floating, is_integer, is_list, is_text, parse_type, type_text


def _rule(types: Types, options: Options) -> Typing:
    target = parse_type(str(options["to"]))
    kind = types[0]
    if kind is not None and not (is_floating(kind) and is_text(target)):
        try:
            pc.cast(pa.array([], type=kind), target)
        except pa.ArrowException as error:
            raise TypeProblemError(f"{type_text(kind)} cannot be cast to {type_text(target)}") from error
        if pa.types.is_struct(kind) or (is_list(kind) and not is_list(target)):
            raise TypeProblemError(f"{type_text(kind)} cannot be cast to {type_text(target)}")
    return Typing((None,), target)


def _cast(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    target, kind = parse_type(str(options["to"])), types[0]
    if kind == target:
        return lambda value: value
    if is_floating(kind) and is_integer(target):
        return lambda value: pc.trunc(value).cast(target)
    if is_floating(kind) and is_text(target):
        return lambda value: pa.array([None if one is None else str(one) for one in value.to_pylist()], type=target)
    if is_integer(kind) and is_decimal(target):
        widest = pa.decimal128(min(38, 20 + target.scale), target.scale)  # Arrow wants room for any whole number
        return lambda value: value.cast(widest).cast(target)
    if is_floating(target):
        return lambda value: value.cast(target, safe=False)
    return lambda value: value.cast(target)


def _is_type(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parse_type(value)
    except PlanError:
        return False
    return True


register(Function(name="cast", least=1, most=1, rule=_rule, kernel=_cast, options={"to": _is_type}, arrays=True))
