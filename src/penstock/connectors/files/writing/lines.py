"""Records into lines: JSON and text.

Every JSON line is an object, so that anything that reads JSON lines reads them as rows: tuples get column names, single values
the column `value`. JSON has no NaN and no infinity: they are written as null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import starmap
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from penstock.connectors.files.writing.arrow_types import output_fields
from penstock.connectors.files.writing.record_kinds import RecordKind, kind_of
from penstock.connectors.staging.rows import plain
from penstock.errors import SinkError
from penstock.ids import StepId
from penstock.records import DICT_ROW, Batch, Columns

CHUNK_ROWS = 4096

_UNFIT = (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError)


class LineMaker(Protocol):
    def convert(self, rows: list[Any]) -> bytes: ...

    def rows(self, batch: Batch) -> list[Any]: ...


class JsonLines:
    def __init__(self, step: StepId, columns: Sequence[str] | None = None) -> None:
        self._step = step
        self._columns = tuple(columns) if columns else None
        self._encoder = msgspec.json.Encoder(enc_hook=plain)

    def rows(self, batch: Batch) -> list[Any]:
        """Columns never become the user's records here: dicts are quicker to make and to write."""
        if not isinstance(batch, Columns):
            return batch.values()
        fields = batch.row.fields()
        return DICT_ROW.records(batch.data if fields is None else batch.data.select(list(fields)))

    def convert(self, rows: list[Any]) -> bytes:
        try:
            classes = set(map(type, rows))
            objects = self._objects(classes.pop(), rows) if len(classes) == 1 else self._one_by_one(rows)
            return self._encoder.encode_lines(objects)
        except _UNFIT as error:
            raise self._culprit(rows, error) from error

    def _objects(self, cls: type, rows: list[Any]) -> Sequence[Any]:
        """Rows of one class as something that msgspec writes as JSON objects."""
        kind = kind_of(cls)
        if kind is RecordKind.SEQUENCE:
            names = self._columns or getattr(cls, "_fields", None) or tuple(f"f{i}" for i in range(len(rows[0])))
            try:
                return _rows_of(names)(rows)
            except (TypeError, ValueError):  # not all of one length
                if self._columns is not None:
                    raise
                return [{f"f{i}": value for i, value in enumerate(row)} for row in rows]
        if kind is RecordKind.SCALAR:
            return [{(self._columns or ("value",))[0]: row} for row in rows]
        if kind is RecordKind.OBJECT and _array_like(cls):
            names = output_fields(cls)
            return _rows_of(names)([attrgetter(*names)(row) if len(names) > 1 else (getattr(row, names[0]),) for row in rows])
        return rows

    def _one_by_one(self, rows: list[Any]) -> list[Any]:
        return [self._objects(type(row), [row])[0] for row in rows]

    def _culprit(self, rows: list[Any], error: Exception) -> SinkError:
        for row in rows:
            try:
                self._encoder.encode(self._objects(type(row), [row])[0])
            except _UNFIT as unfit:
                return _refused(self._step, "JSON", row, unfit)
        return _refused(self._step, "JSON", rows[0], error)


class TextLines:
    """`str(record)` on a line; bytes as they are. A line break inside a record is not escaped."""

    def __init__(self, step: StepId) -> None:
        self._step = step

    def rows(self, batch: Batch) -> list[Any]:
        if isinstance(batch, Columns) and batch.row.cls is None and batch.data.num_columns == 1:
            column = batch.data.column(0)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                return column.to_pylist()  # type: ignore[no-any-return]
        return batch.values()

    def convert(self, rows: list[Any]) -> bytes:
        try:
            if {str} == set(map(type, rows)):
                return ("\n".join(rows) + "\n").encode()
            return b"".join([(row if isinstance(row, bytes) else str(row).encode()) + b"\n" for row in rows])
        except _UNFIT as error:
            raise _refused(self._step, "text", rows[0], error) from error


def chunks(rows: list[Any], first: int | None, following: int | None) -> Iterator[list[Any]]:
    """The rows in runs: at most `first`, then at most `following` in each, and never more than `CHUNK_ROWS`."""
    start, room = 0, min(CHUNK_ROWS, first or CHUNK_ROWS)
    while start < len(rows):
        yield rows if start == 0 and room >= len(rows) else rows[start : start + room]
        start += room
        room = min(CHUNK_ROWS, following or CHUNK_ROWS)


@cache
def _rows_of(names: tuple[str, ...]) -> Callable[[list[Any]], list[Any]]:
    """A function from tuples to objects with these names: structs, which are twice as fast as dicts here."""
    try:
        fields = [(f"v{i}", Any) for i in range(len(names))]
        rename = {f"v{i}": name for i, name in enumerate(names)}
        row = msgspec.defstruct("Row", fields, rename=rename, gc=False)
    except ValueError:  # names that a struct refuses, such as one with a quote in it
        return lambda rows: [dict(zip(names, row, strict=True)) for row in rows]
    return lambda rows: list(starmap(row, rows))


@cache
def _array_like(cls: type) -> bool:
    return issubclass(cls, msgspec.Struct) and cls.__struct_config__.array_like


def _refused(step: StepId, what: str, row: object, error: Exception) -> SinkError:
    text = repr(row)
    return SinkError(
        f"the sink {step} cannot write a record as {what}",
        detail=f"record: {text if len(text) <= 200 else text[:200] + '…'} ({type(row).__name__})\n{error}",
        hint="map it to built-in types, a dataclass or a msgspec Struct first",
    )
