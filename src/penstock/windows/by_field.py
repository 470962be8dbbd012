"""Aggregation of one field: the window's first record with the field replaced, or the record with the extreme."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.runtime.fields import record_getter, replace_field

Field = str | int

_NUMBERS = (int, float, Decimal)


def field_of(record: Any, field: Field) -> Any:
    """The field of a record; a number is its own field."""
    return record if isinstance(record, _NUMBERS) else record_getter([record], field, "aggregation")(record)


def _with_field(record: Any, field: Field, value: Any) -> Any:
    return value if isinstance(record, _NUMBERS) else replace_field(record, field, value)


@dataclass(frozen=True)
class SumOf:
    field: Field

    def __call__(self, left: Any, right: Any) -> Any:
        return _with_field(left, self.field, field_of(left, self.field) + field_of(right, self.field))


@dataclass(frozen=True)
class ExtremeOf:
    """`whole`: the record itself; otherwise the first record with the extreme put in."""

    field: Field
    least: bool
    whole: bool

    def __call__(self, left: Any, right: Any) -> Any:
        old, new = field_of(left, self.field), field_of(right, self.field)
        better = new < old if self.least else new > old
        return left if not better else right if self.whole else _with_field(left, self.field, new)
