"""State files of savepoints as files of a chain: Parquet, a row group for each key group, what restore needs in two columns.

Laws:
- `raw_key` is a store key without its head; the head is the row group's key group and the state id of the program that reads.
- Only row groups of wanted key groups are read, and only `raw_key` and `raw_value` of them.
- Size and footer are those that the `FileRef` says, and every page that is read is checked against its own checksum; `verify`
  checks every byte, by the checksums of the row groups in the footer. Damage is refused by name and never read as empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptFileError
from penstock.state.entries.layout import value_prefix
from penstock.storage.protocol import Storage

if TYPE_CHECKING:
    from penstock.state.files.durable import Block, FileRef

SUFFIX = ".parquet"
RAW_KEY, RAW_VALUE = "raw_key", "raw_value"
_MAGIC = b"PAR1"
_TAIL = 64 * 1024
_ROWS = 16 * 1024
_READ_SIZE = 4 * 1024 * 1024


class _RowGroup(msgspec.Struct, frozen=True, array_like=True):
    group: int
    rows: int
    offset: int
    length: int
    crc: int


class _Contents(msgspec.Struct, frozen=True):
    """What the writer of a savepoint says in the footer, under `penstock`."""

    groups: list[_RowGroup]


def read_blocks(storage: Storage, ref: FileRef, lo: int, hi: int) -> Iterator[Block]:
    """The entries of the groups `lo <= group < hi`, block by block, in order, under the state id of the reference."""
    if ref.state is None:
        raise CorruptFileError(f"the manifest does not say which state the entries of {ref.name} belong to")
    metadata, row_groups = _read_footer(storage, ref)
    wanted = [(number, row) for number, row in enumerate(row_groups) if lo <= row.group < hi]
    if not wanted:
        return
    with _opened(storage, ref, metadata) as file:
        for number, row in wanted:
            head = value_prefix(row.group, ref.state)
            for keys, values in _entries(file, ref, number, row):
                yield [head + key for key in keys], values


def verify(storage: Storage, ref: FileRef) -> None:
    """Read a file to its end, and check every byte."""
    for row in _read_footer(storage, ref)[1]:
        crc = 0
        for start in range(0, row.length, _READ_SIZE):
            crc = crc32(storage.read_range(ref.name, row.offset + start, min(_READ_SIZE, row.length - start)), crc)
        if crc != row.crc:
            raise _corrupt(ref, f"the rows of key group {row.group} (bytes from {row.offset}) are damaged")


def _read_footer(storage: Storage, ref: FileRef) -> tuple[Any, list[_RowGroup]]:
    """The file's metadata and its row groups, if size and footer are as they should be."""
    found = storage.size(ref.name)
    if found != ref.size:
        raise _corrupt(ref, f"it has {found} bytes instead of {ref.size}")
    tail = storage.read_range(ref.name, max(0, ref.size - _TAIL), min(ref.size, _TAIL))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != _MAGIC or length + len(_MAGIC) > ref.size:
        raise _corrupt(ref, "it does not end as a Parquet file does")
    footer = tail[-length:] if length <= len(tail) else storage.read_range(ref.name, ref.size - length, length)
    if hashlib.sha256(footer).hexdigest()[:32] != ref.checksum:
        raise _corrupt(ref, "its footer is not the one that was written: it is another file, or damaged")
    if storage.read_range(ref.name, 0, len(_MAGIC)) != _MAGIC:
        raise _corrupt(ref, "it does not start as a Parquet file does")
    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        row_groups = msgspec.json.decode(metadata.metadata[b"penstock"], type=_Contents).groups
    except (pa.ArrowException, OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise _corrupt(ref, f"it is not a state file of a savepoint: {error}") from None
    end = len(_MAGIC)
    for row in row_groups:
        if row.offset != end:
            raise _corrupt(ref, f"a row group is expected at byte {end}, the footer has {row.offset}")
        end += row.length
    rows = sum(row.rows for row in row_groups)
    if end != ref.size - length or rows != ref.entries or metadata.num_row_groups != len(row_groups):
        raise _corrupt(ref, "footer and content do not agree")
    return metadata, row_groups


@contextmanager
def _opened(storage: Storage, ref: FileRef, metadata: Any) -> Iterator[Any]:
    with storage.open(ref.name) as source:
        try:
            file = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(ref, f"it cannot be opened: {error}") from None
        with file:
            yield file


def _entries(file: Any, ref: FileRef, number: int, row: _RowGroup) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    rows = 0
    try:
        for batch in file.iter_batches(_ROWS, row_groups=[number], columns=[RAW_KEY, RAW_VALUE], use_threads=False):
            keys, values = (batch.column(name) for name in (RAW_KEY, RAW_VALUE))
            if keys.null_count or values.null_count:
                raise _corrupt(ref, f"key group {row.group} has rows without key or value")
            rows += batch.num_rows
            yield keys.to_numpy(zero_copy_only=False).tolist(), values.to_numpy(zero_copy_only=False).tolist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise _corrupt(ref, f"the rows of key group {row.group} are damaged: {error}") from None
    if rows != row.rows:
        raise _corrupt(ref, f"key group {row.group} has {rows} rows instead of {row.rows}")


def _corrupt(ref: FileRef, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"state file {ref.name} cannot be used: {found}",
        detail=f"expected Parquet, {ref.size} bytes, {ref.entries} rows, checksum of the footer {ref.checksum}",
        hint="take another copy of the savepoint, or another savepoint",
    )
