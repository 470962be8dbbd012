"""Arrow columns made to fit the fields of a schema."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.plan.shapes import Field

_ACCEPTED: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]] = [
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_string, lambda t: pa.types.is_string(t) or pa.types.is_large_string(t)),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_binary, lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t)),
]


def with_defaults(column: pa.Array, field: Field) -> pa.Array:
    """Nulls replaced by the field's default; ValueError where neither is allowed."""
    if column.null_count == 0 or (field.optional and field.default is None):
        return column
    if field.default is not None and field.plain_default:
        return column.fill_null(pa.scalar(field.default, type=column.type))
    raise ValueError(f"{field.name} is null")


def conform(column: pa.Array, field: Field, exactly: bool) -> pa.Array:
    """The column in the type of the field (or one that gives the same Python values, unless `exactly`)."""
    wanted = field.arrow
    if wanted is None or column.type == wanted:
        return column
    if not exactly:
        if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
            # Nanoseconds do not fit into a datetime.
            return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False) if column.type.unit == "ns" else column
        if any(is_wanted(wanted) and accepts(column.type) for is_wanted, accepts in _ACCEPTED):
            return column
    return column.cast(wanted)
