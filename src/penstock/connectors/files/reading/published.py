"""What a `FileSink` has published, read back, file by file. People use `penstock.read_output`, jobs a `FileSource`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.connectors.files.file_format import FileFormat, FormatName, format_of
from penstock.connectors.files.writing.log_format import PublishedFile, read_file, shown_entries
from penstock.errors import StateError
from penstock.records import DICT_ROW
from penstock.storage import Storage, open_storage


def published_files(storage: Storage) -> Iterator[PublishedFile]:
    """The published files of a folder, oldest epoch first; without what was taken back, and what is held back by a repair."""
    for _, entry in shown_entries(storage):
        yield from entry.files


def published_rows(storage: Storage, format: FormatName | None = None) -> Iterator[Any]:
    """Their rows: dicts, or strings where the files are text."""
    for file in published_files(storage):
        yield from decode(read_file(storage, file), file.path, format)


def read_rows(uri: str | os.PathLike[str], format: FormatName | None = None) -> list[Any]:
    """All rows that a `FileSink` has published in a folder."""
    return list(published_rows(open_storage(uri), format))


def decode(data: bytes, path: str, format: FormatName | None = None) -> list[Any]:
    form = format_of(path, format)
    if form.name in ("parquet", "csv"):
        return [row for batch in _table(_whole(data, form), form.name).to_batches() for row in DICT_ROW.records(batch)]
    data = _whole(data, form)
    return msgspec.json.Decoder().decode_lines(data) if form.name == "json" else data.decode().split("\n")[:-1]


def tables(storage: Storage, files: Iterable[PublishedFile], format: FormatName | None = None) -> list[pa.Table]:
    """Published files as tables, one each. What is a number in one CSV file and a text in another is a text in all."""
    found: list[pa.Table] = []
    written: list[tuple[int, bytes]] = []
    for file in files:
        data, form = read_file(storage, file), format_of(file.path, format)
        whole = _whole(data, form)
        if form.name in ("parquet", "csv"):
            if form.name == "csv":
                written.append((len(found), whole))
            found.append(_table(whole, form.name))
        elif form.name == "text":
            found.append(pa.table({"value": whole.decode().split("\n")[:-1]}))
        else:
            found.append(_json_table(msgspec.json.Decoder().decode_lines(whole), f"{storage.uri}/{file.path}"))
    mixed = _mixed([found[number] for number, _ in written])
    for number, whole in written if mixed else ():
        found[number] = _table(whole, "csv", texts=mixed)
    return found


def _whole(data: bytes, form: FileFormat) -> bytes:
    if form.compression is None:
        return data
    return bytes(pa.input_stream(pa.py_buffer(data), compression=form.compression).read())


def _table(data: bytes, name: FormatName, texts: Iterable[str] = ()) -> pa.Table:
    if name == "parquet":
        return pyarrow.parquet.read_table(io.BytesIO(data))
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    convert = pyarrow.csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, column_types={column: pa.string() for column in texts}
    )
    return pyarrow.csv.read_csv(io.BytesIO(data), parse_options=parse, convert_options=convert)


def _json_table(rows: list[Any], path: str) -> pa.Table:
    """Rows with the fields that any of them has. Rows that are no objects: a column `value`."""
    if not all(isinstance(row, dict) for row in rows):
        rows = [{"value": row} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise StateError(
                f"the column {name!r} of {path} has values of several types",
                detail=str(error),
                hint="iterate over the rows instead",
            ) from error
    return pa.table(columns)


def _mixed(found: list[pa.Table]) -> list[str]:
    """The columns that are texts in some tables and not in others."""
    kinds: dict[str, set[bool]] = {}
    for table in found:
        for field in table.schema:
            if not pa.types.is_null(field.type):
                kinds.setdefault(field.name, set()).add(pa.types.is_string(field.type))
    return [name for name, texts in kinds.items() if len(texts) > 1]
