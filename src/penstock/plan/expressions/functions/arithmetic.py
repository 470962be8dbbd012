"""Arithmetic as Python's, in 64 bits.

Whole numbers are checked: what does not fit is an error. `/` of whole numbers gives a float, `//` and `%` round down, division by
zero is an error. Floats are IEEE 754's otherwise: an overflow is inf, and NaN stays NaN. `+` also puts strings together, and `+`
and `-` move timestamps by durations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.functions.kernels import Make, arrow, is_whole, numpy_kernel, plain
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, TypeProblemError, Types, Typing, register
from penstock.plan.expressions.rules import arithmetic, floating, result_type
from penstock.plan.expressions.types import is_decimal, is_floating, is_integer, is_null, is_text, type_text

_LEAST = -(1 << 63)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date(kind))


def _sum_rule(kernel: str) -> Any:
    """Numbers, or moments and durations; `add` also takes strings."""

    def rule(types: Types, options: Options) -> Typing:
        known = [kind for kind in types if kind is not None and not is_null(kind)]
        if None not in types and not known:  # nulls, of numbers, texts or times: nobody knows
            return Typing((None, None), pa.null())
        if kernel == "add_checked" and known and all(map(is_text, known)):
            casts = tuple(known[0] if kind is not None and is_null(kind) else None for kind in types)
            return Typing(casts, None if None in types else pa.string())
        if not any(map(_is_time, known)):
            return arithmetic(kernel)(types, options)
        if len(known) < len(types):
            if any(kind is not None and is_null(kind) for kind in types):
                raise TypeProblemError("a null of no type cannot be added to a time: cast it")
            return Typing((None, None), None)
        if sum(map(pa.types.is_duration, known)) == 0 and kernel == "add_checked":
            raise TypeProblemError(f"it takes a moment and a duration, not {' and '.join(map(type_text, known))}")
        found = result_type(kernel, known)
        if not _is_time(found):
            raise TypeProblemError(f"it does not take {' and '.join(map(type_text, known))}")
        return Typing((None, None), found)

    return rule


def _add(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    if not is_text(types[0]):
        return _moved("add_checked")(options, types)
    join = pc.get_function("binary_join_element_wise").call
    return lambda left, right: join([left, right, pa.scalar("", left.type)], None).cast(pa.string())


def _moved(kernel: str) -> Make:
    def make(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
        return (lambda left, right: left) if all(map(is_null, types)) else arrow(kernel)

    return make


def _division_rule(types: Types, options: Options) -> Typing:
    if any(kind is not None and is_decimal(kind) for kind in types):
        raise TypeProblemError("it does not take decimals: cast to float64")
    return arithmetic("divide_checked")(types, options)


def _floor_division(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    return numpy_kernel(_checked(np.floor_divide, is_floating(types[0])))


def _modulo(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    return numpy_kernel(_checked(np.mod, is_floating(types[0])))


def _checked(compute: Any, floating: bool) -> Any:
    def checked(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if (right == 0).any():
            raise pa.ArrowInvalid("divide by zero")
        if not floating and compute is np.floor_divide and ((left == _LEAST) & (right == -1)).any():
            raise pa.ArrowInvalid("overflow")
        found: npt.NDArray[Any] = compute(left, right)
        return found

    return checked


def _same_number(types: Types, options: Options) -> Typing:
    """A number, of the type it has; small whole ones as int64."""
    kind = types[0]
    if kind is not None and is_decimal(kind):
        return Typing((None,), kind)
    return arithmetic("abs_checked")(types, options)


def _round_rule(types: Types, options: Options) -> Typing:
    typing = _same_number(types, options)
    if typing.result is not None and is_decimal(typing.result):
        return Typing(typing.casts, result_type("round", [typing.result], _round_options(options)))
    return typing


def _round_options(options: Options) -> pc.RoundOptions:
    return pc.RoundOptions(ndigits=options["digits"], round_mode="half_to_even")


def _round(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    return arrow("round", _round_options(options))


def _to_whole(name: str) -> Make:
    """`floor` or `ceil`: a whole number is what it is."""
    return lambda options, types: (lambda value: value) if is_integer(types[0]) else arrow(name)


for _name, _symbol, _kernel in (("add", "+", "add_checked"), ("subtract", "-", "subtract_checked")):
    register(
        Function(
            name=_name,
            least=2,
            most=2,
            rule=_sum_rule(_kernel),
            kernel=_add if _name == "add" else _moved(_kernel),
            operator=_symbol,
        )
    )
register(
    Function(
        name="multiply", least=2, most=2, rule=arithmetic("multiply_checked"), kernel=plain("multiply_checked"), operator="*"
    )
)
register(Function(name="divide", least=2, most=2, rule=floating, kernel=plain("divide_checked"), operator="/"))
register(Function(name="floor_divide", least=2, most=2, rule=_division_rule, kernel=_floor_division, arrays=True, operator="//"))
register(Function(name="modulo", least=2, most=2, rule=_division_rule, kernel=_modulo, arrays=True, operator="%"))
register(Function(name="power", least=2, most=2, rule=_division_rule, kernel=plain("power_checked"), operator="**"))
register(Function(name="negate", least=1, most=1, rule=_same_number, kernel=plain("negate_checked")))
register(Function(name="abs", least=1, most=1, rule=_same_number, kernel=plain("abs_checked")))
register(Function(name="floor", least=1, most=1, rule=_same_number, kernel=_to_whole("floor")))
register(Function(name="ceil", least=1, most=1, rule=_same_number, kernel=_to_whole("ceil")))
register(Function(name="sqrt", least=1, most=1, rule=floating, kernel=plain("sqrt_checked")))
register(Function(name="exp", least=1, most=1, rule=floating, kernel=plain("exp")))
register(Function(name="ln", least=1, most=1, rule=floating, kernel=plain("ln_checked")))
register(Function(name="round", least=1, most=1, rule=_round_rule, kernel=_round, options={"digits": is_whole(-18)}))
