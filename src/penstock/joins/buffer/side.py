"""One side of a join in one partition, for one epoch: rows in memory, over those that are committed.

    store key   group(2) · state id(2) · time(8) · level(1)

A time is the end of the *stretch* of time that the rows' timestamps are in.

Laws:
- A stretch is dropped when the watermark has reached its last timestamp and as long as records are kept.
- A level holds one chunk, and grows with the logarithm of its size (see `penstock.windows.columnar.chunk_state`). A stored one is
  written anew only where rows without a partner are results, and one of its rows has met, or has been given as one that did not.
- Committed chunks are read when time, or a partner, comes to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.joins.buffer.rows import Numbers, Rows, one_rows
from penstock.joins.buffer.run import Run
from penstock.joins.buffer.stored import dump_rows, load_rows
from penstock.state.entries.store_keys import split_timer_key, timer_key
from penstock.state.key_groups import KeyGroups
from penstock.state.overlay.keyed import Committed
from penstock.windows.columnar.chunks import KeyIndex

_GROWTH = 2
"""Bits by which the size of chunks grows from level to level."""


@dataclass(slots=True)
class _Stretch:
    """`old`: what was committed, as one run; `stored`: the store keys of its chunks, by origin; `changed`: chunks with rows that
    have met since; `new`: runs of this epoch, the largest first."""

    old: Run | None = None
    stored: list[bytes] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)
    new: list[Run] = field(default_factory=list)

    def runs(self) -> list[Run]:
        return self.new if self.old is None else [self.old, *self.new]


class SideBuffer:
    """`keep_ms`: how long after its timestamp a row is kept; `waits`: rows that have not met are looked for at their end.

    `prune`: the rows that are needed at a watermark, if that is not a matter of time alone; rows are in order of arrival then."""

    def __init__(
        self,
        committed: Committed,
        *,
        state_id: int,
        groups: range,
        next_due: Milliseconds | None,
        key_groups: KeyGroups,
        index: KeyIndex,
        what: str,
        step: str,
        keep_ms: Milliseconds,
        stretch_ms: Milliseconds,
        waits: bool,
        watermark: Milliseconds,
        prune: Callable[[Rows, Milliseconds], Rows] | None = None,
    ) -> None:
        self.keep_ms = keep_ms
        self.waits = waits
        self.watermark = watermark
        """Set by the operator as time goes on."""
        self.sample: Rows | None = None
        """Any rows that were seen, for their columns."""
        self._prune = prune or self._alive
        self._in_turn = prune is not None
        self._committed = committed
        self._state_id = state_id
        self._groups = groups
        self._key_groups = key_groups
        self._index = index
        self._what = what
        self._step = step
        self._stretch_ms = stretch_ms
        self._stretches: dict[Milliseconds, _Stretch] = {}
        self._removed: list[bytes] = []
        self._loaded: Milliseconds = MIN_WATERMARK
        """Committed stretches that end by then are in memory."""
        self._next_committed = MAX_WATERMARK if next_due is None else next_due
        """When something is to be done about a committed stretch that is not in memory."""
        self._empty = next_due is None

    # --- rows --------------------------------------------------------------------------------------------------------------

    def add(self, rows: Rows) -> None:
        """Rows that have come."""
        if not len(rows):
            return
        self.sample = self.sample or rows
        ends = (rows.times // self._stretch_ms + 1) * self._stretch_ms
        first = int(ends[0])
        if (ends == first).all():
            self._append(first, rows)
            return
        order = np.argsort(ends, kind="stable")
        there, starts = np.unique(ends[order], return_index=True)
        for end, mine in zip(there.tolist(), np.split(order, starts[1:]), strict=True):
            self._append(end, rows.take(mine))

    def _append(self, end: Milliseconds, rows: Rows) -> None:
        new = self._stretches.setdefault(end, _Stretch()).new
        new.append(Run(rows))
        while len(new) > 1 and 2 * len(new[-1]) >= len(new[-2]):
            last = new.pop()
            new[-1] = Run(one_rows([new[-1].rows, last.rows], self._step))

    def runs(self, low: Milliseconds, high: Milliseconds) -> list[Run]:
        """Runs that may have rows with times from low to high."""
        if low > high:
            return []
        self.load(high)
        stretches = (mine for end, mine in sorted(self._stretches.items()) if end > low and end - self._stretch_ms <= high)
        return [run for mine in stretches for run in mine.runs() if run.first <= high and run.last >= low]

    def meet(self, run: Run, rows: Numbers) -> None:
        """These rows have found a partner."""
        if not self.waits:
            return
        fresh = rows[~run.rows.met[rows]]
        if not len(fresh):
            return
        if run.origin is not None:
            if not run.rows.met.flags.writeable:
                run.rows.met = run.rows.met.copy()
            stretch = self._stretches[self._end_of(run.first)]
            stretch.changed.update(np.unique(run.origin[fresh]).tolist())
        run.rows.met[fresh] = True

    def take_over(self, now: Milliseconds) -> list[Rows]:
        """Rows that have not met, and will not: each is given once."""
        latest = now - self.keep_ms
        self.load(latest)
        found = []
        for end, stretch in sorted(self._stretches.items()):
            if end - self._stretch_ms > latest:
                break
            for run in stretch.runs():
                due = np.flatnonzero(~run.rows.met & (self.ends_of(run.rows) <= now))
                if len(due):
                    found.append(run.rows.take(due))
                    self.meet(run, due)
        return found

    def ends_of(self, rows: Rows) -> Numbers:
        """From when on rows are gone: when they are kept no longer, but not before time has moved on from when they came."""
        return np.maximum(rows.times + self.keep_ms, rows.ticks + 1)

    # --- time --------------------------------------------------------------------------------------------------------------

    def has_due(self, watermark: Milliseconds) -> bool:
        return watermark >= self._next_committed or any(self._due(end) <= watermark for end in self._stretches)

    def drop(self, watermark: Milliseconds) -> None:
        """Forget stretches that are over."""
        due = self.has_due(watermark)
        self.watermark = watermark
        if not due:
            return
        self.load(watermark - self.keep_ms)
        for end in [end for end, stretch in self._stretches.items() if self._is_over(end, stretch)]:
            self._removed += self._stretches.pop(end).stored

    def _is_over(self, end: Milliseconds, stretch: _Stretch) -> bool:
        if end - 1 + self.keep_ms > self.watermark:
            return False
        return all(int(self.ends_of(run.rows).max()) <= self.watermark for run in stretch.runs())

    def load(self, until: Milliseconds) -> None:
        """Bring the committed stretches with times up to `until` into memory."""
        until = self._end_of(min(until, MAX_WATERMARK >> 1))
        if until <= self._loaded or self._empty:
            return
        after = MAX_WATERMARK
        found: dict[Milliseconds, list[tuple[bytes, bytes]]] = {}
        for group in self._groups:
            start = timer_key(group, self._state_id, self._loaded, b"")
            stop = timer_key(group, self._state_id, MAX_WATERMARK, b"\xff")
            for key, data in self._committed.range(start, stop):
                end = split_timer_key(key)[2]
                if end > until:
                    after = min(after, end)
                    break
                if end > self._loaded:
                    found.setdefault(end, []).append((key, data))
        for end, chunks in found.items():
            rows, sizes = load_rows([data for _, data in chunks], self._index, self._what, self._step)
            stretch, origin = self._stretches.setdefault(end, _Stretch()), np.repeat(np.arange(len(sizes)), sizes)
            if self._in_turn:
                order = np.lexsort((rows.turns, rows.ticks))
                rows, origin = rows.take(order), origin[order]
            stretch.old = Run(rows, origin)
            stretch.stored = [key for key, _ in chunks]
            self.sample = self.sample or rows
        self._loaded = until
        self._empty = after == MAX_WATERMARK
        self._next_committed = MAX_WATERMARK if self._empty else self._due(after)

    def _end_of(self, time: Milliseconds) -> Milliseconds:
        return (time // self._stretch_ms + 1) * self._stretch_ms

    def _due(self, end: Milliseconds) -> Milliseconds:
        """When something is to be done about a stretch next."""
        over = end - 1 + self.keep_ms
        return max(over + 1 - self._stretch_ms if self.waits else over, self.watermark + 1)

    # --- at the end of an epoch ----------------------------------------------------------------------------------------------

    def rows_held(self) -> int:
        """How many rows there are in memory."""
        return sum(len(run) for stretch in self._stretches.values() for run in stretch.runs())

    def next_due(self) -> dict[int, Milliseconds]:
        """When something is to be done next, by state id."""
        due = min([self._next_committed, *(self._due(end) for end in self._stretches)])
        return {} if due == MAX_WATERMARK else {self._state_id: due}

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Every changed entry, in order."""
        out: dict[bytes, bytes | None] = dict.fromkeys(self._removed)
        for end, stretch in self._stretches.items():
            parts = [run.rows for run in stretch.new]
            if stretch.old is not None and stretch.changed:
                assert stretch.old.origin is not None
                parts.append(stretch.old.rows.take(np.isin(stretch.old.origin, list(stretch.changed))))
                out.update(dict.fromkeys(stretch.stored[number] for number in stretch.changed))
            if parts:
                rows = self._prune(one_rows(parts, self._step), self.watermark)
                for group, mine in self._by_group(rows):
                    self._put(group, end, mine, out)
        return sorted(out.items())

    def _alive(self, rows: Rows, watermark: Milliseconds) -> Rows:
        alive = self.ends_of(rows) > watermark
        return rows if alive.all() else rows.take(alive)

    def _by_group(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        if not len(rows):
            return
        numbers, codes = np.unique(rows.keys, return_inverse=True)
        encoded = self._index.encoded
        groups = self._key_groups.of_many([encoded[number] for number in numbers.tolist()])[codes]
        order = np.argsort(groups, kind="stable")
        rows, groups = rows.take(order), groups[order]
        there, starts = np.unique(groups, return_index=True)
        for group, start, stop in zip(there.tolist(), starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            yield group, rows.slice(start, stop)

    def _put(self, group: int, end: Milliseconds, rows: Rows, out: dict[bytes, bytes | None]) -> None:
        """Add rows to a stretch of a group: alone, or with the chunk that is on their level."""
        while True:
            level = len(rows).bit_length() // _GROWTH
            key = timer_key(group, self._state_id, end, bytes((level,)))
            held = None if key in out else self._committed.get(key)
            if held is None:
                break
            out[key] = None
            rows = one_rows([load_rows([held], self._index, self._what, self._step)[0], rows], self._step)
            rows = self._prune(rows, self.watermark)
            if not len(rows):
                return
        out[key] = dump_rows(rows, self._index, self._what)

    def close(self) -> None:
        self._stretches.clear()
        self._removed.clear()
