"""One state of a savepoint, as a Parquet file: written here, read by `state/files/row_groups.py`, which says what its form is.

Law: rows are Python objects only until there are enough of them to turn into columns; a key group stays in memory, as columns,
until all of it has come.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter, lt
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.ids import Milliseconds
from penstock.jobs.manifest import StateInfo
from penstock.state.entries.kinds import kind_of
from penstock.state.entries.state_table import StateTable
from penstock.state.files.row_groups import (
    KEY_GROUP,
    METADATA,
    RAW_KEY,
    RAW_VALUE,
    Contents,
    RowGroup,
    StateReader,
    footer_checksum,
)
from penstock.state.key_groups import KeyGroups
from penstock.storage import Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer

AT_A_TIME, SIZE_AT_A_TIME = 16 * 1024, 8 * 1024 * 1024
"""Rows, and bytes, that are Python objects at a time."""

SAMPLE = 1000

_RAW = [pa.field(RAW_KEY, pa.binary(), nullable=False), pa.field(RAW_VALUE, pa.binary(), nullable=False)]


class StateFile(msgspec.Struct, frozen=True):
    """A file of a savepoint, as `savepoint.json` names it. The checksum is that of its footer."""

    path: str
    rows: int
    bytes: int
    checksum: str


class StateWriter:
    """Writes one state: `group(...)` for each key group in order, any number of times for each, then `close()`."""

    def __init__(self, storage: Storage, path: str, identity: str, number: int, info: StateInfo, key_groups: KeyGroups) -> None:
        self.path = path
        self.number = number
        self.info = info
        self.next_due: Milliseconds | None = None
        """When something is due first, as far as the keys tell; not later than it is."""
        self._kind = kind_of(info)
        self._identity = identity
        self._key_groups = key_groups
        self._group = -1
        self._last = b""
        self._runs: list[tuple[int, int]] = []
        """Group and length of each run of what is below."""
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._size = 0
        self._pending: list[pa.RecordBatch] = []
        """The columns of a group of which there may be more."""
        self._pending_group = -1
        self._groups: list[RowGroup] = []
        self._place = storage.writer(path)
        self._out = _Counted(self._place.__enter__())
        self._columns: StateTable | None = None
        self._parquet: pq.ParquetWriter | None = None

    def group(self, group: int, raw_keys: list[bytes], raw_values: list[bytes]) -> None:
        """Entries of a key group, sorted by key, after those that were written before."""
        if not raw_keys:
            return
        if len(raw_keys) != len(raw_values):
            raise StateError(f"{len(raw_keys)} keys and {len(raw_values)} values are written to {self.path}")
        if group < self._group:
            raise StateError(f"key group {group} is written after key group {self._group}, to {self.path}")
        if group > self._group:
            self._learn(raw_keys[0])
        elif raw_keys[0] <= self._last:
            raise self._unsorted()
        if not all(map(lt, raw_keys, islice(raw_keys, 1, None))):
            raise self._unsorted()
        self._group, self._last = group, raw_keys[-1]
        self._runs.append((group, len(raw_keys)))
        self._keys += raw_keys
        self._values += raw_values
        self._size += sum(map(len, raw_values))
        if len(self._keys) >= AT_A_TIME or self._size >= SIZE_AT_A_TIME:
            self._convert()

    @property
    def rows(self) -> int:
        """That are written; all of them once it is closed."""
        return sum(row.rows for row in self._groups)

    def close(self) -> StateFile:
        """The file is whole: it appears now."""
        parquet = self._convert()
        self._flush(parquet)
        contents = Contents(self._identity, self.number, self.info.step, self.info.name, self._groups)
        parquet.add_key_value_metadata({METADATA: msgspec.json.encode(contents)})
        self._out.start_footer()
        parquet.close()
        footer = self._out.footer
        self._place.__exit__(None, None, None)
        return StateFile(self.path, self.rows, self._out.size, footer_checksum(footer))

    def abandon(self, error: BaseException) -> None:
        """Leave no file behind."""
        try:
            if self._parquet is not None:
                self._parquet.close()
        finally:
            self._place.__exit__(type(error), error, error.__traceback__)

    def _convert(self) -> pq.ParquetWriter:
        """From Python objects to columns, many groups at a time; whole groups are written."""
        keys, values, runs = self._keys, self._values, self._runs
        self._keys, self._values, self._runs, self._size = [], [], [], 0
        columns, parquet = self._opened(keys, values)
        if not keys:
            return parquet
        group = pa.array(np.repeat(*np.array(runs, np.int32).T))
        arrays = [group, *columns.read(keys, values), pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
        batch = pa.record_batch(arrays, schema=parquet.schema)
        start = 0
        for number, same in groupby(runs, key=itemgetter(0)):
            length = sum(length for _, length in same)
            if number != self._pending_group:
                self._flush(parquet)
                self._pending_group = number
            self._pending.append(batch.slice(start, length))
            start += length
        return parquet

    def _flush(self, parquet: pq.ParquetWriter) -> None:
        """Write the row group of a key group."""
        if self._pending:
            table = pa.Table.from_batches(self._pending)
            self._pending = []
            offset = self._out.start_section()
            parquet.write_table(table, row_group_size=len(table))
            self._groups.append(RowGroup(self._pending_group, len(table), offset, self._out.size - offset, self._out.crc))

    def _opened(self, keys: list[bytes], values: list[bytes]) -> tuple[StateTable, pq.ParquetWriter]:
        """The first entries are the sample that the types of columns are found out from."""
        if self._columns is None or self._parquet is None:
            self._columns = StateTable.sampled(self.info, self._key_groups, keys[:SAMPLE], values[:SAMPLE])
            readable = self._columns.schema
            self._parquet = pq.ParquetWriter(
                self._out,
                pa.schema([pa.field(KEY_GROUP, pa.int32(), nullable=False), *readable, *_RAW], readable.metadata),
                compression="zstd",
                compression_level=1,
                use_dictionary=[KEY_GROUP],
                write_statistics=[KEY_GROUP, *(field.name for field in readable if not pa.types.is_nested(field.type))],
                write_page_checksum=True,
            )
        return self._columns, self._parquet

    def _learn(self, first_key: bytes) -> None:
        due = self._kind.due(first_key)
        if due is not None:
            self.next_due = due if self.next_due is None else min(due, self.next_due)

    def _unsorted(self) -> StateError:
        return StateError(f"entries for {self.path} are not sorted by key, or a key is there twice")


class _Counted(io.RawIOBase):
    """What is written, counted and summed up section by section."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._footer: list[bytes] | None = None
        self.size = 0
        self.crc = 0

    def start_section(self) -> int:
        self.crc = 0
        return self.size

    def start_footer(self) -> None:
        self._footer = []

    @property
    def footer(self) -> bytes:
        return b"".join(self._footer or ())

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data)
        if self._footer is not None:
            self._footer.append(bytes(view))
        self.crc = crc32(view, self.crc)
        self._out.write(view)
        self.size += len(view)
        return len(view)


def open_state(storage: Storage, file: StateFile) -> StateReader:
    """A file of a savepoint, its footer verified."""
    return StateReader(storage, file.path, size=file.bytes, rows=file.rows, checksum=file.checksum)


def read_state(storage: Storage, file: StateFile, groups: range | None = None) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """`(group, raw keys, raw values)` of the wanted groups, in order; a large group comes in several pieces."""
    return open_state(storage, file).entries(groups)


def read_tables(
    storage: Storage, file: StateFile, groups: range | None = None, columns: list[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """`(group, rows)` of the wanted groups, in order, all columns or some."""
    return open_state(storage, file).tables(groups, columns)
