"""Rows into columns: the hot path of Parquet and CSV output.

Measured: some thousand rows at a time, `zip(*rows)` is the fastest way for tuples, a pass over the rows for each column that for
all other records; `Table.from_pylist` is no faster, and takes dicts only. `array.array` takes whole numbers in half of the time
that Arrow takes, and refuses others.

The schema is the user's, or that of the first rows. A column that held only None so far gets its type when the first value comes;
anything else that does not fit is an error. Numbers are never cut short: Arrow by itself would write 1.5 as the integer 1.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from penstock.connectors.files.writing.arrow_types import output_fields
from penstock.connectors.files.writing.record_kinds import RecordKind, kind_of, stand_in
from penstock.errors import SinkError
from penstock.ids import StepId
from penstock.records import Batch, Columns

CHUNK_ROWS = 4096

_INT64 = pa.int64()

_BUILTIN = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, bytes, uuid.UUID)
_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError)


class ColumnMaker:
    """Makes Arrow batches, all of one schema, of whatever batches a sink is given."""

    def __init__(self, step: StepId, schema: pa.Schema | None = None, columns: Sequence[str] | None = None) -> None:
        self._step = step
        self._given = schema is not None
        self._columns = tuple(columns) if columns else None
        self._schema = schema

    def convert(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        if isinstance(batch, Columns):
            yield self._fit(batch.data if batch.row.fields() is None else batch.data.select(list(batch.row.fields() or ())))
        else:
            yield from self.rows(batch.values())

    def rows(self, rows: list[Any]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), CHUNK_ROWS):
            yield self._chunk(rows[start : start + CHUNK_ROWS] if len(rows) > CHUNK_ROWS else rows)

    def _chunk(self, rows: list[Any]) -> pa.RecordBatch:
        names, columns = self._split(rows)
        schema = self._schema
        if schema is None:
            arrays = [self._array(name, None, column) for name, column in zip(names, columns, strict=True)]
        else:
            arrays = [self._array(field.name, field.type, column) for field, column in zip(schema, columns, strict=True)]
        return self._refined(names, arrays)

    def _refined(self, names: Sequence[str], arrays: list[pa.Array]) -> pa.RecordBatch:
        schema = self._schema
        if schema is None or any(a.type != f.type for a, f in zip(arrays, schema, strict=True)):
            schema = self._schema = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _fit(self, data: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._schema
        if schema is None:
            return self._refined(data.schema.names, data.columns)
        names = set(data.schema.names)
        if not self._given and (extra := sorted(names - set(schema.names))):
            raise self._unexpected(extra[0])
        arrays = []
        for field in schema:
            column = data.column(field.name) if field.name in names else pa.nulls(data.num_rows, field.type)
            if column.type != field.type and not pa.types.is_null(field.type):
                try:
                    column = column.cast(field.type)
                except _UNFIT as error:
                    raise self._misfit(field.name, field.type, f"a column of {column.type}", error) from error
            arrays.append(column)
        return self._refined(schema.names, arrays)

    def _split(self, rows: list[Any]) -> tuple[Sequence[str], list[Sequence[Any]]]:
        """The names, and the columns, of a chunk of rows."""
        cls = stand_in(set(map(type, rows)))
        kind = kind_of(cls) if cls is not None else None
        names: Sequence[str] | None = self._schema.names if self._schema is not None else self._columns
        try:
            if kind is RecordKind.MAPPING:
                return self._mappings(rows, names)
            if kind is RecordKind.SEQUENCE:
                names = names or getattr(cls, "_fields", None) or [f"f{i}" for i in range(len(rows[0]))]
                try:
                    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
                except ValueError:
                    columns = []
                if len(columns) != len(names):
                    width = next(width for width in map(len, rows) if width != len(names))
                    raise ValueError(f"a record has {width} fields, but there are {len(names)} columns: {', '.join(names)}")
                return names, columns
            if kind is RecordKind.OBJECT:
                assert cls is not None
                names = names or output_fields(cls)
                return names, [list(map(attrgetter(name), rows)) for name in names]
            if kind is RecordKind.SCALAR:
                names = names or ["value"]
                if len(names) != 1:
                    raise ValueError(f"a record is a single value, but there are {len(names)} columns: {', '.join(names)}")
                return names, [rows]
        except (ValueError, AttributeError) as error:
            raise SinkError(
                f"the records do not fit the columns of the sink {self._step}",
                detail=str(error),
                hint="make all records of one shape, or send them to sinks of their own",
            ) from error
        raise SinkError(
            f"the sink {self._step} cannot put records of different shapes into one table",
            detail="seen: " + ", ".join(sorted(cls.__name__ for cls in set(map(type, rows)))),
            hint="map them to one type, or use format='json'",
        )

    def _mappings(self, rows: list[dict[str, Any]], names: Sequence[str] | None) -> tuple[Sequence[str], list[Sequence[Any]]]:
        if names is None:
            names = list(dict.fromkeys(chain.from_iterable(rows)))
        elif not self._given and set(map(len, rows)) != {len(names)}:
            known = set(names)
            for row in rows:
                for name in row:
                    if name not in known:
                        raise self._unexpected(name)
        try:
            return names, [[row[name] for row in rows] for name in names]
        except KeyError:  # not all have all
            if not self._given:
                known = set(names)
                for name in chain.from_iterable(rows):
                    if name not in known:
                        raise self._unexpected(name) from None
            return names, [[row.get(name) for row in rows] for name in names]

    def _array(self, name: str, type_: pa.DataType | None, values: Sequence[Any]) -> pa.Array:
        if type_ is not None and pa.types.is_null(type_) and not self._given:
            type_ = None
        try:
            return _exact(values, type_)
        except _UNFIT as error:
            try:  # nested classes, enums: Arrow does not know them, msgspec does
                return _exact([msgspec.to_builtins(value, builtin_types=_BUILTIN) for value in values], type_)
            except _UNFIT:
                pass
            raise self._culprit(name, type_, values, error) from error

    def _culprit(self, name: str, type_: pa.DataType | None, values: Sequence[Any], error: Exception) -> SinkError:
        for value in values:
            if value is None:
                continue
            try:
                if type_ is None:
                    type_ = pa.array([value]).type
                else:
                    _exact([value], type_)
            except _UNFIT as unfit:
                return self._misfit(name, type_, _short(value), unfit)
        return self._misfit(name, type_, "values of different types", error)

    def _misfit(self, name: str, type_: pa.DataType | None, value: str, error: Exception) -> SinkError:
        expected = "a type that Arrow knows" if type_ is None else str(type_)
        return SinkError(
            f"a value does not fit the column {name} of the sink {self._step}",
            detail=f"expected: {expected}\nfound: {value}\n{error}",
            hint="change the schema, or map the records" if self._given else "give the sink schema= with a type for all values",
        )

    def _unexpected(self, name: object) -> SinkError:
        assert self._schema is not None or self._columns is not None
        names = self._schema.names if self._schema is not None else self._columns
        return SinkError(
            f"the field {name} is not a column of the sink {self._step}",
            detail=f"columns, as in the first records: {', '.join(map(str, names or ()))}",
            hint="give the sink schema= with all columns there can be",
        )


def _exact(values: Sequence[Any], type_: pa.DataType | None) -> pa.Array:
    """An Arrow array, or an error where Arrow would quietly drop digits or the time of day."""
    if type_ == _INT64:
        try:
            return pa.Array.from_buffers(_INT64, len(values), [None, pa.py_buffer(array("q", values))])
        except TypeError:
            pass  # there is a null, or something else
    if type_ is None or pa.types.is_integer(type_):
        found = pa.array(values)
        if type_ is None or found.type == type_:
            return found
        if pa.types.is_floating(found.type):
            found = pa.array([_whole(value) for value in values])
        if not pa.types.is_integer(found.type) and not pa.types.is_null(found.type):
            raise TypeError(f"{found.type} is not {type_}")
        return found.cast(type_)
    if pa.types.is_date(type_) and datetime.datetime in set(map(type, values)):
        raise TypeError(f"a datetime is not {type_}")
    return pa.array(values, type=type_)


def _whole(value: Any) -> Any:
    if value is None:
        return None
    if int(value) != value:
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def _short(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 100 else text[:100] + '…'} ({type(value).__name__})"
