"""The kinds of state that windows over columns have: an entry is a chunk, rows of many keys.

time(8) · level(1)  →  chunk
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import StateError
from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.state.entries.entry_columns import EntryColumns, GroupedEntries, GroupedEntry, Undeclared
from penstock.state.entries.kinds import TIME, RawKeys, StateKind
from penstock.state.entries.state_info import StateInfo
from penstock.state.key_groups import KeyGroups
from penstock.windows.columnar.chunks import read_stored
from penstock.windows.columnar.stored.columns import ChunkColumns
from penstock.windows.columnar.stored.regrouping import cut_chunks, joined_chunks
from penstock.windows.columnar.stored.rows import WindowRows, measures_of, rows_of_chunks
from penstock.windows.columnar.vectors import load_vector


class ChunkKind(StateKind):
    """Chunks. `times`: how many a row begins with: the end of a slice, or start and end of a session."""

    many_keys = True
    by_time = True

    def __init__(self, name: str, times: int) -> None:
        super().__init__(name)
        self.times = times

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys([raw[:TIME] for raw in raw_keys], [b""] * len(raw_keys), [raw[TIME:] for raw in raw_keys])

    def holds(self, key: bytes, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo) -> list[bool]:
        return [key in read_stored(value, info.step).keys for value in raw_values]

    def regroup(
        self, group: int, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo, key_groups: KeyGroups
    ) -> Iterable[GroupedEntry]:
        return cut_chunks(group, raw_keys, raw_values, key_groups, f"step {info.step!r}")

    def merge_regrouped(self, entries: GroupedEntries, info: StateInfo) -> GroupedEntries:
        return joined_chunks(entries, f"step {info.step!r}")

    def contents(self, entries: GroupedEntries, info: StateInfo, watermark: Milliseconds) -> tuple[StateKind, GroupedEntries]:
        """Windows, row by row; the chunks themselves, if it cannot be told what they are of."""
        measures = measures_of(info)
        if measures is None:
            return self, entries
        return WindowRows(self.times), rows_of_chunks(entries, info, measures, watermark, sessions=self.times == 2)

    def rows(self, data: bytes | None) -> dict[bytes, list[Any]]:
        """For each aggregate its vectors' values."""
        if data is None:
            return {}
        chunk = read_stored(data, self.name)
        columns = [[load_vector(kind, blob).tolist() for kind, blob in each] for each in chunk.vectors]
        found: dict[bytes, list[Any]] = {}
        for number, key in enumerate(chunk.keys):
            found.setdefault(key, []).append(unboxed([unboxed([vector[number] for vector in each]) for each in columns]))
        return found

    def columns(self, info: StateInfo, found: Undeclared, *, null_is_nan: bool = False) -> EntryColumns:
        return ChunkColumns(info, found, self.times)

    def due(self, raw_key: bytes) -> Milliseconds:
        """Only the operator can tell: it is made to look at once."""
        return MIN_WATERMARK

    def of_key(self, rows: list[dict[str, Any]], info: StateInfo) -> Any:
        raise StateError(
            f"state {info.name!r} of step {info.step!r} keeps keys together in chunks",
            hint="find(key) gives the chunks that the key is in",
        )


def unboxed(values: list[Any]) -> Any:
    """The only one of several, or all."""
    return values[0] if len(values) == 1 else values


SLICES = ChunkKind("slices", 1)
SESSION_RUNS = ChunkKind("session runs", 2)
