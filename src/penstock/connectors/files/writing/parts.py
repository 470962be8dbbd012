"""The files of one folder, one after another, while a writer is at work.

Memory is bounded: lines go out as they come, tables in row groups. Each file is streamed to the storage, counted and summed on
the way, and durable when it is closed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from penstock.connectors.files.writing.lines import LineMaker, chunks
from penstock.connectors.files.writing.tables import CHUNK_ROWS, ColumnMaker
from penstock.records import Batch, Records
from penstock.storage import Storage
from penstock.storage.pending import PendingObject

ROW_GROUP_ROWS = 262_144
ROW_GROUP_BYTES = 64 << 20
_SMALL_ROWS = 256

FileEntry = dict[str, Any]
NewPath = Callable[[], str]


class PartFile:
    """A file being written: `path`, `bytes`, `rows`, `checksum` (CRC-32)."""

    def __init__(self, storage: Storage, path: str, compression: str | None) -> None:
        self.path = path
        self.rows = 0
        self.bytes = 0
        self.checksum = 0
        self.closed = False
        self._pending = PendingObject(storage, path)
        self.sink: Any = self if compression is None else pa.CompressedOutputStream(pa.PythonFile(self, "w"), compression)

    def write(self, data: Any) -> int:
        size = len(data)
        self._pending.file.write(data)
        self.bytes += size
        self.checksum = zlib.crc32(data, self.checksum)
        return size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        """Called by Arrow when it has written its footer; the file itself ends with `finish`."""

    def finish(self) -> FileEntry:
        if self.sink is not self:
            self.sink.close()
        self.closed = True
        self._pending.keep()
        return {"path": self.path, "rows": self.rows, "bytes": self.bytes, "checksum": f"{self.checksum:08x}"}

    def abandon(self) -> None:
        self.closed = True
        self._pending.abandon()


class LineFiles:
    """JSON lines, or text."""

    def __init__(self, storage: Storage, path: NewPath, maker: LineMaker, compression: str | None, max_rows: int | None) -> None:
        self._storage = storage
        self._path = path
        self._maker = maker
        self._compression = compression
        self._max = max_rows
        self._file: PartFile | None = None
        self.finished: list[FileEntry] = []

    def write(self, batch: Batch, budget: int) -> None:
        room = self._max if self._max is None or self._file is None else self._max - self._file.rows
        for rows in chunks(self._maker.rows(batch), room, self._max):
            lines = self._maker.convert(rows)
            if self._file is None:
                self._file = PartFile(self._storage, self._path(), self._compression)
            self._file.sink.write(lines)
            self._file.rows += len(rows)
            if self._max is not None and self._file.rows >= self._max:
                self.finish()

    def finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self.finished.append(file.finish())

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None


class TableFiles:
    """Parquet, or CSV."""

    def __init__(
        self, storage: Storage, path: NewPath, maker: ColumnMaker, format: str, compression: str | None, max_rows: int | None
    ) -> None:
        self._storage = storage
        self._path = path
        self._maker = maker
        self._format = format
        self._compression = compression
        self._max = max_rows
        self._few: list[Any] = []
        """Rows of small batches, until they are worth an Arrow batch."""
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._schema: pa.Schema | None = None
        self._file: PartFile | None = None
        self._writer: Any = None
        self.finished: list[FileEntry] = []

    def write(self, batch: Batch, budget: int) -> None:
        if isinstance(batch, Records) and len(batch) < _SMALL_ROWS:
            self._few += batch.values()
            if len(self._few) >= CHUNK_ROWS:
                self._convert_few()
        else:
            self._convert_few()
            for data in self._maker.convert(batch):
                self._hold(data)
        if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= budget:
            self._flush()

    def finish(self) -> None:
        self._convert_few()
        self._flush()
        self._close()

    def abandon(self) -> None:
        self._few, self._held = [], []
        self._held_rows = self._held_bytes = 0
        self._writer = None
        if self._file is not None:
            self._file.abandon()
            self._file = None

    def _convert_few(self) -> None:
        if self._few:
            few, self._few = self._few, []
            for data in self._maker.rows(few):
                self._hold(data)

    def _hold(self, data: pa.RecordBatch) -> None:
        if self._schema is not data.schema and self._schema != data.schema:  # a column of nothing but nulls has got a type
            if self._file is not None:
                self._flush()
                self._close()
            self._held = [held.cast(data.schema) for held in self._held]
            self._schema = data.schema
        while self._max is not None:
            room = self._max - self._held_rows - (self._file.rows if self._file else 0)
            if data.num_rows < room:
                break
            self._keep(data.slice(0, room))
            data = data.slice(room)
            self._flush()
            self._close()
        if data.num_rows:
            self._keep(data)
            if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= ROW_GROUP_BYTES:
                self._flush()

    def _keep(self, data: pa.RecordBatch) -> None:
        self._held.append(data)
        self._held_rows += data.num_rows
        self._held_bytes += data.nbytes

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, schema=self._schema)
        if self._file is None:
            self._open()
        assert self._file is not None
        if self._format == "parquet":
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        else:
            self._writer.write_table(_without_dictionaries(table))
        self._file.rows += self._held_rows
        self._held = []
        self._held_rows = self._held_bytes = 0

    def _open(self) -> None:
        schema = cast(pa.Schema, self._schema)
        if self._format == "parquet":
            self._file = PartFile(self._storage, self._path(), None)
            # A dictionary pays for words; for numbers it costs three times what the rest of the file does.
            words = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
            self._writer = pyarrow.parquet.ParquetWriter(
                self._file, schema, compression=self._compression or "snappy", use_dictionary=words or False
            )
        else:
            self._file = PartFile(self._storage, self._path(), self._compression)
            self._writer = pyarrow.csv.CSVWriter(self._file.sink, _without_dictionaries(schema.empty_table()).schema)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._writer.close()
            self._writer = None
            self.finished.append(file.finish())


def _without_dictionaries(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table
