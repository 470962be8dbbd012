"""Batches: what passes between operators.

A batch is a run of records in order, each with an optional event timestamp. It is held either as Python values (`Records`) or
as Arrow columns (`Columns`). Columns become Python values only when somebody asks for `values()`, and stay columns when nobody
does: that is where the speed comes from.

`NO_TIMESTAMP` stands for "this record has no timestamp" inside a timestamp array; a batch whose `timestamps` is None has none
at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PlanError
from penstock.ids import MIN_WATERMARK

NO_TIMESTAMP = MIN_WATERMARK

Timestamps = npt.NDArray[np.int64]


class Records:
    """A batch of Python values."""

    __slots__ = ("_values", "timestamps")

    def __init__(self, values: list[Any], timestamps: Timestamps | None = None) -> None:
        self._values = values
        self.timestamps = timestamps

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> list[Any]:
        return self._values

    def take(self, rows: npt.NDArray[np.int64]) -> Records:
        values = self._values
        times = None if self.timestamps is None else self.timestamps[rows]
        return Records([values[i] for i in rows.tolist()], times)

    def slice(self, start: int, stop: int) -> Records:
        if start == 0 and stop >= len(self._values):
            return self
        return Records(self._values[start:stop], None if self.timestamps is None else self.timestamps[start:stop])

    def with_timestamps(self, timestamps: Timestamps | None) -> Records:
        return Records(self._values, timestamps)


class Columns:
    """A batch of Arrow columns, with the way to make a record of a row."""

    __slots__ = ("_values", "data", "row", "timestamps")

    def __init__(self, data: pa.RecordBatch, row: RowType, timestamps: Timestamps | None = None) -> None:
        self.data = data
        self.row = row
        self.timestamps = timestamps
        self._values: list[Any] | None = None

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def values(self) -> list[Any]:
        if self._values is None:
            self._values = self.row.records(self.data)
        return self._values

    def take(self, rows: npt.NDArray[np.int64]) -> Columns:
        times = None if self.timestamps is None else self.timestamps[rows]
        return Columns(self.data.take(pa.array(rows)), self.row, times)

    def slice(self, start: int, stop: int) -> Columns:
        if start == 0 and stop >= len(self):
            return self
        times = None if self.timestamps is None else self.timestamps[start:stop]
        return Columns(self.data.slice(start, stop - start), self.row, times)

    def with_timestamps(self, timestamps: Timestamps | None) -> Columns:
        batch = Columns(self.data, self.row, timestamps)
        batch._values = self._values
        return batch


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
