"""Reads the ranges of a split, in the worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa

from penstock.connectors.files.file_format import format_of
from penstock.connectors.files.reading.locations import checked_size, location_of
from penstock.connectors.formats.csv_rows import CsvRows
from penstock.connectors.formats.json_rows import JsonRows
from penstock.connectors.formats.lines import BadRecords, blocks, parsed, without_mark
from penstock.connectors.formats.parquet_rows import ParquetRows
from penstock.connectors.protocol import Reader, Split
from penstock.errors import SourceError
from penstock.plan.shapes import shape_of
from penstock.records import Batch, Records

if TYPE_CHECKING:
    from penstock.connectors.files.source import FileSource


class FileReader(Reader):
    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._location = location_of(source.path)
        self._bad = BadRecords(source.on_bad_record == "skip", self._text)
        shape = shape_of(source.schema, source.columns)
        self._json = JsonRows(shape_of(None, None) if source._absent_stays_absent and source.schema is None else shape)
        self._csv = CsvRows(
            shape,
            shape_of(source.schema, None).names or shape.names,
            delimiter=source.delimiter,
            header=source.header,
            whole=source.newlines_in_values,
            reopen=self._text,
        )
        self._parquet = ParquetRows(shape, source.batch_size, self._bad)

    @property
    def skipped(self) -> int:
        """How many bad records were left out so far."""
        return self._bad.skipped

    def read(self, split: Split) -> Iterator[Batch]:
        for path, start, stop, size in split.what:
            file_format = format_of(path, self._source.format)
            checked_size(self._location, path, size, exactly=file_format.name == "parquet")
            for batch in self._range(path, file_format.name, file_format.compression is not None, start, stop):
                yield from self._sized(batch)
            self._bad.finished(path)

    def _range(self, path: str, name: str, compressed: bool, start: int, stop: int) -> Iterator[Batch]:
        if name == "parquet":
            with self._location.open(path) as file:
                yield from self._parquet.read(path, file, start, stop)
            return
        with self._text(path) as file:
            if name == "csv" and self._source.newlines_in_values:
                yield from self._csv.stream(path, self._csv.layout(path), file)
                return
            if start:
                file.seek(start)
            try:
                for offset, block in blocks(file, start, None if compressed else stop):
                    yield from self._block(path, name, *without_mark(offset, block), first=offset == 0)
            except (OSError, EOFError) as error:
                if isinstance(error, SourceError) or not compressed:
                    raise
                raise SourceError(f"{path} cannot be decompressed", detail=str(error)) from error

    def _block(self, path: str, name: str, offset: int, block: bytes, *, first: bool) -> Iterator[Batch]:
        if name == "json":
            return parsed(path, offset, block, self._json.parse, self._bad)
        if name == "text":
            return parsed(path, offset, block, _strings, self._bad)
        layout = self._csv.layout(path)
        if first:
            offset, block = self._csv.skip_header(offset, block)
        return parsed(path, offset, block, lambda part: self._csv.parse(layout, part), self._bad)

    def _text(self, path: str) -> BinaryIO:
        """A file of a text format, decompressed."""
        file = self._location.open(path)
        compression = format_of(path, self._source.format).compression
        if compression is None:
            return file
        return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, mode="r"), compression))

    def _sized(self, batch: Batch) -> Iterator[Batch]:
        """A batch in pieces of at most the size asked for."""
        most = self._source.batch_size
        for start in range(0, len(batch), most):
            yield batch.slice(start, start + most)


def _strings(block: bytes) -> Batch:
    text = block.decode("utf-8")
    lines: list[Any] = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return Records([line.removesuffix("\r") for line in lines] if "\r" in text else lines)
