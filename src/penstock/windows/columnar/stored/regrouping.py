"""Chunks by other key groups.

Law: a chunk is cut by the new groups. Chunks of one time and level that meet in a new group hold different keys: they become one,
unless their vectors are of different types; then the second takes a free level.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec
import numpy as np

from penstock.state.entries.entry_columns import GroupedEntries, GroupedEntry
from penstock.state.entries.kinds import TIME
from penstock.state.key_groups import KeyGroups
from penstock.windows.columnar.chunks import StoredChunk, read_stored, write_stored

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def cut_chunks(
    group: int, raw_keys: list[bytes], raw_values: list[bytes], key_groups: KeyGroups, where: str
) -> Iterator[GroupedEntry]:
    """Chunks, cut by new group. Types of vectors and the old group are added to their keys, so that none replaces another."""
    for raw, value in zip(raw_keys, raw_values, strict=True):
        chunk = read_stored(value, where)
        groups = key_groups.of_many(chunk.keys)
        types = "".join(kind[0] for vectors in chunk.vectors for kind, _ in vectors).encode()
        for new in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == new)
            yield new, raw + types + group.to_bytes(2, "big"), write_stored(_taken(chunk, rows))


def _taken(chunk: StoredChunk, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> StoredChunk:
    """Some rows of a chunk."""

    def some(kind: str, data: bytes) -> tuple[str, bytes]:
        if kind == "any":
            blobs = _unpack(data)
            return kind, _pack([blobs[row] for row in rows.tolist()])
        return kind, np.frombuffer(data, "<i8")[rows].tobytes()

    vectors = [[some(*vector) for vector in vectors] for vectors in chunk.vectors]
    return msgspec.structs.replace(chunk, keys=[chunk.keys[row] for row in rows.tolist()], vectors=vectors)


def _together(chunks: list[StoredChunk]) -> StoredChunk:
    """The rows of all; their vectors are of the same types."""

    def both(parts: tuple[tuple[str, bytes], ...]) -> tuple[str, bytes]:
        kind = parts[0][0]
        if kind == "any":
            return kind, _pack([blob for _, data in parts for blob in _unpack(data)])
        return kind, b"".join(data for _, data in parts)

    if len(chunks) == 1:
        return chunks[0]
    columns = zip(*(chunk.vectors for chunk in chunks), strict=True)
    vectors = [[both(parts) for parts in zip(*measures, strict=True)] for measures in columns]
    return msgspec.structs.replace(chunks[0], keys=[key for chunk in chunks for key in chunk.keys], vectors=vectors)


def joined_chunks(entries: GroupedEntries, where: str) -> GroupedEntries:
    """What was cut, sorted, and now put together: the chunks of a group and time each on a level of its own."""
    flat = ((group, *entry) for group, keys, values in entries for entry in zip(keys, values, strict=True))
    for (group, time), mine in groupby(flat, key=lambda entry: (entry[0], entry[1][:TIME])):
        met: dict[tuple[int, bytes], list[StoredChunk]] = {}
        for _, key, value in mine:
            met.setdefault((key[TIME], key[TIME + 1 : -2]), []).append(read_stored(value, where))
        free = _free_levels({level for level, _ in met})
        done: dict[int, StoredChunk] = {}
        for (level, _), chunks in met.items():
            done[level if level not in done else next(free)] = _together(chunks)
        levels = sorted(done)
        yield group, [time + bytes((level,)) for level in levels], [write_stored(done[level]) for level in levels]


def _free_levels(taken: set[int]) -> Iterator[int]:
    return (level for level in range(256) if level not in taken)
