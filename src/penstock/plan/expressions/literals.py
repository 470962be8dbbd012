"""Literals: from Python values, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from penstock.errors import PlanError
from penstock.plan.expressions.nodes import MAX_NODES, Literal
from penstock.plan.expressions.registry import TypeProblemError
from penstock.plan.expressions.rules import common
from penstock.plan.expressions.types import (
    is_bytes,
    is_decimal,
    is_floating,
    is_integer,
    is_list,
    is_null,
    is_text,
    literal_type,
    type_text,
)

_BARE = {type(None): pa.null(), bool: pa.bool_(), int: pa.int64(), str: pa.string()}
"""JSON values that say of what type they are."""


def literal(value: Any) -> Literal:
    """The literal of a Python value."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return Literal(value, literal_type(value))


def literal_list(values: Iterable[Any]) -> Literal:
    """The literal of a list of values of one type."""
    items = [literal(value) for value in values]
    if len(items) > MAX_NODES:
        raise PlanError(f"a list of {len(items):,} values", hint=f"an expression holds {MAX_NODES:,} of them at most")
    try:
        kind = common([item.type for item in items])
    except TypeProblemError as problem:
        raise PlanError(f"the values of a list are of one type: {problem}") from problem
    return Literal(tuple(item.value for item in items), pa.list_(kind))


def literal_data(given: Literal) -> dict[str, Any]:
    """A literal as JSON-able data; the type is left out where the value says it."""
    data = {"lit": _plain(given.value, given.type)}
    if _BARE.get(type(data["lit"])) != given.type:
        data["type"] = type_text(given.type)
    return data


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if is_list(kind):
        return [_plain(one, kind.value_type) for one in value]
    if is_floating(kind):
        return value if math.isfinite(value) else repr(float(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


def literal_of(value: Any, kind: pa.DataType | None) -> Literal:
    """The inverse of `literal_data`."""
    if kind is None:
        kind = pa.float64() if isinstance(value, float) else _BARE.get(type(value))
        if kind is None:
            raise PlanError(
                f"a literal of {value!r:.100} needs a type", hint='for example {"lit": [1, 2], "type": "list<int64>"}'
            )
    made = Literal(_python(value, kind), kind)
    try:
        pa.scalar(made.value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise _not_a(value, kind) from error
    return made


def _python(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    try:
        found = _converted(value, kind)
    except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
        raise _not_a(value, kind) from error
    if found is None:
        raise _not_a(value, kind)
    return found


def _converted(value: Any, kind: pa.DataType) -> Any:
    """None if the value is not of the form that the type has in JSON."""
    if is_list(kind):
        return tuple(_python(one, kind.value_type) for one in value) if isinstance(value, list) else None
    if is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if is_integer(kind):
        return value if whole else None
    if is_floating(kind):
        return float(value) if whole or isinstance(value, float) or value in ("nan", "inf", "-inf") else None
    if pa.types.is_duration(kind):
        return timedelta(microseconds=value) if whole else None
    if not isinstance(value, str):
        return None
    if is_text(kind):
        return value
    if is_bytes(kind):
        return bytes.fromhex(value)
    if is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value)
        return moment if (moment.tzinfo is None) == (kind.tz is None) else None
    return None


def _not_a(value: Any, kind: pa.DataType) -> PlanError:
    return PlanError(f"the literal {value!r:.100} is not of type {type_text(kind)}")
