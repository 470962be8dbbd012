"""A `FileSink`'s writer: sends records to the files of their folder, for one partition and one epoch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import with_kind_field
from penstock.connectors.files.writing.arrow_types import arrow_schema
from penstock.connectors.files.writing.lines import JsonLines, TextLines
from penstock.connectors.files.writing.names import column_folder, folder_of, part_path
from penstock.connectors.files.writing.parts import ROW_GROUP_BYTES, FileEntry, LineFiles, TableFiles
from penstock.connectors.files.writing.record_kinds import RecordKind, kind_of
from penstock.connectors.files.writing.tables import ColumnMaker
from penstock.connectors.protocol import Committable, WriterContext
from penstock.errors import PenstockError, SinkError
from penstock.records import Batch, Columns, Records
from penstock.storage import Storage

if TYPE_CHECKING:
    from penstock.connectors.files.sink import FileSink

MAX_OPEN_FOLDERS = 64

_EXTENSIONS = {"json": "jsonl", "csv": "csv", "text": "txt", "parquet": "parquet"}
_COMPRESSED = {"gzip": ".gz", "zstd": ".zst"}


class FileWriter:
    def __init__(self, sink: FileSink, context: WriterContext, storage: Storage) -> None:
        self._sink = sink
        self._context = context
        self._storage = storage
        self._folders: dict[str, LineFiles | TableFiles] = {}
        """Open ones, the one written to last at the end."""
        self._finished: list[FileEntry] = []
        self._numbers = count()
        schema = None if sink.schema is None else arrow_schema(sink.schema)
        columns = sink.columns if schema is None else schema.names
        self._columns = columns
        """Names of the fields of records that have none."""
        kind = sink.kind_field
        if kind is not None and columns is not None and kind not in columns:
            columns = (*columns, kind)
            schema = None if schema is None else schema.append(pa.field(kind, pa.string()))
        self._tables = ColumnMaker(context.step, schema, columns if schema is None else None)
        self._lines = JsonLines(context.step, columns) if sink.format == "json" else TextLines(context.step)

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        for folder, part in self._split(batch) if batch.kinds is None else self._split_changes(batch):
            if self._sink.kind_field is not None:
                part = with_kind_field(part, self._sink.kind_field, self._columns)
            files = self._files(folder)
            files.write(part, max(ROW_GROUP_BYTES // len(self._folders), 1 << 20))

    def prepare(self) -> Committable:
        for folder in list(self._folders):
            self._finish(folder)
        return {"files": self._finished, "folder": self._sink.uri} if self._finished else {"files": []}

    def abort(self) -> None:
        for files in self._folders.values():
            files.abandon()
            self._finished += files.finished
        self._folders.clear()
        self._storage.delete([file["path"] for file in self._finished])
        self._finished = []

    def _files(self, folder: str) -> LineFiles | TableFiles:
        files = self._folders.pop(folder, None)
        if files is None:
            if len(self._folders) >= MAX_OPEN_FOLDERS:
                self._finish(next(iter(self._folders)))
            files = self._new(folder)
        self._folders[folder] = files
        return files

    def _finish(self, folder: str) -> None:
        files = self._folders[folder]
        files.finish()
        self._finished += files.finished
        del self._folders[folder]

    def _new(self, folder: str) -> LineFiles | TableFiles:
        sink, context = self._sink, self._context
        extension = _EXTENSIONS[sink.format]
        if sink.format != "parquet":
            extension += _COMPRESSED.get(sink.compression or "", "")

        def path() -> str:
            return part_path(folder, context.epoch, context.partition, next(self._numbers), context.attempt, extension)

        if sink.format in ("parquet", "csv"):
            return TableFiles(self._storage, path, self._tables, sink.format, sink.compression, sink.max_file_records)
        return LineFiles(self._storage, path, self._lines, sink.compression, sink.max_file_records)

    def _split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        by = self._sink.partition_by
        if by is None:
            yield "", batch
        elif isinstance(by, str):
            yield from self._by_column(by, batch)
        else:
            groups: dict[str, list[Any]] = {}
            for value in batch.values():
                try:
                    folder = by(value)
                except Exception as error:
                    raise self._unplaced(value, f"partition_by raised {error!r}") from error
                if not isinstance(folder, str):
                    raise self._unplaced(value, f"partition_by returned {folder!r}, not a string")
                groups.setdefault(folder, []).append(value)
            for folder, values in groups.items():
                yield folder_of(folder), Records(values)

    def _split_changes(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        if self._sink.partition_by is None:
            yield "", batch
            return
        places: dict[str, list[int]] = {}
        for row, value in enumerate(batch.values()):
            ((folder, _),) = self._split(Records([value]))
            places.setdefault(folder, []).append(row)
        for folder, rows in places.items():
            yield folder, batch.take(np.asarray(rows))

    def _by_column(self, name: str, batch: Batch) -> Iterator[tuple[str, Batch]]:
        if isinstance(batch, Columns):
            if name not in batch.data.schema.names:
                raise self._unplaced(f"columns {', '.join(batch.data.schema.names)}", f"there is no column {name}")
            codes = batch.data.column(name).dictionary_encode("encode")
            for i, found in enumerate(codes.dictionary.to_pylist()):
                rows = pc.equal(codes.indices, pa.scalar(i, codes.indices.type))
                yield column_folder(name, found), Columns(batch.data.filter(rows), batch.row)
            return
        groups: dict[Any, list[Any]] = {}
        value: Any = None
        try:
            for value in batch.values():
                groups.setdefault(self._field(name, value), []).append(value)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise self._unplaced(value, f"it has no usable field {name}: {error!r}") from error
        for key, values in groups.items():
            yield column_folder(name, key), Records(values)

    def _field(self, name: str, value: Any) -> Any:
        kind = kind_of(value.__class__)
        if kind is RecordKind.MAPPING:
            return value[name]
        if kind is RecordKind.OBJECT or hasattr(value, "_fields"):
            return attrgetter(name)(value)
        if kind is RecordKind.SEQUENCE:
            return itemgetter(self._columns.index(name) if self._columns else int(name.removeprefix("f")))(value)
        if name == "value":
            return value
        raise KeyError(name)

    def _unplaced(self, value: object, why: str) -> PenstockError:
        return SinkError(
            f"the sink {self._context.step} cannot tell which folder a record belongs to",
            detail=f"{why}\nrecord: {str(value)[:200]}",
            hint="partition_by= is a column name that all records have, or a function from a record to a string",
        )
