"""Columns of windows over columns: an entry is a chunk, aggregated rows of one time and key group.

    time         the end of the slice, or of the bucket of time that the runs of sessions end in
    level        small chunks have low levels; a level holds one chunk
    rows         how many
    keys         the key of each row
    aggregates   JSON text: [{"of": "sum('x')", "vectors": [{"int": [a number for each row]}]}, ...]

The vectors of an aggregate are what it keeps (an average: a sum and a count); of sessions the first ones are the times each run
starts and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.encoding.json_values import tagged, untagged
from penstock.state.entries.entry_columns import EntryColumns, GroupedEntry, Undeclared, key_column
from penstock.state.entries.kinds import TIME
from penstock.state.entries.state_info import StateInfo
from penstock.state.tabular.columns import Column, NumberColumn, TimeColumn, ValueColumn
from penstock.state.tabular.conversions import JSON_METADATA
from penstock.windows.columnar.chunks import VERSION, StoredChunk, read_stored, write_stored

_text = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_DTYPES = {"int": "<i8", "float": "<f8"}


class KeysColumn(Column):
    """The keys of a chunk's rows: encoded, a list for each chunk."""

    def __init__(self, each: ValueColumn) -> None:
        self._each = each
        self.field = pa.field("keys", pa.list_(each.field.with_name("item")))

    def read(self, parts: Sequence[list[bytes]]) -> pa.Array:
        offsets = np.cumsum([0, *(len(keys) for keys in parts)])
        flat = self._each.read([key for keys in parts for key in keys])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=self.field.type)

    def write(self, array: pa.Array) -> Sequence[list[bytes]]:
        flat, at, found = self._each.write(array.flatten()), 0, []
        for length in array.value_lengths().to_pylist():
            found.append(list(flat[at : at + length]))
            at += length
        return found

    def part_to_json(self, part: list[bytes]) -> Any:
        return [self._each.part_to_json(key) for key in part]

    def part_from_json(self, value: Any) -> list[bytes]:
        return [self._each.part_from_json(key) for key in value]


class AggregatesColumn(Column):
    """The vectors of a chunk, as JSON text."""

    def __init__(self, info: StateInfo, times: int) -> None:
        self.field = pa.field("aggregates", pa.string(), metadata=JSON_METADATA)
        self._names = (["start, end"] if times == 2 else []) + info.what.split("; ")[2:]

    def read(self, parts: Sequence[StoredChunk]) -> pa.Array:
        return pa.array([_text(self.part_to_json(part)).decode() for part in parts], pa.string())

    def write(self, array: pa.Array) -> Sequence[Any]:
        return [self.part_from_json(msgspec.json.decode(text)) for text in array.cast(pa.string()).to_pylist()]

    def part_to_json(self, part: StoredChunk) -> Any:
        named = len(self._names) == len(part.vectors)
        return [
            {**({"of": self._names[number]} if named else {}), "vectors": [_shown(kind, data) for kind, data in vectors]}
            for number, vectors in enumerate(part.vectors)
        ]

    def part_from_json(self, value: Any) -> list[list[tuple[str, bytes]]]:
        return [[_stored(vector) for vector in one["vectors"]] for one in value]


def _shown(kind: str, data: bytes) -> dict[str, Any]:
    if kind == "any":
        return {"any": [None if blob is None else _shown_any(blob) for blob in _unpack(data)]}
    vector = np.frombuffer(data, _DTYPES[kind])
    values = vector.tolist()
    if kind == "float" and not np.isfinite(vector).all():
        values = tagged(values)
    return {kind: values}


def _shown_any(blob: bytes) -> Any:
    return {"$integer": blob[1:].decode()} if blob[:1] == b"i" else [tagged(_unpack(blob[1:]))]


def _stored(shown: dict[str, Any]) -> tuple[str, bytes]:
    ((kind, values),) = shown.items()
    if kind == "any":
        return kind, _pack([None if value is None else _stored_any(value) for value in values])
    return kind, np.asarray([untagged(value) for value in values], dtype=_DTYPES[kind]).tobytes()


def _stored_any(value: Any) -> bytes:
    return b"i" + value["$integer"].encode() if isinstance(value, dict) else b"v" + _pack(untagged(value[0]))


class SmallColumn(NumberColumn):
    """A small number."""

    def __init__(self, name: str, *, required: bool = False) -> None:
        super().__init__(name)
        self.required = required

    def unpack(self, pieces: list[bytes]) -> Any:
        return [piece[0] for piece in pieces]

    def pack(self, parts: Sequence[int]) -> Sequence[bytes]:
        return [bytes((number,)) for number in parts]

    def read(self, parts: Sequence[int]) -> pa.Array:
        return pa.array(parts, pa.int64())


class ChunkColumns(EntryColumns):
    """Of chunks; `times`: how many a row begins with."""

    def __init__(self, info: StateInfo, found: Undeclared, times: int) -> None:
        self._where = f"state {info.name!r} of step {info.step!r}"
        self._what = info.what
        self._time, self._level = TimeColumn("time"), SmallColumn("level", required=True)
        keys = KeysColumn(key_column("key", found.key, found.naive, exact=info.key_schema is None))
        self.columns = [self._time, self._level, SmallColumn("rows"), keys, AggregatesColumn(info, times)]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        times, levels = self._time.unpack([raw[:TIME] for raw in raw_keys]), self._level.unpack([raw[TIME:] for raw in raw_keys])
        stored = [read_stored(value, self._where) for value in raw_values]
        keys = [chunk.keys for chunk in stored]
        return [times, levels, [len(mine) for mine in keys], keys, stored]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[GroupedEntry]:
        times, levels, _, keys, vectors = parts
        found = []
        for time, level, mine, each in zip(self._time.pack(times), self._level.pack(levels), keys, vectors, strict=True):
            groups = {group(key) for key in mine}
            if len(groups) != 1 or any(len(mine) != _length(*vector) for one in each for vector in one):
                raise StateError(
                    f"a chunk of {self._where} has keys of {len(groups)} key groups, or not a value for each key",
                    hint="a chunk holds the keys of one key group; change values and times of chunks, or remove whole chunks",
                )
            chunk = write_stored(StoredChunk(VERSION, self._what, mine, each))
            found.append((groups.pop(), time + level, chunk))
        return found


def _length(kind: str, data: bytes) -> int:
    return len(_unpack(data)) if kind == "any" else len(data) // 8
