"""State files of savepoints, read: Parquet, a row group for each key group that has entries.

    key_group · readable columns · raw_key · raw_value

Laws:
- `raw_key` is a store key without group and state id, `raw_value` the exact bytes. Row groups are ordered by key group, rows by
  key.
- Every byte is covered: the footer by size and checksum, which whoever names the file knows; the bytes of each row group by a crc
  in the footer, under `penstock`. They are checked before anything is decoded; damage is refused by name. (Pages have checksums
  too, for other readers.)
- A row group is one read, whatever is wanted of it: a request each on an object store. Only those of wanted key groups are read.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptFileError, NotFoundError
from penstock.storage.protocol import Storage

KEY_GROUP, RAW_KEY, RAW_VALUE = "key_group", "raw_key", "raw_value"
METADATA = b"penstock"
MAGIC = b"PAR1"

SUFFIX = ".parquet"

_TAIL = 64 * 1024
_READ_SIZE = 4 * 1024 * 1024


class RowGroup(msgspec.Struct, frozen=True, array_like=True):
    """Where the rows of a key group are."""

    group: int
    rows: int
    offset: int
    length: int
    crc: int


class Contents(msgspec.Struct, frozen=True):
    """What the footer says about the file, under `penstock`: of which savepoint, of which state of it, and its groups."""

    savepoint: str
    state: int
    step: str
    name: str
    groups: list[RowGroup]


def footer_checksum(footer: bytes) -> str:
    """Of a Parquet file's metadata, their length and the magic."""
    return hashlib.sha256(footer).hexdigest()[:32]


class StateReader:
    """An open file. Its footer has been verified; row groups are when they are read."""

    def __init__(self, storage: Storage, path: str, *, size: int, rows: int, checksum: str) -> None:
        self._storage = storage
        self.path = path
        self._size = size
        footer = self._read_footer(checksum)
        try:
            self._metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
            self.contents = msgspec.json.decode(self._metadata.metadata[METADATA], type=Contents)
        except (pa.ArrowException, OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise self._corrupt(f"its footer cannot be read: {error}") from None
        self._check(rows, size - len(footer))
        self._window = _Window(size)
        self._parquet = pq.ParquetFile(self._window, metadata=self._metadata, pre_buffer=False, page_checksum_verification=True)

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self._parquet.schema_arrow
        return schema

    def tables(self, groups: range | None = None, columns: list[str] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """`(key group, rows)` of the wanted groups, in order, all columns or some."""
        for number, row in enumerate(self.contents.groups):
            if groups is None or row.group in groups:
                yield row.group, self._table(number, row, columns)

    def entries(self, groups: range | None = None, at_a_time: int = 16_384) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
        """`(key group, raw keys, raw values)` of the wanted groups, in order; a large group comes in several pieces."""
        for group, table in self.tables(groups, [RAW_KEY, RAW_VALUE]):
            for batch in table.to_batches(max_chunksize=at_a_time):
                keys, values = (column.to_numpy(zero_copy_only=False).tolist() for column in batch.columns)
                yield group, keys, values

    def verify(self) -> None:
        """Check every byte, without decoding anything."""
        for row in self.contents.groups:
            crc = 0
            for start in range(0, row.length, _READ_SIZE):
                data = self._storage.read_range(self.path, row.offset + start, min(_READ_SIZE, row.length - start))
                crc = crc32(data, crc)
            self._check_crc(row, crc)

    def _table(self, number: int, row: RowGroup, columns: list[str] | None) -> pa.Table:
        self._window.show(row.offset, self._read(row))
        try:
            table = self._parquet.read_row_group(number, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise self._corrupt(f"the rows of key group {row.group} cannot be decoded: {error}") from None
        if len(table) != row.rows:
            raise self._corrupt(f"key group {row.group} has {len(table)} rows instead of {row.rows}")
        return table

    def _read(self, row: RowGroup) -> bytes:
        data = self._storage.read_range(self.path, row.offset, row.length)
        self._check_crc(row, crc32(data))
        return data

    def _check_crc(self, row: RowGroup, crc: int) -> None:
        if crc != row.crc:
            raise self._corrupt(f"the rows of key group {row.group}, from byte {row.offset}, are damaged")

    def _read_footer(self, checksum: str) -> bytes:
        storage, path, size = self._storage, self.path, self._size
        try:
            found = storage.size(path)
        except NotFoundError:
            raise self._corrupt("it is missing") from None
        if found != size:
            raise self._corrupt(f"it has {found} bytes instead of {size}")
        tail = storage.read_range(path, max(0, size - _TAIL), min(size, _TAIL))
        if len(tail) < 12 or tail[-4:] != MAGIC or storage.read_range(path, 0, len(MAGIC)) != MAGIC:
            raise self._corrupt("it does not begin and end as a Parquet file does")
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > size - len(MAGIC):
            raise self._corrupt("its footer is longer than the file")
        footer = tail[-length:] if length <= len(tail) else storage.read_range(path, size - length, length)
        if footer_checksum(footer) != checksum:
            raise self._corrupt("its footer is not the one that was written: it is another file, or damaged")
        return footer

    def _check(self, rows: int, footer_at: int) -> None:
        """Row groups fill the space between magic and footer without a gap."""
        groups, end = self.contents.groups, len(MAGIC)
        for row in groups:
            if row.offset != end:
                raise self._corrupt(f"a row group is expected at byte {end}, the footer has {row.offset}")
            end += row.length
        found = sum(row.rows for row in groups)
        if end != footer_at or found != rows or self._metadata.num_row_groups != len(groups):
            raise self._corrupt(f"footer and content do not agree: {found} rows, {rows} expected")

    def _corrupt(self, found: str) -> CorruptFileError:
        return CorruptFileError(
            f"state file {self.path} cannot be used: {found}",
            detail=f"in {self._storage.uri}",
            hint="copy the savepoint again from where it is whole, or use another one",
        )


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
