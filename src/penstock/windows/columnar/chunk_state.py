"""The state of windows over columns: chunks by time and key group.

    store key   group(2) · state id(2) · time(8) · level(1)

A time is the end of a slice, or for sessions the end of a bucket of time that their ends are in.

Laws:
- A level holds one chunk. A chunk's level grows with the logarithm of its size; a new chunk that meets another on its level is
  merged with it and moves up: what an epoch writes is a small multiple of what it changed, and a slice has few chunks.
- Committed chunks are read when time, or a straggler, comes to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.state.entries.store_keys import split_timer_key, timer_key
from penstock.state.key_groups import KeyGroups
from penstock.state.overlay.keyed import Committed
from penstock.windows.columnar.chunks import Chunk, KeyIndex, by_group, dump_chunk, load_chunk

MERGE_ABOVE = 16
"""So many chunks of a slice in memory are merged."""

_GROWTH = 2
"""Bits by which the size of chunks grows from level to level."""


class ChunkState:
    """Chunks of one step in one partition, for one epoch.

    `merge` makes one chunk of several. `due` tells of a time's chunks when something is to be done about them next; it is never
    less for a later time.
    """

    def __init__(
        self,
        committed: Committed,
        *,
        state_id: int,
        groups: range,
        next_due: Milliseconds | None,
        key_groups: KeyGroups,
        index: KeyIndex,
        merge: Callable[[Sequence[Chunk]], Chunk],
        what: str,
        where: str,
        due: Callable[[Milliseconds], Milliseconds],
    ) -> None:
        self._committed = committed
        self._state_id = state_id
        self._groups = groups
        self._key_groups = key_groups
        self._index = index
        self._merge = merge
        self._what = what
        self._where = where
        self._due = due
        self._new: dict[Milliseconds, list[Chunk]] = {}
        """Rows of this epoch."""
        self._old: dict[Milliseconds, list[Chunk]] = {}
        """Committed rows, of slices that were loaded."""
        self._stored: dict[Milliseconds, list[bytes]] = {}
        """Their store keys."""
        self._removed: list[bytes] = []
        self._loaded: Milliseconds = MIN_WATERMARK
        """Slices that end by then are in memory."""
        self._next_committed = MAX_WATERMARK if next_due is None else next_due
        """When something is to be done about a committed slice that is not in memory."""

    def add(self, end: Milliseconds, rows: Chunk) -> None:
        chunks = self._new.setdefault(end, [])
        chunks.append(rows)
        if len(chunks) > MERGE_ABOVE:
            self._new[end] = [self._merge(chunks)]

    def ends(self) -> list[Milliseconds]:
        """The slices in memory."""
        return sorted(self._new.keys() | self._old.keys())

    def between(self, ends: range) -> list[Milliseconds]:
        """Those of the slices that are in memory."""
        known = self._new.keys() | self._old.keys()
        if len(ends) <= len(known):
            return [end for end in ends if end in known]
        return sorted(end for end in known if end in ends)

    def chunks(self, end: Milliseconds) -> list[Chunk]:
        return [*self._old.get(end, ()), *self._new.get(end, ())]

    def has_due(self, watermark: Milliseconds) -> bool:
        return watermark >= self._next_committed or any(self._due(end) <= watermark for end in self.ends())

    def load(self, until: Milliseconds) -> None:
        """Bring the committed slices that end by `until` into memory."""
        if until <= self._loaded or self._next_committed == MAX_WATERMARK:
            return
        after = MAX_WATERMARK
        for group in self._groups:
            start = timer_key(group, self._state_id, self._loaded, b"")
            stop = timer_key(group, self._state_id, MAX_WATERMARK, b"\xff")
            for key, data in self._committed.range(start, stop):
                end = split_timer_key(key)[2]
                if end > until:
                    after = min(after, end)
                    break
                if end > self._loaded:
                    self._old.setdefault(end, []).append(load_chunk(data, self._index, self._what, self._where))
                    self._stored.setdefault(end, []).append(key)
        self._loaded = until
        self._next_committed = after if after == MAX_WATERMARK else self._due(after)

    def sift(self, keep: Callable[[Chunk], Chunk]) -> None:
        """Of the rows of this epoch, keep some."""
        kept = {end: [left for chunk in chunks if len(left := keep(chunk))] for end, chunks in self._new.items()}
        self._new = {end: chunks for end, chunks in kept.items() if chunks}

    def drop(self, ends: Sequence[Milliseconds]) -> None:
        """Forget slices that are in memory."""
        for end in ends:
            self._new.pop(end, None)
            self._old.pop(end, None)
            self._removed += self._stored.pop(end, ())

    # --- at the end of an epoch ----------------------------------------------------------------------------------------------

    def next_due(self) -> dict[int, Milliseconds]:
        """When something is to be done next, by state id."""
        due = min([self._next_committed, *(self._due(end) for end in self.ends())])
        return {} if due == MAX_WATERMARK else {self._state_id: due}

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Every changed entry, in order."""
        out: dict[bytes, bytes | None] = dict.fromkeys(self._removed)
        for end, chunks in self._new.items():
            for group, rows in by_group(self._merge(chunks), self._index, self._key_groups).items():
                self._put(group, end, rows, out)
        return sorted(out.items())

    def _put(self, group: int, end: Milliseconds, rows: Chunk, out: dict[bytes, bytes | None]) -> None:
        """Add rows to a slice of a group: alone, or with the chunk that is on their level."""
        while True:
            level = len(rows).bit_length() // _GROWTH
            key = timer_key(group, self._state_id, end, bytes((level,)))
            held = None if key in out else self._committed.get(key)
            if held is None:
                break
            out[key] = None
            rows = self._merge([load_chunk(held, self._index, self._what, self._where), rows])
        out[key] = dump_chunk(rows, self._index, self._what)

    def close(self) -> None:
        for rows in (self._new, self._old, self._stored, self._removed):
            rows.clear()
