"""The durable form of state: immutable, sorted, compressed, checksummed files with a key-group index.

    magic(6) version(2) · header length(4) crc(4) · header · block · block · … · index · footer(32)

A block is `[keys, values]` in MessagePack, compressed when that makes it smaller. The header says what the file is and whose. The
index has a row for each block: groups, place, crc, entries. The footer says where the index is, with its own crc and the magic.

Laws:
- A **base** holds every entry of its groups; a **delta** holds the changes of an epoch, a deletion being a value of None.
- Keys are strictly ascending through the file.
- Every byte is covered: header, index and footer by the checksum in the `FileRef`, blocks by the crc in the index; blocks fill
  the space between header and index without a gap. Damage is refused by name and never read as empty.
- Only blocks that hold a wanted group are read.

A chain may begin with Parquet files of a savepoint instead of a base: see `row_groups`. They have raw keys; the head of a store
key is the key group and the state id that the `FileRef` gives.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter, lt
from posixpath import basename
from struct import Struct
from typing import Any, Literal
from zlib import crc32

import msgspec
import pyarrow as pa

from penstock.errors import CorruptFileError, StateError
from penstock.state.entries.store_keys import group_of_store_key, group_prefix, value_prefix
from penstock.state.files.row_groups import SUFFIX, StateReader
from penstock.storage.protocol import Storage

Kind = Literal["base", "delta"]
Block = tuple[list[bytes], list[bytes | None]]

VERSION = 1
BLOCK_SIZE = 256 * 1024
READ_SIZE = 4 * 1024 * 1024
_MAGIC = b"PNSTCK"
_START = Struct(">6sHII")
_FOOTER = Struct(">QIIIHI6s")  # index offset, length, crc; entries (low 32 bits); version; crc of the above; magic
_FOOTED = Struct(">QIIIH")
_TAIL = 64 * 1024
_ROOM_FOR_HEADER = 4096

_key, _value = itemgetter(0), itemgetter(1)
_zstd = pa.Codec("zstd", compression_level=1)
_pack = msgspec.msgpack.Encoder().encode
_unpack_block = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes | None]]).decode


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, as manifests name it. Only groups `lo <= group < hi` are to be read from it (after rescaling). `covers` is, for a
    base, the mark of the last file that was merged into it: a store that has applied that has all that the base has. `state` is,
    for a savepoint's file, the id of the state that its entries belong to."""

    name: str
    kind: Kind
    size: int
    checksum: str
    entries: int
    first_group: int
    last_group: int
    lo: int = 0
    hi: int = 65536
    covers: str | None = None
    state: int | None = None

    @property
    def whole(self) -> bool:
        """All that is in the file is to be read."""
        return self.lo <= self.first_group and self.last_group < self.hi

    @property
    def mark(self) -> str:
        """Tells the file from others in a chain: after rescaling down, two parts of one file may be in it."""
        return self.name if self.whole else f"{self.name}@{self.lo}-{self.hi}"


class FileIdentity(msgspec.Struct, frozen=True):
    """Whose state a file holds, and which attempt wrote it."""

    job: str
    epoch: int
    stage: str
    partition: int
    attempt: str


class _Header(msgspec.Struct, frozen=True):
    kind: Kind
    name: str
    identity: FileIdentity


class _IndexRow(msgspec.Struct, frozen=True, array_like=True):
    first_group: int
    last_group: int
    offset: int
    length: int
    crc: int
    raw_length: int
    entries: int


_unpack_header = msgspec.msgpack.Decoder(_Header).decode
_unpack_index = msgspec.msgpack.Decoder(list[_IndexRow]).decode


def encode_delta(name: str, entries: list[tuple[bytes, bytes | None]], identity: FileIdentity) -> tuple[FileRef, bytes]:
    """The changes of an epoch, sorted by key, as a file that is yet to be written."""
    file = _Assembly("delta", name, identity, None)
    data = b"".join(file.parts(entries))
    return file.ref(), data


def write_delta(storage: Storage, name: str, entries: list[tuple[bytes, bytes | None]], identity: FileIdentity) -> FileRef:
    """The changes of an epoch, in one `create`."""
    ref, data = encode_delta(name, entries, identity)
    storage.create(name, data)
    return ref


def write_base(
    storage: Storage, name: str, entries: Iterable[tuple[bytes, bytes]], identity: FileIdentity, *, covers: str | None = None
) -> FileRef:
    """All entries, sorted by key, written as they come: a few blocks are in memory at any time."""
    file = _Assembly("base", name, identity, covers)
    with storage.writer(name) as out:
        for part in file.parts(entries):
            out.write(part)
    return file.ref()


def write_merged_delta(
    storage: Storage,
    name: str,
    entries: Iterable[tuple[bytes, bytes | None]],
    identity: FileIdentity,
    *,
    covers: str | None = None,
) -> FileRef:
    """Several deltas as one, written as they come; deletions stay."""
    file = _Assembly("delta", name, identity, covers)
    with storage.writer(name) as out:
        for part in file.parts(entries):
            out.write(part)
    return file.ref()


class _Assembly:
    """The bytes of a file, part by part, and what is learnt on the way."""

    def __init__(self, kind: Kind, name: str, identity: FileIdentity, covers: str | None) -> None:
        self.kind: Kind = kind
        self.name = name
        self.identity = identity
        self.covers = covers
        self.index: list[_IndexRow] = []
        self.size = 0
        self.checksum = ""

    def parts(self, entries: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
        header = _pack(_Header(self.kind, basename(self.name), self.identity))
        header = _START.pack(_MAGIC, VERSION, len(header), crc32(header)) + header
        self.size = len(header)
        yield header
        before = b""
        for keys, values in _blocks(entries):
            if not (before < keys[0] and all(map(lt, keys, islice(keys, 1, None)))):
                raise StateError(f"entries for {self.name} are not sorted by key, or a key is there twice")
            before = keys[-1]
            if self.kind == "base" and None in values:
                raise StateError(f"a deletion was written to the base file {self.name}")
            raw = _pack((keys, values))
            packed = _zstd.compress(raw, asbytes=True)
            block = packed if len(packed) < len(raw) else raw
            groups = group_of_store_key(keys[0]), group_of_store_key(before)
            self.index.append(_IndexRow(*groups, self.size, len(block), crc32(block), len(raw), len(keys)))
            self.size += len(block)
            yield block
        index = _pack(self.index)
        footed = _FOOTED.pack(self.size, len(index), crc32(index), self.entries & 0xFFFFFFFF, VERSION)
        footer = footed + crc32(footed).to_bytes(4, "big") + _MAGIC
        self.size += len(index) + len(footer)
        self.checksum = _checksum(header, index, footer)
        yield index + footer

    @property
    def entries(self) -> int:
        return sum(row.entries for row in self.index)

    def ref(self) -> FileRef:
        first, last = (self.index[0].first_group, self.index[-1].last_group) if self.index else (0, -1)
        return FileRef(self.name, self.kind, self.size, self.checksum, self.entries, first, last, covers=self.covers)


def _blocks(entries: Iterable[tuple[bytes, Any]]) -> Iterator[tuple[list[bytes], list[Any]]]:
    """Cut into lists of about BLOCK_SIZE bytes; what is looked ahead adapts to the size of entries."""
    rest = iter(entries)
    step = 256
    keys: list[bytes] = []
    values: list[Any] = []
    size = 0
    while part := list(islice(rest, step)):
        more_keys = list(map(_key, part))
        more_values = list(map(_value, part))
        grown = sum(map(len, more_keys)) + sum(map(len, filter(None, more_values))) + 4 * len(part)
        step = max(1, min(2048, BLOCK_SIZE // 4 * len(part) // grown))
        keys += more_keys
        values += more_values
        size += grown
        if size >= BLOCK_SIZE:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def read_entries(
    storage: Storage,
    ref: FileRef,
    *,
    groups: range | None = None,
    keep: Callable[[int], bool] | None = None,
    job: str | None = None,
    stage: str | None = None,
) -> Iterator[Block]:
    """The entries of the wanted groups (and of the states that `keep` wants), block by block, in order.

    With `job` or `stage`, a file of another one is refused.
    """
    lo, hi = max(ref.lo, groups.start if groups is not None else 0), min(ref.hi, groups.stop if groups is not None else 65536)
    if ref.name.endswith(SUFFIX):
        if ref.state is None:
            raise CorruptFileError(f"the manifest does not say which state the entries of {ref.name} belong to")
        if keep is None or keep(ref.state):
            for group, raw_keys, raw_values in _of_savepoint(storage, ref).entries(range(lo, hi)):
                head = value_prefix(group, ref.state)
                yield [head + key for key in raw_keys], [*raw_values]
        return
    reader = _Reader(storage, ref)
    header, index = reader.verify()
    for what, wanted, found in (("job", job, header.identity.job), ("stage", stage, header.identity.stage)):
        if wanted is not None and wanted != found:
            raise _corrupt(ref, f"it belongs to {what} {found!r}, not to {wanted!r}")
    wanted_state = _StateFilter(keep) if keep is not None else None
    for row, data in reader.blocks([row for row in index if row.first_group < hi and row.last_group >= lo]):
        keys, values = _open_block(ref, row, data)
        if row.first_group < lo or row.last_group >= hi:
            cut = slice(bisect_left(keys, group_prefix(lo)), bisect_left(keys, group_prefix(hi)) if hi < 65536 else None)
            keys, values = keys[cut], values[cut]
        if wanted_state is not None and not all(wanted_state[state] for state in {key[2:4] for key in keys}):
            kept = [pair for pair in zip(keys, values, strict=True) if wanted_state[pair[0][2:4]]]
            keys, values = [key for key, _ in kept], [value for _, value in kept]
        if keys:
            yield keys, values


def read_identity(storage: Storage, ref: FileRef) -> FileIdentity:
    """Whose state a file holds; verifies header and index on the way."""
    return _Reader(storage, ref).verify()[0].identity


def verify_file(storage: Storage, ref: FileRef) -> None:
    """Read a file to its end, and check all of it."""
    if ref.name.endswith(SUFFIX):
        _of_savepoint(storage, ref).verify()
        return
    reader = _Reader(storage, ref)
    for row, data in reader.blocks(reader.verify()[1]):
        if crc32(data) != row.crc:
            raise _corrupt(ref, f"block at byte {row.offset} is damaged: its crc is not the one in the index")


def _of_savepoint(storage: Storage, ref: FileRef) -> StateReader:
    return StateReader(storage, ref.name, size=ref.size, rows=ref.entries, checksum=ref.checksum)


class _StateFilter(dict[bytes, bool]):
    def __init__(self, keep: Callable[[int], bool]) -> None:
        super().__init__()
        self._keep = keep

    def __missing__(self, state: bytes) -> bool:
        kept = self[state] = self._keep(int.from_bytes(state, "big"))
        return kept


class _Reader:
    """A file's parts, read as seldom as possible and checked before they are believed."""

    def __init__(self, storage: Storage, ref: FileRef) -> None:
        self.storage = storage
        self.ref = ref
        self._whole: bytes | None = None

    def verify(self) -> tuple[_Header, list[_IndexRow]]:
        ref = self.ref
        found = self.storage.size(ref.name)
        if found != ref.size:
            raise _corrupt(ref, f"it has {found} bytes instead of {ref.size}")
        if ref.size < _START.size + _FOOTER.size:
            raise _corrupt(ref, "it is too short to be a state file")
        if ref.size <= READ_SIZE:
            self._whole = self._checked(self.storage.read(ref.name), ref.size)
        header_bytes = self._header_bytes()
        index_bytes, footer, index_at = self._index_bytes()
        if _checksum(header_bytes, index_bytes, footer) != ref.checksum:
            raise _corrupt(ref, "its checksum is not the one in the manifest: it is another file, or damaged")
        try:
            header, index = _unpack_header(header_bytes[_START.size :]), _unpack_index(index_bytes)
        except msgspec.MsgspecError as error:
            raise _corrupt(ref, f"header or index cannot be decoded: {error}") from None
        if header.kind != ref.kind or header.name != basename(ref.name):
            raise _corrupt(ref, f"it says it is the {header.kind} file {header.name!r}")
        end = len(header_bytes)
        for row in index:
            if row.offset != end:
                raise _corrupt(ref, f"a block is expected at byte {end}, the index has {row.offset}")
            end += row.length
        if end != index_at or sum(row.entries for row in index) != ref.entries:
            raise _corrupt(ref, "index and content do not agree")
        return header, index

    def blocks(self, rows: list[_IndexRow]) -> Iterator[tuple[_IndexRow, memoryview]]:
        """The bytes of some blocks, neighbours read together."""
        at = 0
        while at < len(rows):
            first = rows[at]
            end, upto = first.offset + first.length, at + 1
            while upto < len(rows) and rows[upto].offset == end and end + rows[upto].length - first.offset <= READ_SIZE:
                end += rows[upto].length
                upto += 1
            data = memoryview(self._range(first.offset, end - first.offset))
            for row in rows[at:upto]:
                start = row.offset - first.offset
                yield row, data[start : start + row.length]
            at = upto

    def _header_bytes(self) -> bytes:
        start = self._range(0, min(_ROOM_FOR_HEADER, self.ref.size))
        magic, version, length, crc = _START.unpack_from(start)
        if magic != _MAGIC:
            raise _corrupt(self.ref, f"it does not start as a state file does: {start[:8]!r}")
        if version != VERSION:
            raise _corrupt(self.ref, f"its format has version {version}; this Penstock reads {VERSION}", hint="use a newer one")
        end = _START.size + length
        if end > self.ref.size:
            raise _corrupt(self.ref, "its header is longer than the file")
        header = start[:end] if end <= len(start) else self._range(0, end)
        if crc32(header[_START.size :]) != crc:
            raise _corrupt(self.ref, "its header is damaged")
        return header

    def _index_bytes(self) -> tuple[bytes, bytes, int]:
        size = self.ref.size
        tail = self._range(max(0, size - _TAIL), min(size, _TAIL))
        footer = tail[-_FOOTER.size :]
        index_at, length, crc, _, version, own_crc, magic = _FOOTER.unpack(footer)
        if magic != _MAGIC or crc32(footer[: _FOOTED.size]) != own_crc or version != VERSION:
            raise _corrupt(self.ref, "its footer is damaged")
        if index_at + length + _FOOTER.size != size:
            raise _corrupt(self.ref, "its footer points outside of the file")
        whole = length + _FOOTER.size
        index = tail[-whole : -_FOOTER.size] if whole <= len(tail) else self._range(index_at, length)
        if crc32(index) != crc:
            raise _corrupt(self.ref, "its index is damaged")
        return index, footer, index_at

    def _range(self, offset: int, length: int) -> bytes:
        if self._whole is not None:
            return self._whole[offset : offset + length]
        return self._checked(self.storage.read_range(self.ref.name, offset, length), length)

    def _checked(self, data: bytes, length: int) -> bytes:
        if len(data) != length:
            raise _corrupt(self.ref, f"{length} bytes were asked for, {len(data)} came")
        return data


def _open_block(ref: FileRef, row: _IndexRow, data: memoryview) -> Block:
    at = f"block at byte {row.offset}"
    if crc32(data) != row.crc:
        raise _corrupt(ref, f"{at} is damaged: its crc is not the one in the index")
    try:
        raw = data if row.length == row.raw_length else _zstd.decompress(data, decompressed_size=row.raw_length)
        keys, values = _unpack_block(memoryview(raw))
    except (msgspec.MsgspecError, OSError, ValueError) as error:
        raise _corrupt(ref, f"{at} cannot be decoded: {error}") from None
    if not len(keys) == len(values) == row.entries or (ref.kind == "base" and None in values):
        raise _corrupt(ref, f"{at} does not hold what the index says")
    return keys, values


def _checksum(header: bytes, index: bytes, footer: bytes) -> str:
    return hashlib.sha256(header + index + footer).hexdigest()[:32]


def _corrupt(ref: FileRef, found: str, *, hint: str = "") -> CorruptFileError:
    return CorruptFileError(
        f"state file {ref.name} cannot be used: {found}",
        detail=f"expected {ref.kind}, {ref.size} bytes, {ref.entries} entries, checksum {ref.checksum}",
        hint=hint or "restore it from a copy, or start from an earlier epoch or a savepoint",
    )
