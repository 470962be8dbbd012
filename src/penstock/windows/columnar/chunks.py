"""Chunks: aggregated rows of one slice, a row for each key.

Laws:
- The keys of a chunk are all different. A key is a number in the task's `KeyIndex`.
- Chunks of a slice may hold the same keys: they are merged when their sum is asked for.
- As bytes a chunk is self-contained, and of one key group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from penstock.errors import CorruptFileError, StateError
from penstock.state.encoding.keys import KeyCodec
from penstock.state.key_groups import KeyGroups
from penstock.windows.columnar.measures import Measure, Vectors
from penstock.windows.columnar.vectors import Rows, dump_vector, load_vector


class KeyIndex:
    """The keys that a task has seen, numbered in order of appearance."""

    def __init__(self, codec: KeyCodec) -> None:
        self._codec = codec
        self._numbers: dict[bytes, int] = {}
        self.encoded: list[bytes] = []
        """All keys, as bytes."""
        self._decoded: list[Any] = []

    def numbers(self, keys: Sequence[bytes]) -> Rows:
        index, listed = self._numbers, self.encoded
        found = []
        for key in keys:
            number = index.get(key)
            if number is None:
                number = index[key] = len(listed)
                listed.append(key)
            found.append(number)
        return np.asarray(found, dtype=np.int64)

    def decoded(self) -> list[Any]:
        """All keys, as the user knows them."""
        known = self._decoded
        if len(known) < len(self.encoded):
            known += map(self._codec.decode, self.encoded[len(known) :])
        return known


@dataclass(slots=True)
class Chunk:
    """`keys` by number, and the vectors of each measure."""

    keys: Rows
    vectors: list[Vectors]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Any) -> Chunk:
        return Chunk(self.keys[rows], [[vector[rows] for vector in vectors] for vectors in self.vectors])


def merged(chunks: Sequence[Chunk], measures: Sequence[Measure]) -> Chunk:
    """One chunk of several, its keys in order."""
    if len(chunks) == 1:
        return chunks[0]
    rows = sum(map(len, chunks))
    most = max((int(chunk.keys.max()) for chunk in chunks if len(chunk)), default=-1) + 1
    if most <= 4 * rows:  # an array over all numbers is cheaper than a sort
        there = np.zeros(most, dtype=bool)
        for chunk in chunks:
            there[chunk.keys] = True
        keys = np.flatnonzero(there)
        place = np.cumsum(there) - 1
        places = [place[chunk.keys] for chunk in chunks]
    else:
        keys = np.unique(np.concatenate([chunk.keys for chunk in chunks]))
        places = [np.searchsorted(keys, chunk.keys) for chunk in chunks]
    vectors = []
    for number, measure in enumerate(measures):
        into = measure.empty(len(keys), chunks[0].vectors[number])
        for at, chunk in zip(places, chunks, strict=True):
            into = measure.merge(into, at, chunk.vectors[number])
        vectors.append(into)
    return Chunk(keys, vectors)


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """The rows of all chunks, one after another: a key may be there several times."""
    if len(chunks) == 1:
        return chunks[0]
    vectors = [
        [np.concatenate(parts) for parts in zip(*(chunk.vectors[number] for chunk in chunks), strict=True)]
        for number in range(len(chunks[0].vectors))
    ]
    return Chunk(np.concatenate([chunk.keys for chunk in chunks]), vectors)


def by_group(chunk: Chunk, index: KeyIndex, key_groups: KeyGroups) -> dict[int, Chunk]:
    """The chunk, cut by key group."""
    encoded = index.encoded
    groups = key_groups.of_many([encoded[key] for key in chunk.keys.tolist()])
    order = np.argsort(groups, kind="stable")
    there, starts = np.unique(groups[order], return_index=True)
    return {int(group): chunk.take(rows) for group, rows in zip(there, np.split(order, starts[1:]), strict=True)}


# --- as bytes --------------------------------------------------------------------------------------------------------------


class StoredChunk(msgspec.Struct, array_like=True, frozen=True):
    """A chunk as it is kept: keys as bytes, and vectors as `dump_vector` gives them. `what`: of what windows and aggregates."""

    version: int
    what: str
    keys: list[bytes]
    vectors: list[list[tuple[str, bytes]]]


VERSION = 1
_stored = msgspec.msgpack.Decoder(StoredChunk)


def read_stored(data: bytes, where: str) -> StoredChunk:
    try:
        stored = _stored.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptFileError(f"a chunk of {where} cannot be read", detail=str(error)) from error
    if stored.version != VERSION:
        raise CorruptFileError(f"a chunk of {where} is of version {stored.version}", hint="a newer Penstock has written it")
    return stored


def write_stored(stored: StoredChunk) -> bytes:
    return msgspec.msgpack.encode(stored)


def dump_chunk(chunk: Chunk, index: KeyIndex, what: str) -> bytes:
    """`what` says of what windows and aggregates the rows are."""
    encoded = index.encoded
    vectors = [[dump_vector(vector) for vector in vectors] for vectors in chunk.vectors]
    return write_stored(StoredChunk(VERSION, what, [encoded[key] for key in chunk.keys.tolist()], vectors))


def load_chunk(data: bytes, index: KeyIndex, what: str, where: str) -> Chunk:
    stored = read_stored(data, where)
    try:
        vectors = [[load_vector(kind, blob) for kind, blob in vectors] for vectors in stored.vectors]
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptFileError(f"a chunk of {where} cannot be read", detail=str(error)) from error
    if stored.what != what:
        raise StateError(
            f"the windows or aggregates of {where} have changed since its state was written",
            detail=f"written: {stored.what}\nnow: {what}",
            hint="give the changed step another name; the old state can then be dropped with --allow-dropped-state",
        )
    return Chunk(index.numbers(stored.keys), vectors)
