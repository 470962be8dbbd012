"""What a `FileSink` has published, read back: for tests, notebooks and comparisons. Jobs read it with a `FileSource`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.connectors.files.formats import FormatName, format_of
from penstock.connectors.files.log import PublishedFile, read_file, shown_entries
from penstock.records import DICT_ROW
from penstock.storage import open_storage


class PublishedFiles:
    """The published files of a folder, oldest epoch first; without what was taken back, and what is held back by a repair."""

    def __init__(self, uri: str | os.PathLike[str], format: FormatName | None = None) -> None:
        self._storage = open_storage(uri)
        self._format = format

    def files(self) -> Iterator[PublishedFile]:
        for _, entry in shown_entries(self._storage):
            yield from entry.files

    def epochs(self) -> list[int]:
        """The epochs that published something that is still shown."""
        return [entry.epoch for _, entry in shown_entries(self._storage)]

    def rows(self) -> Iterator[Any]:
        """All rows: dicts, or strings where the files are text."""
        for file in self.files():
            yield from decode(read_file(self._storage, file), file.path, self._format)


def read_published(uri: str | os.PathLike[str], format: FormatName | None = None) -> Iterator[Any]:
    """The rows that a `FileSink` has published in a folder, in order of epochs."""
    return PublishedFiles(uri, format).rows()


def read_rows(uri: str | os.PathLike[str], format: FormatName | None = None) -> list[Any]:
    """`read_published`, as a list."""
    return list(read_published(uri, format))


def decode(data: bytes, path: str, format: FormatName | None = None) -> list[Any]:
    form = format_of(path, format)
    if form.compression is not None:
        data = pa.input_stream(pa.py_buffer(data), compression=form.compression).read()
    if form.name == "json":
        return msgspec.json.Decoder().decode_lines(data)
    if form.name == "text":
        return data.decode().split("\n")[:-1]
    if form.name == "parquet":
        table = pyarrow.parquet.read_table(io.BytesIO(data))
    else:
        parse = pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        convert = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        table = pyarrow.csv.read_csv(io.BytesIO(data), parse_options=parse, convert_options=convert)
    return [row for batch in table.to_batches() for row in DICT_ROW.records(batch)]
