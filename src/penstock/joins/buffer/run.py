"""A run: rows of one side with an index by key and time, in which partners are found by binary search. Pure."""

from __future__ import annotations

import numpy as np

from penstock.joins.buffer.rows import Numbers, Rows

_LARGEST = 1 << 62


class Run:
    """`origin`: for each row, which stored chunk it is from; None: of this epoch."""

    __slots__ = ("_codes", "_order", "_scale", "first", "last", "origin", "rows")

    def __init__(self, rows: Rows, origin: Numbers | None = None) -> None:
        self.rows = rows
        self.origin = origin
        self.first, self.last = int(rows.times.min()), int(rows.times.max())
        self._order: Numbers | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def partners(self, keys: Numbers, lows: Numbers, highs: Numbers) -> tuple[Numbers, Numbers]:
        """`(probe, row)` pairs: for each probe the rows of its key with times from its low to its high."""
        if self._order is None:
            self._index()
        starts = np.searchsorted(self._codes, keys * self._scale.span + self._scale.low(lows), side="left")
        stops = np.searchsorted(self._codes, keys * self._scale.span + self._scale.high(highs), side="right")
        counts = np.maximum(stops - starts, 0)
        found = int(counts.sum())
        probes = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(found) - np.repeat(np.cumsum(counts) - counts, counts)
        assert self._order is not None
        return probes, self._order[np.repeat(starts, counts) + within]

    def latest(self, keys: Numbers, highs: Numbers) -> Numbers:
        """For each probe the last row of its key with the greatest time that is not above its high; -1 if there is none."""
        if self._order is None:
            self._index()
        assert self._order is not None
        at = np.searchsorted(self._codes, keys * self._scale.span + self._scale.high(highs), side="right") - 1
        rows = self._order[np.maximum(at, 0)]
        return np.where((at >= 0) & (self.rows.keys[rows] == keys), rows, -1)

    def _index(self) -> None:
        rows = self.rows
        span = self.last - self.first + 1
        spread = (int(rows.keys.max()) + 2) * span < _LARGEST
        self._scale = scale = _Span(self.first, span) if spread else _Ranks(np.unique(rows.times))
        codes = rows.keys * scale.span + scale.low(rows.times)
        self._order = order = np.argsort(codes, kind="stable")
        self._codes = codes[order]


class _Span:
    """Times as their distance from the first."""

    __slots__ = ("_first", "span")

    def __init__(self, first: int, span: int) -> None:
        self._first = first
        self.span = span

    def low(self, times: Numbers) -> Numbers:
        """The place of the least time that is not below; the span if there is none."""
        return np.clip(times, self._first, self._first + self.span) - self._first

    def high(self, times: Numbers) -> Numbers:
        """The place of the greatest time that is not above; -1 if there is none."""
        return np.clip(times, self._first - 1, self._first + self.span - 1) - self._first


class _Ranks:
    """Times by rank, where keys and distances would not fit into one number."""

    __slots__ = ("_times", "span")

    def __init__(self, times: Numbers) -> None:
        self._times = times
        self.span = len(times)

    def low(self, times: Numbers) -> Numbers:
        return np.searchsorted(self._times, times, side="left")

    def high(self, times: Numbers) -> Numbers:
        return np.searchsorted(self._times, times, side="right") - 1
