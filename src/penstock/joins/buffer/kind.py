"""The kind of state that joins over columns have: an entry is a chunk, rows of many keys of one side.

    time(8) · level(1)  →  chunk

Law: a chunk is cut by other key groups; what meets in a new group at one time and level is put together.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.joins.buffer.rows import Rows, needed_versions
from penstock.joins.buffer.stored import (
    OURS,
    StoredRows,
    batch_of,
    dump_rows,
    load_rows,
    read_stored,
    stored_rows,
    write_stored,
)
from penstock.state.encoding.json_values import tagged
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.untyped import encode_untyped
from penstock.state.entries.entry_columns import EntryColumns, GroupedEntries, GroupedEntry, Undeclared, key_column
from penstock.state.entries.kinds import TIME, RawKeys, StateKind
from penstock.state.entries.state_info import StateInfo
from penstock.state.entries.store_keys import sortable_time, time_from_sortable
from penstock.state.key_groups import KeyGroups
from penstock.state.tabular.columns import Column, TimeColumn
from penstock.timing.durations import calendar_time
from penstock.windows.columnar.chunks import KeyIndex
from penstock.windows.columnar.stored.columns import KeysColumn, SmallColumn

_unpack = msgspec.msgpack.Decoder().decode


VERSIONS = "versions of rows"
"""Says of a state that of the rows of a key all but the newest go as time goes on."""


class JoinRowsKind(StateKind):
    """Chunks of rows. A raw key is the end of the stretch of time that the rows are in, and a level."""

    many_keys = True
    by_time = True

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys([raw[:TIME] for raw in raw_keys], [b""] * len(raw_keys), [raw[TIME:] for raw in raw_keys])

    def holds(self, key: bytes, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo) -> list[bool]:
        return [key in read_stored(value, info.step).keys for value in raw_values]

    def due(self, raw_key: bytes) -> Milliseconds:
        """Only the operator can tell: it is made to look at once."""
        return MIN_WATERMARK

    def regroup(
        self, group: int, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo, key_groups: KeyGroups
    ) -> Iterable[GroupedEntry]:
        """Chunks, cut by new group. The old group is added to their keys, so that none replaces another."""
        for raw, value in zip(raw_keys, raw_values, strict=True):
            stored = read_stored(value, f"step {info.step!r}")
            groups = key_groups.of_many(stored.keys)
            for new in np.unique(groups).tolist():
                cut = _of_keys(stored, np.flatnonzero(groups == new), info)
                yield new, raw + group.to_bytes(2, "big"), write_stored(cut)

    def merge_regrouped(self, entries: GroupedEntries, info: StateInfo) -> GroupedEntries:
        flat = ((group, *entry) for group, keys, values in entries for entry in zip(keys, values, strict=True))
        for (group, place), mine in groupby(flat, key=lambda entry: (entry[0], entry[1][:-2])):
            values = [value for _, _, value in mine]
            yield group, [place], [values[0] if len(values) == 1 else _together(values, info)]

    def contents(self, entries: GroupedEntries, info: StateInfo, watermark: Milliseconds) -> tuple[StateKind, GroupedEntries]:
        """Row by row."""
        return JoinRows(), _rows_by_key(entries, info, watermark)

    def rows(self, data: bytes | None) -> dict[bytes, list[Any]]:
        """The records of each key."""
        if data is None:
            return {}
        stored = read_stored(data, self.name)
        batch = batch_of(stored, self.name)
        found: dict[bytes, list[Any]] = {}
        for code, row in zip(batch.column(0).to_pylist(), batch.select(batch.schema.names[len(OURS) :]).to_pylist(), strict=True):
            found.setdefault(stored.keys[code], []).append(row)
        return found

    def columns(self, info: StateInfo, found: Undeclared, *, null_is_nan: bool = False) -> EntryColumns:
        return JoinColumns(info, found)

    def of_key(self, rows: list[dict[str, Any]], info: StateInfo) -> Any:
        raise StateError(
            f"state {info.name!r} of step {info.step!r} keeps keys together in chunks",
            hint="find(key) gives the chunks that the key is in",
        )


JOIN_ROWS = JoinRowsKind("join rows")


def _of_keys(stored: StoredRows, keys: np.ndarray[tuple[int], np.dtype[np.int64]], info: StateInfo) -> StoredRows:
    """The rows of some keys of a chunk, by number."""
    batch = batch_of(stored, f"step {info.step!r}")
    number = np.full(len(stored.keys), -1, dtype=np.int32)
    number[keys] = np.arange(len(keys), dtype=np.int32)
    codes = number[batch.column(0).to_numpy()]
    part = batch.set_column(0, OURS[0], pa.array(codes)).take(pa.array(np.flatnonzero(codes >= 0)))
    return stored_rows(stored.what, [stored.keys[key] for key in keys.tolist()], part)


def _together(values: list[bytes], info: StateInfo) -> bytes:
    index = KeyIndex(key_codec(None))
    return dump_rows(load_rows(values, index, info.what, info.step)[0], index, info.what)


# --- row by row ------------------------------------------------------------------------------------------------------------


class JoinRows(StateKind):
    """Rows as entries: the raw key is the time and the key, the raw value is JSON: the records that have both."""

    in_plain_text = True

    def __init__(self) -> None:
        super().__init__("rows of joins")

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys([raw[:TIME] for raw in raw_keys], [raw[TIME:] for raw in raw_keys], None)

    def shown(self, raw_key: bytes, raw_value: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        time = calendar_time(time_from_sortable(raw_key[:TIME]))
        return {"time": time, "key": tagged(_unpack(raw_key[TIME:]))}, {"records": msgspec.json.decode(raw_value)}


def _rows_by_key(entries: GroupedEntries, info: StateInfo, watermark: Milliseconds) -> GroupedEntries:
    """What is still kept, without traces of how it came there."""
    kept = re.search(r"kept for (-?\d+) ms", info.what)
    for group, pieces in groupby(entries, key=lambda entry: entry[0]):
        index = KeyIndex(key_codec(None))
        rows, _ = load_rows([value for _, _, values in pieces for value in values], index, info.what, info.step)
        if VERSIONS in info.what:
            rows = needed_versions(rows, watermark, all_there_are=True)
        if kept is not None:
            rows = rows.take(np.maximum(rows.times + int(kept[1]), rows.ticks + 1) > watermark)
        found: dict[bytes, list[Any]] = {}
        for row, record in zip(np.lexsort((rows.turns, rows.ticks)).tolist(), _records(rows), strict=True):
            raw_key = sortable_time(int(rows.times[row])) + index.encoded[rows.keys[row]]
            found.setdefault(raw_key, []).append(record)
        keys = sorted(found)
        yield group, keys, [msgspec.json.encode(found[key]) for key in keys]


def _records(rows: Rows) -> Iterator[dict[str, Any]]:
    """The records in order of arrival."""
    order = np.lexsort((rows.turns, rows.ticks))
    for met, record in zip(rows.met[order].tolist(), rows.data.take(pa.array(order)).to_pylist(), strict=True):
        shown = {name: _plain(value) for name, value in record.items() if value is not None}
        yield {**shown, "$met": True} if met else shown


def _plain(value: Any) -> Any:
    try:
        return tagged(_unpack(encode_untyped(value)))
    except Exception:  # what only Arrow knows
        return {"$text": str(value)}


# --- as columns ------------------------------------------------------------------------------------------------------------


class StreamColumn(Column):
    """Rows of a chunk as an Arrow stream, which every reader of Arrow shows; parts are chunks."""

    def __init__(self, where: str) -> None:
        self.field = pa.field("records", pa.binary())
        self._where = where

    def read(self, parts: Sequence[StoredRows]) -> pa.Array:
        return pa.array([self._stream(part) for part in parts], pa.binary())

    def write(self, array: pa.Array) -> Sequence[pa.RecordBatch]:
        return [self._batch(data) for data in array.to_pylist()]

    def part_to_json(self, part: StoredRows) -> Any:
        return {"$arrow": b64encode(self._stream(part)).decode()}

    def part_from_json(self, value: Any) -> pa.RecordBatch:
        return self._batch(b64decode(value["$arrow"]))

    def _stream(self, part: StoredRows) -> bytes:
        batch, sink = batch_of(part, self._where), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def _batch(self, data: bytes) -> pa.RecordBatch:
        try:
            with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
                return reader.read_next_batch()
        except (pa.ArrowException, StopIteration, OSError) as error:
            raise StateError(f"records of {self._where} are no Arrow stream", detail=str(error)) from error


class JoinColumns(EntryColumns):
    """Time, level, how many rows, their keys (the different ones), and the rows as an Arrow stream."""

    def __init__(self, info: StateInfo, found: Undeclared) -> None:
        self._where = f"state {info.name!r} of step {info.step!r}"
        self._what = info.what
        self._time, self._level = TimeColumn("time"), SmallColumn("level", required=True)
        keys = KeysColumn(key_column("key", found.key, found.naive, exact=info.key_schema is None))
        self.columns = [self._time, self._level, SmallColumn("rows"), keys, StreamColumn(self._where)]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        times, levels = self._time.unpack([raw[:TIME] for raw in raw_keys]), self._level.unpack([raw[TIME:] for raw in raw_keys])
        stored = [read_stored(value, self._where) for value in raw_values]
        counts = [batch_of(one, self._where).num_rows for one in stored]
        return [times, levels, counts, [one.keys for one in stored], stored]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[GroupedEntry]:
        times, levels, _, keys, batches = parts
        found = []
        for time, level, mine, batch in zip(self._time.pack(times), self._level.pack(levels), keys, batches, strict=True):
            groups = {group(key) for key in mine}
            codes = batch.column(0).to_numpy(zero_copy_only=False)
            if len(groups) != 1 or (len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(mine)):
                raise StateError(
                    f"a chunk of {self._where} has keys of {len(groups)} key groups, or rows without a key",
                    hint="a chunk holds the keys of one key group; remove whole chunks",
                )
            found.append((groups.pop(), time + level, write_stored(stored_rows(self._what, mine, batch))))
        return found
