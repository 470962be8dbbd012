"""Fields of records, whatever a record is: a dict, a tuple, or an object with attributes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import PlanError, UserCodeError


def record_getter(values: list[Any], field: str | int, step: str) -> Callable[[Any], Any]:
    """How to get `field` of records such as these; a clear error if the first has no such field."""
    if not values:
        return itemgetter(field)
    first = values[0]
    if isinstance(field, int) or isinstance(first, dict):
        getter: Callable[[Any], Any] = itemgetter(field)
    else:
        getter = attrgetter(field)
    try:
        getter(first)
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        raise PlanError(
            f"step {step!r}: the record has no field {field!r}",
            detail=f"record: {first!r:.300}\nof type: {type(first).__qualname__}",
            hint="name a dict key, an attribute, or a tuple position; or give a function",
        ) from error
    return getter


def fields_of(values: list[Any], field: str | int, step: str) -> list[Any]:
    """`field` of each record; a clear error for the first that has none."""
    get = record_getter(values, field, step)
    found: list[Any] = []
    try:
        found.extend(map(get, values))
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        raise UserCodeError(
            f"step {step!r}: a record has no field {field!r}",
            detail=f"record: {values[len(found)]!r:.300}",
            hint="all records need the field (its value may be None); filter out or mend the others before",
        ) from error
    return found


def replace_field(record: Any, field: str | int, value: Any) -> Any:
    """The record with one field changed; the record itself is left alone.

    >>> replace_field(("a", 1), 1, 5), replace_field({"n": 1}, "n", 2)
    (('a', 5), {'n': 2})
    """
    if isinstance(record, dict):
        return {**record, field: value}
    if isinstance(record, tuple) and isinstance(field, int):
        parts = list(record)
        parts[field] = value
        return type(record)(*parts) if hasattr(record, "_fields") else tuple(parts)
    if hasattr(record, "__struct_fields__"):
        return msgspec.structs.replace(record, **{str(field): value})
    if hasattr(record, "_replace"):
        return record._replace(**{str(field): value})
    if isinstance(record, list):
        changed = list(record)
        changed[int(field)] = value
        return changed
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return dataclasses.replace(record, **{str(field): value})
    changed_record = copy.copy(record)
    setattr(changed_record, str(field), value)
    return changed_record


def to_arrow(values: list[Any], step: str) -> pa.RecordBatch:
    """Records (one at least) as columns."""
    first = values[0]
    if isinstance(first, dict):
        return pa.RecordBatch.from_pylist(values)
    names = (
        getattr(first, "__struct_fields__", None)
        or getattr(first, "_fields", None)
        or getattr(first, "__dataclass_fields__", None)
    )
    if names is not None:
        return pa.RecordBatch.from_pydict({name: [getattr(v, name) for v in values] for name in names})
    if isinstance(first, tuple):
        return pa.RecordBatch.from_pydict({f"f{i}": list(column) for i, column in enumerate(zip(*values, strict=True))})
    if isinstance(first, int | float | str | bytes | bool):
        return pa.RecordBatch.from_pydict({"value": values})
    raise PlanError(
        f"step {step!r}: records of type {type(first).__qualname__} have no columns",
        hint="Arrow batches are made of dicts, tuples, dataclasses or plain values",
    )
