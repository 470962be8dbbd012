"""Type rules that several functions share.

A type of None is not known yet: a rule refuses what it can be sure of, and leaves the result open where it depends on it. A null
literal is of the type that the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import TypeProblemError, Types, Typing
from penstock.plan.expressions.types import (
    is_bytes,
    is_decimal,
    is_floating,
    is_integer,
    is_null,
    is_numeric,
    is_text,
    type_text,
)

Rule = Callable[[Types, Options], Typing]

_UNITS = ("s", "ms", "us", "ns")


def of(what: str, accepts: Callable[[pa.DataType], bool], result: pa.DataType | None = None, *, null: pa.DataType) -> Rule:
    """All arguments are of a kind; the result is of that type, or of the one argument's. `null`: what a null literal becomes."""

    def rule(types: Types, options: Options) -> Typing:
        for kind in types:
            if kind is not None and not is_null(kind) and not accepts(kind):
                raise TypeProblemError(f"it takes {what}, not {type_text(kind)}")
        casts = tuple(null if kind is not None and is_null(kind) else None for kind in types)
        given = casts[0] or types[0]
        return Typing(casts, given if result is None else result)

    return rule


def anything(result: pa.DataType) -> Rule:
    return lambda types, options: Typing((None,) * len(types), result)


def logical(types: Types, options: Options) -> Typing:
    return of("conditions", pa.types.is_boolean, pa.bool_(), null=pa.bool_())(types, options)


def comparable(types: Types, options: Options) -> Typing:
    """Values that are compared with each other."""
    return Typing(_alike(types, "compared"), pa.bool_())


def common(types: Sequence[pa.DataType | None]) -> pa.DataType | None:
    """The type of a value that may be any of these; None if that is not known."""
    if any(kind is None for kind in types):
        _alike(types, "alternatives")
        return None
    known = [kind for kind in types if kind is not None and not is_null(kind)]
    if not known:
        return pa.null()
    if all(kind == known[0] for kind in known):
        return known[0]
    if all(is_integer(kind) for kind in known):
        return pa.int64()
    if all(is_integer(kind) or is_floating(kind) for kind in known):
        return pa.float64()
    if all(is_integer(kind) or is_decimal(kind) for kind in known):
        parts = [(kind.precision - kind.scale, kind.scale) if is_decimal(kind) else (19, 0) for kind in known]
        digits, scale = max(part[0] for part in parts), max(part[1] for part in parts)
        if digits + scale > 38:
            raise TypeProblemError(f"there is no decimal for both {' and '.join(map(type_text, known))}")
        return pa.decimal128(digits + scale, scale)
    if all(is_text(kind) for kind in known):
        return pa.large_string()
    if all(pa.types.is_timestamp(kind) for kind in known) and len({kind.tz is None for kind in known}) == 1:
        return pa.timestamp(_finest(known), known[0].tz)
    if all(pa.types.is_duration(kind) for kind in known):
        return pa.duration(_finest(known))
    raise TypeProblemError(f"alternatives are of one type, not {' and '.join(dict.fromkeys(map(type_text, known)))}")


def _finest(kinds: Sequence[pa.DataType]) -> str:
    return _UNITS[max(_UNITS.index(kind.unit) for kind in kinds)]


def _family(kind: pa.DataType) -> str | None:
    if is_numeric(kind):
        return "number"
    if is_text(kind):
        return "string"
    if is_bytes(kind):
        return "binary"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamp with a zone"
    for name, check in (("bool", pa.types.is_boolean), ("date", pa.types.is_date), ("duration", pa.types.is_duration)):
        if check(kind):
            return name
    return "time" if pa.types.is_time(kind) else None


def _alike(types: Types, what: str) -> tuple[pa.DataType | None, ...]:
    """What the arguments are cast to, so that they can be compared."""
    known = [kind for kind in types if kind is not None and not is_null(kind)]
    families = list(dict.fromkeys(_family(kind) for kind in known))
    if what == "compared" and None in families:
        odd = next(kind for kind in known if _family(kind) is None)
        raise TypeProblemError(f"values of {type_text(odd)} cannot be compared")
    if len(families) > 1:
        shown = " and ".join(dict.fromkeys(map(type_text, known)))
        raise TypeProblemError(f"{shown} cannot be compared" if what == "compared" else f"{what} are of one type, not {shown}")
    target: pa.DataType | None = None
    if not known:
        target = pa.bool_()
    elif families == ["number"] and len(set(known)) > 1 and not any(map(is_decimal, known)):
        target = pa.float64() if any(map(is_floating, known)) else pa.int64()
    return tuple((target or known[0]) if kind is not None and is_null(kind) else target for kind in types)


def arithmetic(kernel: str) -> Rule:
    """Numbers: whole ones as int64, others as float64; decimals as Arrow computes them."""

    def rule(types: Types, options: Options) -> Typing:
        known = [kind for kind in types if kind is not None and not is_null(kind)]
        for kind in known:
            if not is_numeric(kind):
                raise TypeProblemError(f"it takes numbers, not {type_text(kind)}")
        if any(map(is_decimal, known)):
            return _decimals(kernel, types, known)
        if any(kind is None for kind in types):
            return Typing((None,) * len(types), pa.float64() if any(map(is_floating, known)) else None)
        target = pa.float64() if any(map(is_floating, known)) else pa.int64()
        return Typing((target,) * len(types), target)

    return rule


def _decimals(kernel: str, types: Types, known: list[pa.DataType]) -> Typing:
    if any(map(is_floating, known)):
        raise TypeProblemError("decimals and floats do not mix: cast one of them")
    casts = tuple(next(filter(is_decimal, known)) if kind is not None and is_null(kind) else None for kind in types)
    if any(kind is None for kind in types):
        return Typing(casts, None)
    given = [cast or kind for cast, kind in zip(casts, types, strict=True)]
    return Typing(casts, result_type(kernel, given))


def floating(types: Types, options: Options) -> Typing:
    """Numbers, computed as float64."""
    for kind in types:
        if kind is not None and is_decimal(kind):
            raise TypeProblemError("it does not take decimals: cast to float64")
        if kind is not None and not is_null(kind) and not is_numeric(kind):
            raise TypeProblemError(f"it takes numbers, not {type_text(kind)}")
    return Typing((pa.float64(),) * len(types), pa.float64())


def result_type(kernel: str, types: Sequence[Any], options: Any = None) -> pa.DataType:
    """The type that Arrow's function gives: it is called with no rows."""
    try:
        return pc.call_function(kernel, [pa.array([], type=kind) for kind in types], options).type
    except pa.ArrowException as error:
        raise TypeProblemError(str(error).splitlines()[0]) from error
