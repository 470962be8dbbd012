"""What is known of records from their class, or from the first of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.plan.schema import Schema
from penstock.plan.shapes import shape_of
from penstock.records import field_names

_LOOKED_AT = 10_000


def row_schema(cls: type) -> Schema | None:
    """The columns of rows that are instances of a class."""
    try:
        fields = shape_of(cls, None).fields or ()
    except PenstockError:  # types that nobody can read: the names are known
        return Schema.of(((name, None) for name in field_names(cls)), cls)
    zoned = pa.timestamp("us")  # a field that is a datetime says nothing of its zone
    return Schema.of(((field.name, None if field.arrow == zoned else field.arrow) for field in fields), cls)


def columns_of_values(values: Any) -> Schema | None:
    """The columns of values that are dicts, or instances of one class with fields; the types are those of the first ones."""
    looked_at = list(islice(values, _LOOKED_AT))
    kinds = set(map(type, looked_at))
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if issubclass(kind, dict):
        names = dict.fromkeys(name for value in looked_at for name in value)
        if not all(isinstance(name, str) for name in names):
            return None
        return Schema.of((name, _type_of([value.get(name) for value in looked_at])) for name in names)
    try:
        fields = field_names(kind)
    except PenstockError:
        return None
    return Schema.of(((name, _type_of([getattr(value, name, None) for value in looked_at])) for name in fields), kind)


def _type_of(values: list[Any]) -> pa.DataType | None:
    try:
        kind = pa.array(values).type
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    return None if pa.types.is_null(kind) else kind
