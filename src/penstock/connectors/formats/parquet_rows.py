"""Rows of a Parquet file as batches: only the row groups and columns needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.connectors.formats.columns import conform, with_defaults
from penstock.connectors.formats.lines import BadRecords
from penstock.errors import SourceError
from penstock.plan.shapes import Shape
from penstock.records import Batch, Columns, Records


class ParquetRows:
    def __init__(self, shape: Shape, batch_size: int, bad: BadRecords) -> None:
        self._shape = shape
        self._batch_size = batch_size
        self._bad = bad

    def read(self, path: str, file: BinaryIO, start: int, stop: int) -> Iterator[Batch]:
        try:
            with pq.ParquetFile(file) as parquet:
                names = self._names(path, parquet.schema_arrow.names)
                row = start
                for data in self._batches(parquet, names, start, stop):
                    yield self._batch(path, data, row)
                    row += data.num_rows
        except pa.ArrowException as error:
            hint = "is it a whole Parquet file, and of that schema?"
            raise SourceError(f"{path} cannot be read", detail=str(error), hint=hint) from error
        if row != stop:
            raise SourceError(f"{path} has changed since it was listed", detail=f"it ends at row {row}, before row {stop}")

    def _names(self, path: str, there: list[str]) -> list[str] | None:
        fields = self._shape.fields
        if fields is None:
            return None
        missing = [f.name for f in fields if f.name not in there and (f.required or not self._shape.typed)]
        if missing:
            raise SourceError(f"{path} has no column {', '.join(missing)}", detail=f"it has {', '.join(there)}")
        return [f.name for f in fields if f.name in there]

    def _batches(self, parquet: pq.ParquetFile, names: list[str] | None, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        begin = 0
        groups: list[int] = []
        skip = 0
        for i in range(parquet.metadata.num_row_groups):
            end = begin + parquet.metadata.row_group(i).num_rows
            if begin < stop and end > start:
                if not groups:
                    skip = start - begin if start > begin else 0
                groups.append(i)
            begin = end
        left = stop - start
        if not groups:
            return
        for data in parquet.iter_batches(self._batch_size, row_groups=groups, columns=names, use_threads=False):
            if skip >= data.num_rows:
                skip -= data.num_rows
                continue
            data = data.slice(skip, left)
            skip = 0
            left -= data.num_rows
            yield data
            if left <= 0:
                return

    def _batch(self, path: str, data: pa.RecordBatch, row: int) -> Batch:
        shape = self._shape
        if not shape.typed or shape.fields is None:
            return Columns(data, shape.row)
        data = self._without_nulls(path, data, row)
        if not shape.columnar:
            return self._objects(path, data, row)
        columns = []
        for field in shape.fields:
            if field.name in data.schema.names:
                column = conform(data.column(field.name), field, exactly=shape.cls is None)
            else:
                column = pa.nulls(data.num_rows, field.arrow)
            columns.append(with_defaults(column, field))
        return Columns(pa.RecordBatch.from_arrays(columns, names=shape.names), shape.row)

    def _without_nulls(self, path: str, data: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """The rows that have a value wherever they must."""
        good = None
        for field in self._shape.fields or ():
            if field.optional or not field.required or field.name not in data.schema.names:
                continue
            column = data.column(field.name)
            if column.null_count:
                valid = column.is_valid()
                self._report(path, row + int(pc.index(valid, False).as_py()), f"{field.name} is null", column.null_count)
                good = valid if good is None else pc.and_(good, valid)
        return data if good is None else data.filter(good)

    def _objects(self, path: str, data: pa.RecordBatch, row: int) -> Batch:
        values = []
        for i, each in enumerate(data.to_pylist()):
            try:
                values.append(msgspec.convert(each, self._shape.cls))
            except msgspec.ValidationError as error:
                self._report(path, row + i, str(error), 1)
        return Records(values)

    def _report(self, path: str, row: int, reason: str, number: int) -> None:
        if not self._bad.skip:
            raise self._bad.error(path, f"row {row}", b"", reason)
        self._bad.count(f"row {row}: {reason}", number)
