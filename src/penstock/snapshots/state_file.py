"""One state of a savepoint, as a Parquet file: written here, read by `state/row_groups.py`, which says what its form is.

Law: rows are in memory as Python objects only as long as it takes to turn them into columns; a key group at a time, as columns,
until it is written.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import StateError
from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.runtime.manifest import StateInfo
from penstock.snapshots.columns import Columns
from penstock.state.layout import time_from_sortable
from penstock.state.row_groups import (
    KEY_GROUP,
    METADATA,
    RAW_KEY,
    RAW_VALUE,
    Contents,
    RowGroup,
    StateReader,
    footer_checksum,
)
from penstock.storage import Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer

AT_A_TIME, SIZE_AT_A_TIME = 16 * 1024, 8 * 1024 * 1024
"""Rows, and bytes, that are Python objects at a time."""

_RAW = [pa.field(RAW_KEY, pa.binary(), nullable=False), pa.field(RAW_VALUE, pa.binary(), nullable=False)]
_DUE_AT_ONCE = ("slices", "sessions")
"""Kinds of which only their operator can tell when something is due: it is made to look at once."""


class StateFile(msgspec.Struct, frozen=True):
    """A file of a savepoint, as `savepoint.json` names it. The checksum is that of its footer."""

    path: str
    rows: int
    bytes: int
    checksum: str


class StateWriter:
    """Writes one state: `group(...)` for each key group in order, any number of times for each, then `close()`."""

    def __init__(self, storage: Storage, path: str, identity: str, number: int, info: StateInfo, max_parallelism: int) -> None:
        self.path = path
        self.number = number
        self.info = info
        self.next_due: Milliseconds | None = None
        """When something is due first, as far as the keys tell; not later than it is."""
        self.rows = 0
        self._identity = identity
        self._columns = Columns(info, max_parallelism)
        readable = list(self._columns.schema)
        self._schema = pa.schema([pa.field(KEY_GROUP, pa.int32(), nullable=False), *readable, *_RAW])
        self._groups: list[RowGroup] = []
        self._group = -1
        self._last = b""
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._size = 0
        self._pending: list[pa.RecordBatch] = []
        self._place = storage.writer(path)
        self._out = _Counted(self._place.__enter__())
        flat = [field.name for field in readable if not pa.types.is_nested(field.type)]
        self._parquet = pq.ParquetWriter(
            self._out,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[KEY_GROUP],
            write_statistics=[KEY_GROUP, *flat],
            write_page_checksum=True,
        )

    def group(self, group: int, raw_keys: list[bytes], raw_values: list[bytes]) -> None:
        """Entries of a key group, sorted by key, after those that were written before."""
        if not raw_keys:
            return
        if len(raw_keys) != len(raw_values):
            raise StateError(f"{len(raw_keys)} keys and {len(raw_values)} values are written to {self.path}")
        if group != self._group:
            if group < self._group:
                raise StateError(f"key group {group} is written after key group {self._group}, to {self.path}")
            self._flush()
            self._group = group
            self._learn(raw_keys[0])
        elif raw_keys[0] <= self._last:
            raise self._unsorted()
        if not all(map(lt, raw_keys, islice(raw_keys, 1, None))):
            raise self._unsorted()
        self._last = raw_keys[-1]
        self._keys += raw_keys
        self._values += raw_values
        self._size += sum(map(len, raw_values))
        if len(self._keys) >= AT_A_TIME or self._size >= SIZE_AT_A_TIME:
            self._convert()

    def close(self) -> StateFile:
        """The file is whole: it appears now."""
        self._flush()
        contents = Contents(self._identity, self.number, self.info.step, self.info.name, self._groups)
        self._parquet.add_key_value_metadata({METADATA: msgspec.json.encode(contents)})
        self._out.start_footer()
        self._parquet.close()
        footer = self._out.footer
        self._place.__exit__(None, None, None)
        return StateFile(self.path, self.rows, self._out.size, footer_checksum(footer))

    def abandon(self, error: BaseException) -> None:
        """The file shall not be."""
        try:
            self._parquet.close()
        finally:
            self._place.__exit__(type(error), error, error.__traceback__)

    def _convert(self) -> None:
        """From Python objects to columns."""
        for start in range(0, len(self._keys), AT_A_TIME):
            keys, values = self._keys[start : start + AT_A_TIME], self._values[start : start + AT_A_TIME]
            arrays = [pa.repeat(pa.scalar(self._group, pa.int32()), len(keys)), *self._columns.read(keys, values)]
            arrays += [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
            self._pending.append(pa.record_batch(arrays, schema=self._schema))
        self._keys, self._values, self._size = [], [], 0

    def _flush(self) -> None:
        """Write the row group of the current key group."""
        self._convert()
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._schema)
        self._pending = []
        offset = self._out.start_section()
        self._parquet.write_table(table, row_group_size=len(table))
        self.rows += len(table)
        self._groups.append(RowGroup(self._group, len(table), offset, self._out.size - offset, self._out.crc))

    def _learn(self, first_key: bytes) -> None:
        due: Milliseconds
        if self.info.kind == "timers":
            due = time_from_sortable(first_key[:8])
        elif self.info.kind in _DUE_AT_ONCE:
            due = MIN_WATERMARK
        else:
            return
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
