"""Batches: what passes between operators.

A batch is a run of records in order, each with an optional event timestamp. It is held either as Python values (`Records`) or
as Arrow columns (`Columns`). Columns become Python values only when somebody asks for `values()`, and stay columns when nobody
does: that is where the speed comes from.

Where a step that sees order follows, each record also has its *tick*: the event time of its source partition from just before
the record. Ticks never go back within a source partition; see `penstock.runtime.ordering`.

In a stream that updates each record also has its *kind* (the code of a `RowKind`), in all batches; in an append-only one no batch
has kinds. See `penstock.changes`.

`NO_TIMESTAMP` stands for "this record has no timestamp" inside a timestamp array; a batch whose `timestamps` is None has none
at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PlanError
from penstock.ids import MIN_WATERMARK

NO_TIMESTAMP = MIN_WATERMARK

Timestamps = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]
Rows: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice
"""Some rows of a batch: their numbers, a mask, or a range."""

Carried: TypeAlias = tuple[Timestamps | None, Timestamps | None, Kinds | None]
"""What a batch has beside its values: timestamps, ticks, kinds."""


class Records:
    """A batch of Python values."""

    __slots__ = ("_values", "kinds", "ticks", "timestamps")

    def __init__(
        self,
        values: list[Any],
        timestamps: Timestamps | None = None,
        ticks: Timestamps | None = None,
        kinds: Kinds | None = None,
    ) -> None:
        self._values = values
        self.timestamps = timestamps
        self.ticks = ticks
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> list[Any]:
        return self._values

    def take(self, rows: npt.NDArray[np.int64]) -> Records:
        values = self._values
        return Records([values[i] for i in rows.tolist()], *carried(self, rows))

    def slice(self, start: int, stop: int) -> Records:
        if start == 0 and stop >= len(self._values):
            return self
        rows = slice(start, stop)
        return Records(self._values[rows], *carried(self, rows))

    def with_timestamps(self, timestamps: Timestamps | None) -> Records:
        return Records(self._values, timestamps, self.ticks, self.kinds)

    def with_ticks(self, ticks: Timestamps | None) -> Records:
        return Records(self._values, self.timestamps, ticks, self.kinds)

    def with_kinds(self, kinds: Kinds | None) -> Records:
        return Records(self._values, self.timestamps, self.ticks, kinds)


class Columns:
    """A batch of Arrow columns, with the way to make a record of a row."""

    __slots__ = ("_values", "data", "kinds", "row", "ticks", "timestamps")

    def __init__(
        self,
        data: pa.RecordBatch,
        row: RowType,
        timestamps: Timestamps | None = None,
        ticks: Timestamps | None = None,
        kinds: Kinds | None = None,
    ) -> None:
        self.data = data
        self.row = row
        self.timestamps = timestamps
        self.ticks = ticks
        self.kinds = kinds
        self._values: list[Any] | None = None

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def values(self) -> list[Any]:
        if self._values is None:
            self._values = self.row.records(self.data)
        return self._values

    def take(self, rows: npt.NDArray[np.int64]) -> Columns:
        return Columns(self.data.take(pa.array(rows)), self.row, *carried(self, rows))

    def slice(self, start: int, stop: int) -> Columns:
        if start == 0 and stop >= len(self):
            return self
        return Columns(self.data.slice(start, stop - start), self.row, *carried(self, slice(start, stop)))

    def with_timestamps(self, timestamps: Timestamps | None) -> Columns:
        return self._same(timestamps, self.ticks, self.kinds)

    def with_ticks(self, ticks: Timestamps | None) -> Columns:
        return self._same(self.timestamps, ticks, self.kinds)

    def with_kinds(self, kinds: Kinds | None) -> Columns:
        return self._same(self.timestamps, self.ticks, kinds)

    def _same(self, timestamps: Timestamps | None, ticks: Timestamps | None, kinds: Kinds | None) -> Columns:
        batch = Columns(self.data, self.row, timestamps, ticks, kinds)
        batch._values = self._values
        return batch


def carried(batch: Batch, rows: Rows | None = None) -> Carried:
    """What other values have beside them that were made of these rows, one each. `rows`: of some of them."""
    if rows is None:
        return batch.timestamps, batch.ticks, batch.kinds
    return _at(batch.timestamps, rows), _at(batch.ticks, rows), _at(batch.kinds, rows)


_Array = TypeVar("_Array", bound=npt.NDArray[Any])


def _at(values: _Array | None, rows: Rows) -> _Array | None:
    return None if values is None else values[rows]  # type: ignore[return-value]


def one_batch(batches: list[Batch]) -> Batch:
    """Several batches as one, in their order."""
    first = batches[0]
    if len(batches) == 1:
        return first
    sizes = [len(batch) for batch in batches]
    times = _end_to_end([batch.timestamps for batch in batches], sizes)
    ticks = _end_to_end([batch.ticks for batch in batches], sizes)
    kinds = _all_kinds(batches)
    if isinstance(first, Columns) and all(
        isinstance(other, Columns) and other.row == first.row and other.data.schema == first.data.schema for other in batches
    ):
        return Columns(pa.concat_batches([batch.data for batch in batches]), first.row, times, ticks, kinds)  # type: ignore[union-attr]
    values: list[Any] = []
    for batch in batches:
        values += batch.values()
    return Records(values, times, ticks, kinds)


def _end_to_end(parts: list[Timestamps | None], sizes: list[int]) -> Timestamps | None:
    if all(part is None for part in parts):
        return None
    filled = [
        np.full(size, NO_TIMESTAMP, dtype=np.int64) if part is None else part for part, size in zip(parts, sizes, strict=True)
    ]
    return np.concatenate(filled)


def _all_kinds(batches: list[Batch]) -> Kinds | None:
    parts = [batch.kinds for batch in batches if batch.kinds is not None]
    if not parts:
        return None
    assert len(parts) == len(batches), "some batches of a stream have kinds, and some have none"
    return np.concatenate(parts)


Batch = Records | Columns


@dataclasses.dataclass(frozen=True, slots=True)
class RowType:
    """How a row of columns looks to the user: a dict, or an instance of a class with one field per column."""

    cls: type | None = None

    def fields(self) -> tuple[str, ...] | None:
        """The columns the class needs, in the order of its constructor; None when a row is a dict of whatever there is."""
        return None if self.cls is None else field_names(self.cls)

    def records(self, data: pa.RecordBatch) -> list[Any]:
        names = self.fields()
        if names is None:
            return _dicts(data)
        assert self.cls is not None
        return list(map(self.cls, *(to_list(data.column(name)) for name in names)))


DICT_ROW = RowType()


def field_names(cls: type) -> tuple[str, ...]:
    """The field names of a dataclass, a msgspec Struct or a NamedTuple, in constructor order."""
    if dataclasses.is_dataclass(cls):
        return tuple(f.name for f in dataclasses.fields(cls) if f.init)
    names = getattr(cls, "__struct_fields__", None) or getattr(cls, "_fields", None)
    if names is None:
        raise PlanError(
            f"{cls.__name__} cannot be the type of a row",
            hint="use a dataclass, a NamedTuple or a msgspec Struct, or leave the schema out to get dicts",
        )
    return tuple(names)


def field_getter(record: Any, name: str) -> Callable[[Any], Any]:
    """How to get a field of records like this one: a key, an attribute, `f0` and so on of a tuple, `value` of a plain value."""
    if isinstance(record, dict):
        return itemgetter(name)
    if isinstance(record, tuple | list) and not hasattr(record, "_fields"):
        return itemgetter(int(name[1:])) if name[:1] == "f" and name[1:].isdigit() else itemgetter(name)
    if name == "value" and isinstance(record, int | float | str | bytes):
        return lambda value: value
    return attrgetter(name)


def fields_of_record(record: Any) -> tuple[str, ...]:
    """The names of a record's fields."""
    if isinstance(record, dict):
        return tuple(map(str, record))
    if isinstance(record, int | float | str | bytes):
        return ("value",)
    if isinstance(record, tuple | list) and not hasattr(record, "_fields"):
        return tuple(f"f{number}" for number in range(len(record)))
    try:
        return field_names(type(record))
    except PlanError:
        return tuple(getattr(record, "__dict__", ()))


def as_dict(record: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """A record's fields by name; `names`: of those that have none.

    >>> as_dict(("ann", 3)), as_dict(("ann", 3), ["user", "n"]), as_dict(None)
    ({'f0': 'ann', 'f1': 3}, {'user': 'ann', 'n': 3}, {'value': None})
    """
    if isinstance(record, dict):
        return dict(record)
    found = fields_of_record(record)
    if not found or isinstance(record, int | float | str | bytes):
        return {names[0] if names else "value": record}
    if names is not None and isinstance(record, tuple | list) and not hasattr(record, "_fields"):
        return dict(zip(names, record, strict=True))
    return {name: field_getter(record, name)(record) for name in found}


def to_list(column: pa.Array) -> list[Any]:
    """A column as Python values; the fast way for plain numbers."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


_DICT_MAKERS: dict[tuple[str, ...], Callable[..., list[Any]]] = {}


def _dicts(data: pa.RecordBatch) -> list[Any]:
    names = tuple(data.schema.names)
    if not names:
        return [{} for _ in range(data.num_rows)]
    make = _DICT_MAKERS.get(names)
    if make is None:
        # One comprehension with the names written out is several times faster than dict(zip(...)) for each row.
        variables = [f"v{i}" for i in range(len(names))]
        display = ", ".join(f"{name!r}: {v}" for name, v in zip(names, variables, strict=True))
        target = ", ".join(variables) + ("," if len(names) == 1 else "")
        make = _DICT_MAKERS[names] = eval(f"lambda *c: [{{{display}}} for {target} in zip(*c)]")
    return make(*(to_list(column) for column in data.columns))


def as_batch(values: list[Any] | pa.RecordBatch | pa.Table | Records | Columns, row: RowType = DICT_ROW) -> list[Batch]:
    """What a reader or a user's batch function returned, as batches."""
    if isinstance(values, Records | Columns):
        return [values]
    if isinstance(values, pa.RecordBatch):
        return [Columns(values, row)]
    if isinstance(values, pa.Table):
        return [Columns(part, row) for part in values.to_batches()]
    return [Records(list(values))]


IN_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""By unit, what to multiply by and then to divide by to have milliseconds."""


def timestamps_of(column: pa.Array | pa.ChunkedArray, unit: str = "ms") -> Timestamps:
    """Timestamps in milliseconds from a column: numbers in `unit`, or an Arrow timestamp or date.

    Digits below a millisecond are cut off; a date is its midnight, in UTC.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    factor, divisor = IN_MS[unit]
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if pa.types.is_timestamp(column.type):
        factor, divisor = IN_MS[column.type.unit]
        column = column.cast(pa.int64())
    missing = np.asarray(column.is_null()) if column.null_count else None
    if column.null_count:
        column = column.fill_null(0)
    if unit == "s" and pa.types.is_floating(column.type):
        column, factor = _rounded(column), 1
    if not pa.types.is_integer(column.type):
        raise TypeError(f"a column of {column.type} has no timestamps: give integers (milliseconds), timestamps or dates")
    times: Timestamps = column.to_numpy(zero_copy_only=False).astype(np.int64)
    if factor > 1 and len(times) and max(abs(int(times.max())), abs(int(times.min()))) >= (1 << 63) // factor:
        raise OverflowError(f"a timestamp is millions of years away: {times.min()} to {times.max()} in {unit}")
    times = times * factor // divisor
    if missing is not None:
        times[missing] = NO_TIMESTAMP
    return times


def _rounded(seconds: pa.Array) -> pa.Array:
    """Seconds with fractions, as whole milliseconds."""
    in_ms = np.rint(seconds.to_numpy(zero_copy_only=False).astype(np.float64) * 1000)
    if not np.isfinite(in_ms).all() or (np.abs(in_ms) >= 1 << 62).any():
        raise ValueError("a timestamp is NaN or beyond all years")
    return pa.array(in_ms.astype(np.int64))
