"""State files of savepoints as files of a chain: Parquet, a row group for each key group, what restore needs in two columns.

Laws:
- `raw_key` is a store key without its head; the head is the row group's key group and the state id of the program that reads.
- Only row groups of wanted key groups are read, and only `raw_key` and `raw_value` of them.
- Size and footer are those that the `FileRef` says, and every page that is read is checked against its own checksum: damage is
  refused by name and never read as empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptFileError
from penstock.state.layout import value_prefix
from penstock.storage.protocol import Storage

if TYPE_CHECKING:
    from penstock.state.files import Block, FileRef

SUFFIX = ".parquet"
KEY_GROUP, RAW_KEY, RAW_VALUE = "key_group", "raw_key", "raw_value"
_MAGIC = b"PAR1"
_TAIL = 8  # length of the footer, magic
_ROWS = 16_384


def footer_checksum(footer: bytes) -> str:
    """The checksum of a Parquet file's footer: its metadata, length and magic."""
    return hashlib.sha256(footer).hexdigest()[:32]


def read_footer(storage: Storage, name: str, size: int) -> bytes:
    """The last bytes of a Parquet file: metadata, length, magic; empty if they do not look like that."""
    tail = storage.read_range(name, max(0, size - _TAIL), _TAIL)
    length = int.from_bytes(tail[:4], "little") + _TAIL if tail[4:] == _MAGIC else 0
    return storage.read_range(name, size - length, length) if _TAIL < length <= size else b""


def read_blocks(storage: Storage, ref: FileRef, lo: int, hi: int) -> Iterator[Block]:
    """The entries of the groups `lo <= group < hi`, block by block, in order, under the state id of the reference."""
    if ref.state is None:
        raise CorruptFileError(f"the manifest does not say which state the entries of {ref.name} belong to")
    with _opened(storage, ref) as file:
        for number, group in enumerate(_groups(file, ref)):
            if lo <= group < hi:
                head = value_prefix(group, ref.state)
                for keys, values in _rows(file, ref, number):
                    yield [head + key for key in keys], values


def verify_pages(storage: Storage, ref: FileRef) -> None:
    """Read all that a restore would read, and check it."""
    with _opened(storage, ref) as file:
        for number, _ in enumerate(_groups(file, ref)):
            for _ in _batches(file, ref, number):
                pass


def _opened(storage: Storage, ref: FileRef) -> pq.ParquetFile:
    found = storage.size(ref.name)
    if found != ref.size:
        raise _corrupt(ref, f"it has {found} bytes instead of {ref.size}")
    footer = read_footer(storage, ref.name, ref.size)
    if footer_checksum(footer) != ref.checksum:
        raise _corrupt(ref, "its footer is not the one that was written: it is another file, or damaged")
    try:
        file = pq.ParquetFile(storage.open(ref.name), page_checksum_verification=True, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(ref, f"it cannot be opened: {error}") from None
    missing = {KEY_GROUP, RAW_KEY, RAW_VALUE} - set(file.schema_arrow.names)
    if missing or file.metadata.num_rows != ref.entries:
        file.close(force=True)
        raise _corrupt(ref, f"columns {sorted(missing)} are missing" if missing else f"it has {file.metadata.num_rows} rows")
    return file


def _groups(file: pq.ParquetFile, ref: FileRef) -> list[int]:
    """The key group of each row group."""
    column = file.schema_arrow.names.index(KEY_GROUP)
    found: list[int] = []
    for number in range(file.num_row_groups):
        statistics: Any = file.metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max or statistics.min != statistics.max:
            raise _corrupt(ref, f"row group {number} is not of one key group")
        if found and statistics.min < found[-1]:
            raise _corrupt(ref, f"row group {number} is out of order")
        found.append(statistics.min)
    return found


def _rows(file: pq.ParquetFile, ref: FileRef, number: int) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
    for batch in _batches(file, ref, number):
        keys, values = (column.to_numpy(zero_copy_only=False).tolist() for column in batch.columns)
        yield keys, values


def _batches(file: pq.ParquetFile, ref: FileRef, number: int) -> Iterator[pa.RecordBatch]:
    rows = 0
    try:
        for batch in file.iter_batches(_ROWS, row_groups=[number], columns=[RAW_KEY, RAW_VALUE], use_threads=False):
            if any(column.null_count for column in batch.columns):
                raise _corrupt(ref, f"row group {number} has rows without key or value")
            rows += batch.num_rows
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(ref, f"row group {number} is damaged: {error}") from None
    if rows != file.metadata.row_group(number).num_rows:
        raise _corrupt(ref, f"row group {number} ends early")


def _corrupt(ref: FileRef, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"state file {ref.name} cannot be used: {found}",
        detail=f"expected Parquet, {ref.size} bytes, {ref.entries} rows, checksum of the footer {ref.checksum}",
        hint="take another copy of the savepoint, or another savepoint",
    )
