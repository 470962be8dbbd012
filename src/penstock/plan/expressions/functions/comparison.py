"""Comparisons, `is_in`, `between`, and what asks for null. A comparison with null is null."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.functions.kernels import arrow, plain
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, Types, Typing, register
from penstock.plan.expressions.rules import anything, comparable, of
from penstock.plan.expressions.types import is_floating


def _in_rule(types: Types, options: Options) -> Typing:
    value, several = types
    element = None if several is None else several.value_type
    casts = comparable((value, element), options).casts
    target = casts[1]
    return Typing((casts[0], None if target is None or several is None else pa.list_(target)), pa.bool_())


def _is_in(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    call = pc.get_function("is_in").call
    known: list[Any] = []

    def kernel(value: Any, several: Any) -> Any:
        if not known:
            values = several.values
            has_null = values.null_count > 0
            values = values.drop_null()
            if is_floating(values.type):
                values = values.filter(pc.invert(pc.is_nan(values)))
            known.extend((pc.SetLookupOptions(values), has_null))
        lookup, has_null = known
        found = call([value], lookup)
        unknown = pc.is_null(value)
        if has_null:
            unknown = pc.or_(unknown, pc.invert(found))
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)

    return kernel


def _between(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    above, below, both = arrow("greater_equal"), arrow("less_equal"), arrow("and_kleene")
    return lambda value, low, high: both(above(value, low), below(value, high))


for _name, _symbol in (
    ("equal", "=="),
    ("not_equal", "!="),
    ("less", "<"),
    ("less_equal", "<="),
    ("greater", ">"),
    ("greater_equal", ">="),
):
    register(Function(name=_name, least=2, most=2, rule=comparable, kernel=plain(_name), operator=_symbol))
register(Function(name="between", least=3, most=3, rule=comparable, kernel=_between))
register(Function(name="is_in", least=2, most=2, rule=_in_rule, kernel=_is_in, constants=(1,)))
register(Function(name="is_null", least=1, most=1, rule=anything(pa.bool_()), kernel=plain("is_null")))
register(Function(name="is_not_null", least=1, most=1, rule=anything(pa.bool_()), kernel=plain("is_valid")))
register(
    Function(
        name="is_nan",
        least=1,
        most=1,
        rule=of("floats", is_floating, pa.bool_(), null=pa.float64()),
        kernel=plain("is_nan"),
    )
)
