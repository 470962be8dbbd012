"""Windows over columns, row by row: what the chunks of a state come to, whatever epochs they were written in.

    slices         time (the end of the slice), key   → the aggregates so far
    session runs   start, end, key                    → the aggregates of a session so far

Law: two snapshots that have seen the same records give the same rows (but for the rounding of sums of fractions), however their
input was cut into epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.state.encoding.json_values import tagged
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.untyped import encode_untyped
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.kinds import TIME, RawKeys, StateKind
from penstock.state.entries.state_info import StateInfo
from penstock.state.entries.store_keys import sortable_time, time_from_sortable
from penstock.timing.durations import calendar_time
from penstock.windows.columnar.chunks import Chunk, KeyIndex, joined, load_chunk, merged
from penstock.windows.columnar.measures import Measure, reduced
from penstock.windows.columnar.measuring import MEASURES
from penstock.windows.columnar.vectors import EXACT_IN_INT, as_objects, values_of

Named = list[tuple[str, Measure]]
"""Aggregates, as the state says what they are."""

_unpack = msgspec.msgpack.Decoder().decode
_BY_KIND = {aggregate.kind: make for aggregate, make in MEASURES.items()}


def measures_of(info: StateInfo) -> Named | None:
    """The aggregates of a state by what it says of itself; None if that cannot be read."""
    named = info.what.split("; ")[2:]
    made = [_BY_KIND.get(name.partition("(")[0]) for name in named]
    return None if None in made else [(name, make()) for name, make in zip(named, made, strict=True) if make is not None]


class WindowRows(StateKind):
    """Rows as entries: the raw key is the time (or start and end) and the key, the raw value is JSON."""

    in_plain_text = True

    def __init__(self, times: int) -> None:
        super().__init__("rows of windows")
        self._names = ("start", "end") if times == 2 else ("time",)
        self._ahead = TIME * times

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys([raw[: self._ahead] for raw in raw_keys], [raw[self._ahead :] for raw in raw_keys], None)

    def shown(self, raw_key: bytes, raw_value: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        times = [time_from_sortable(raw_key[at : at + TIME]) for at in range(0, self._ahead, TIME)]
        of: dict[str, Any] = dict(zip(self._names, map(calendar_time, times), strict=True))
        return {**of, "key": tagged(_unpack(raw_key[self._ahead :]))}, msgspec.json.decode(raw_value)


def rows_of_chunks(
    entries: GroupedEntries, info: StateInfo, measures: Named, watermark: Milliseconds, *, sessions: bool
) -> GroupedEntries:
    """The rows of chunks, as entries of `WindowRows`."""
    for group, pieces in groupby(entries, key=lambda entry: entry[0]):
        index = KeyIndex(key_codec(None))
        chunks = _chunks(pieces, index, info)
        if sessions:
            found = dict(_sessions([chunk for _, chunk in chunks], index, measures, watermark))
        else:
            found = dict(_slices(chunks, index, measures))
        keys = sorted(found)
        yield group, keys, [found[key] for key in keys]


def _chunks(pieces: GroupedEntries, index: KeyIndex, info: StateInfo) -> list[tuple[Milliseconds, Chunk]]:
    return [
        (time_from_sortable(raw[:8]), load_chunk(value, index, info.what, f"step {info.step!r}"))
        for _, keys, values in pieces
        for raw, value in zip(keys, values, strict=True)
    ]


def _slices(chunks: list[tuple[Milliseconds, Chunk]], index: KeyIndex, measures: Named) -> Iterator[tuple[bytes, bytes]]:
    for time, mine in groupby(chunks, key=lambda chunk: chunk[0]):
        whole = merged([chunk for _, chunk in mine], [measure for _, measure in measures])
        head = sortable_time(time)
        for key, shown in zip(whole.keys.tolist(), _shown(whole.vectors, measures), strict=True):
            yield head + index.encoded[key], shown


def _sessions(chunks: list[Chunk], index: KeyIndex, measures: Named, watermark: Milliseconds) -> Iterator[tuple[bytes, bytes]]:
    """Runs that touch are one session. What the watermark has passed is dead, wherever it is still stored."""
    rows = joined(_alike(chunks))
    if watermark > MIN_WATERMARK:
        rows = rows.take(np.flatnonzero(rows.vectors[0][1] - 1 > watermark))
    if not len(rows):
        return
    rows = rows.take(np.lexsort((rows.vectors[0][0], rows.keys)))
    starts, ends = rows.vectors[0]
    first = np.ones(len(rows), dtype=bool)
    reach = int(ends[0])
    for row in range(1, len(rows)):
        first[row] = rows.keys[row] != rows.keys[row - 1] or starts[row] > reach
        reach = int(ends[row]) if first[row] else max(reach, int(ends[row]))
    groups = np.cumsum(first) - 1
    size = int(groups[-1]) + 1
    until = np.full(size, MIN_WATERMARK, dtype=np.int64)
    np.maximum.at(until, groups, ends)
    vectors = [reduced(measure, mine, groups, size) for (_, measure), mine in zip(measures, rows.vectors[1:], strict=True)]
    keys = rows.keys[first].tolist()
    for key, start, end, shown in zip(keys, starts[first].tolist(), until.tolist(), _shown(vectors, measures), strict=True):
        yield sortable_time(start) + sortable_time(end) + index.encoded[key], shown


def _alike(chunks: Sequence[Chunk]) -> list[Chunk]:
    """With vectors of one type each: numbers beside others become objects."""
    flat = [[vector for vectors in chunk.vectors for vector in vectors] for chunk in chunks]
    mixed = [len({vector.dtype for vector in column}) > 1 for column in zip(*flat, strict=True)]
    found = []
    for chunk in chunks:
        of_vector = iter(mixed)
        vectors = [[as_objects(vector) if next(of_vector) else vector for vector in vectors] for vectors in chunk.vectors]
        found.append(Chunk(chunk.keys, vectors))
    return found


def _shown(vectors: list[Any], measures: Named) -> Iterator[bytes]:
    """The results, a JSON object for each row."""
    columns = []
    for (_, measure), mine in zip(measures, vectors, strict=True):
        result, missing = measure.result(mine)
        columns.append(values_of(result, missing))
    names = [name for name, _ in measures]
    for row in zip(*columns, strict=True):
        yield msgspec.json.encode(dict(zip(names, map(_plain, row), strict=True)))


def _plain(value: Any) -> Any:
    if type(value) is int and not -EXACT_IN_INT <= value < EXACT_IN_INT:
        return {"$integer": str(value)}
    if type(value) is float and value.is_integer():
        return int(value)  # whole numbers that were merged with fractions
    return tagged(_unpack(encode_untyped(value)))
