"""Entries in any order, brought into that of key group and key, in bounded memory: sorted runs on disk, merged when read.

Law: of several entries with one key the last one added counts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import msgspec
import pyarrow as pa

from penstock.snapshots.savepoint.state_file import StateWriter
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.store_keys import group_prefix
from penstock.state.files.durable import Block
from penstock.state.files.merging import live, newest, stretches

IN_MEMORY = 64 * 1024 * 1024
_OVERHEAD = 150
"""What an entry takes in memory besides its bytes, about."""
_AT_A_TIME = 4096

_zstd = pa.Codec("zstd", compression_level=1)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes | None]]).decode

Blocks = Callable[[], Iterator[Block]]
"""Gives the entries of a state from the beginning: keys are key group (2 bytes) and raw key, strictly ascending."""


class Sorter:
    """Takes entries; `blocks()` gives them in order, any number of times."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._limit = in_memory
        self._size = 0
        self._held: dict[bytes, bytes | None] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[str] = []

    def __enter__(self) -> Sorter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add(self, entries: Iterable[tuple[int, bytes, bytes | None]]) -> None:
        """(group, raw key, raw value); None removes."""
        held, prefixes = self._held, _Prefixes()
        for group, key, value in entries:
            held[prefixes[group] + key] = value
            self._size += len(key) + len(value or b"") + _OVERHEAD
            if self._size > self._limit:
                self._spill()
                held = self._held

    def blocks(self) -> Iterator[Block]:
        return newest([*(_read(path) for path in self._runs), _cut(self._held)])

    def close(self) -> None:
        self._held = {}
        self._runs = []
        if self._folder is not None:
            self._folder.cleanup()

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="penstock-sort-")
        path = os.path.join(self._folder.name, str(len(self._runs)))
        with open(path, "xb") as out:
            for block in _cut(self._held):
                raw = _pack(block)
                packed = _zstd.compress(raw, asbytes=True)
                out.write(len(raw).to_bytes(8, "big") + len(packed).to_bytes(8, "big") + packed)
        self._runs.append(path)
        self._held = {}
        self._size = 0


class _Prefixes(dict[int, bytes]):
    def __missing__(self, group: int) -> bytes:
        found = self[group] = group_prefix(group)
        return found


def _cut(held: dict[bytes, bytes | None]) -> Iterator[Block]:
    keys = sorted(held)
    for start in range(0, len(keys), _AT_A_TIME):
        mine = keys[start : start + _AT_A_TIME]
        yield mine, [held[key] for key in mine]


def _read(path: str) -> Iterator[Block]:
    with open(path, "rb") as file:
        while head := file.read(16):
            raw = _zstd.decompress(file.read(int.from_bytes(head[8:], "big")), int.from_bytes(head[:8], "big"))
            yield _unpack(memoryview(raw))


def as_blocks(entries: GroupedEntries) -> Iterator[Block]:
    """Entries of a snapshot, with their group in the key."""
    for group, keys, values in entries:
        head = group_prefix(group)
        yield [head + key for key in keys], list(values)


def as_entries(blocks: Iterable[Block]) -> GroupedEntries:
    """The inverse, without removed ones."""
    for keys, values in live(blocks):
        for head, mine in stretches(keys, 2):
            yield int.from_bytes(head, "big"), [key[2:] for key in keys[mine]], values[mine]


def write_entries(writer: StateWriter, entries: GroupedEntries) -> None:
    for group, keys, values in entries:
        writer.group(group, keys, values)
