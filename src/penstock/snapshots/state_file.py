"""One state of a savepoint: a Parquet file with a row group for each key group that has entries.

    key_group · readable columns (see `columns.py`) · raw_key · raw_value

Laws:
- Row groups are ordered by key group; rows by store key. `raw_key` is the store key without group and state id, `raw_value` the exact bytes.
- Every byte is covered: the footer by size and checksum in `savepoint.json`, the bytes of each row group by a crc in the footer, under
  `penstock`. Damage is refused by name. (Pages have checksums too, for other readers.)
- Rows are in memory as Python objects only as long as it takes to turn them into columns.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any, BinaryIO
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptFileError, StateError
from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.runtime.manifest import StateInfo
from penstock.snapshots.columns import Columns
from penstock.state.layout import time_from_sortable
from penstock.storage import Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer

KEY_GROUP, RAW_KEY, RAW_VALUE = "key_group", "raw_key", "raw_value"
AT_A_TIME = 16 * 1024
"""Rows that are Python objects at a time, when they are written or read."""

_METADATA = b"penstock"
_MAGIC = b"PAR1"
_TAIL = 64 * 1024
_RAW = [pa.field(RAW_KEY, pa.binary(), nullable=False), pa.field(RAW_VALUE, pa.binary(), nullable=False)]
_DUE_AT_ONCE = ("slices", "sessions")
"""Kinds of which only their operator can tell when something is due: it is made to look at once."""


class StateFile(msgspec.Struct, frozen=True):
    """A file of a savepoint, as `savepoint.json` names it. The checksum is that of its footer."""

    path: str
    rows: int
    bytes: int
    checksum: str


class _RowGroup(msgspec.Struct, frozen=True, array_like=True):
    group: int
    rows: int
    offset: int
    length: int
    crc: int


class _Contents(msgspec.Struct, frozen=True):
    """What the footer says about the file, under `penstock`."""

    savepoint: str
    state: int
    step: str
    name: str
    groups: list[_RowGroup]


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
        self._groups: list[_RowGroup] = []
        self._group = -1
        self._last = b""
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
        for start in range(0, len(raw_keys), AT_A_TIME):
            keys, values = raw_keys[start : start + AT_A_TIME], raw_values[start : start + AT_A_TIME]
            arrays = [pa.repeat(pa.scalar(group, pa.int32()), len(keys)), *self._columns.read(keys, values)]
            arrays += [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
            self._pending.append(pa.record_batch(arrays, schema=self._schema))

    def close(self) -> StateFile:
        """The file is whole: it appears now."""
        self._flush()
        contents = _Contents(self._identity, self.number, self.info.step, self.info.name, self._groups)
        self._parquet.add_key_value_metadata({_METADATA: msgspec.json.encode(contents)})
        self._out.start_footer()
        self._parquet.close()
        footer = self._out.footer
        self._place.__exit__(None, None, None)
        return StateFile(self.path, self.rows, self._out.size, _checksum(footer))

    def abandon(self, error: BaseException) -> None:
        """The file shall not be."""
        try:
            self._parquet.close()
        finally:
            self._place.__exit__(type(error), error, error.__traceback__)

    def _flush(self) -> None:
        """Write the row group of the current key group."""
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._schema)
        self._pending = []
        offset = self._out.start_section()
        self._parquet.write_table(table, row_group_size=len(table))
        self.rows += len(table)
        self._groups.append(_RowGroup(self._group, len(table), offset, self._out.size - offset, self._out.crc))

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


def read_state(storage: Storage, file: StateFile, groups: range | None = None) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """`(group, raw keys, raw values)` of the wanted groups, in order; a large group comes in several pieces."""
    for group, table in read_tables(storage, file, groups, columns=[RAW_KEY, RAW_VALUE]):
        for batch in table.to_batches(max_chunksize=AT_A_TIME):
            yield group, batch.column(0).to_pylist(), batch.column(1).to_pylist()


def read_tables(
    storage: Storage, file: StateFile, groups: range | None = None, columns: list[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """`(group, rows)` of the wanted groups, in order, all columns or some, verified."""
    footer = _read_footer(storage, file)
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    contents = _contents_of(metadata, file, len(footer))
    window = _Window(file.bytes)
    parquet = pq.ParquetFile(window, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
    for number, row in enumerate(contents.groups):
        if groups is not None and row.group not in groups:
            continue
        data = storage.read_range(file.path, row.offset, row.length)
        if len(data) != row.length or crc32(data) != row.crc:
            raise corrupt(storage, file.path, f"the rows of key group {row.group} (bytes from {row.offset}) are damaged")
        window.show(row.offset, data)
        try:
            table = parquet.read_row_group(number, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise corrupt(storage, file.path, f"the rows of key group {row.group} cannot be decoded: {error}") from None
        if len(table) != row.rows:
            raise corrupt(storage, file.path, f"key group {row.group} has {len(table)} rows instead of {row.rows}")
        yield row.group, table


def groups_in(storage: Storage, file: StateFile) -> list[int]:
    """The key groups that have entries in a file."""
    footer = _read_footer(storage, file)
    contents = _contents_of(pq.read_metadata(pa.BufferReader(_MAGIC + footer)), file, len(footer))
    return [row.group for row in contents.groups]


def identity_in(storage: Storage, file: StateFile) -> tuple[str, int]:
    """Of which savepoint, and of which state of it, a file is."""
    footer = _read_footer(storage, file)
    contents = _contents_of(pq.read_metadata(pa.BufferReader(_MAGIC + footer)), file, len(footer))
    return contents.savepoint, contents.state


def _read_footer(storage: Storage, file: StateFile) -> bytes:
    found = storage.size(file.path)
    if found != file.bytes:
        raise corrupt(storage, file.path, f"it has {found} bytes instead of {file.bytes}")
    tail = storage.read_range(file.path, max(0, file.bytes - _TAIL), min(file.bytes, _TAIL))
    if len(tail) < 12 or tail[-4:] != _MAGIC:
        raise corrupt(storage, file.path, "it does not end as a Parquet file does")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > file.bytes - len(_MAGIC):
        raise corrupt(storage, file.path, "its footer is longer than the file")
    footer = tail[-length:] if length <= len(tail) else storage.read_range(file.path, file.bytes - length, length)
    if _checksum(footer) != file.checksum:
        raise corrupt(storage, file.path, "its footer is not the one that savepoint.json names: it is another file, or damaged")
    if storage.read_range(file.path, 0, len(_MAGIC)) != _MAGIC:
        raise corrupt(storage, file.path, "it does not start as a Parquet file does")
    return footer


def _contents_of(metadata: Any, file: StateFile, footer: int) -> _Contents:
    try:
        contents = msgspec.json.decode(metadata.metadata[_METADATA], type=_Contents)
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise CorruptFileError(f"{file.path} is not a state file of a savepoint: {error}") from None
    end = len(_MAGIC)
    for row in contents.groups:
        if row.offset != end:
            raise CorruptFileError(f"{file.path}: a row group is expected at byte {end}, the footer has {row.offset}")
        end += row.length
    rows = sum(row.rows for row in contents.groups)
    if end != file.bytes - footer or rows != file.rows or metadata.num_row_groups != len(contents.groups):
        raise CorruptFileError(f"{file.path}: footer and savepoint.json do not agree")
    return contents


class _Window(io.RawIOBase):
    """The part of a file that is in memory, where Arrow looks for it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._data = memoryview(b"")
        self._offset = 0
        self._position = 0

    def show(self, offset: int, data: bytes) -> None:
        self._offset, self._data = offset, memoryview(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence] + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        start = self._position - self._offset
        if start < 0:
            raise OSError(f"byte {self._position} is not in the row group that is being read")
        data = bytes(self._data[start : start + size] if size >= 0 else self._data[start:])
        self._position += len(data)
        return data


def corrupt(storage: Storage, path: str, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} of the savepoint {storage.uri} cannot be used: {found}",
        hint="copy the savepoint again from where it is whole, or use another one",
    )


def _checksum(footer: bytes) -> str:
    return hashlib.sha256(footer).hexdigest()[:32]
