"""Aligned windows as slices of time. Pure.

Laws:
- Windows `[end - size, end)` end at `offset + size` plus multiples of `slide`. A slice `[end - slice, end)`, named by its end,
  lies wholly inside or wholly outside any window; `slice_ms` divides size and slide.
- Times are Python integers or int64 arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TypeVar

from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.records import Timestamps
from penstock.windows.assigners import AlignedWindows
from penstock.windows.spec import WindowSpec

T = TypeVar("T", int, Timestamps)


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of one size, a new one every `slide`, which is not more: every time is in some window."""

    size_ms: Milliseconds
    slide_ms: Milliseconds
    offset_ms: Milliseconds

    @property
    def slice_ms(self) -> Milliseconds:
        return gcd(self.size_ms, self.slide_ms)

    def slice_end(self, time: T) -> T:
        """The end of the slice that a time is in."""
        return time - (time - self.offset_ms) % self.slice_ms + self.slice_ms

    def first_window(self, time: T) -> T:
        """The end of the first window that a time is in."""
        return time + (self.offset_ms + self.size_ms - 1 - time) % self.slide_ms + 1

    def last_window(self, time: T) -> T:
        """The end of the last window that a time is in."""
        return time - (time - self.offset_ms) % self.slide_ms + self.size_ms

    def windows(self, slice_end: Milliseconds) -> range:
        """The ends of all windows that a slice is in, in order."""
        inside = slice_end - 1
        return range(self.first_window(inside), self.last_window(inside) + 1, self.slide_ms)

    def slices(self, window_end: Milliseconds) -> range:
        """The ends of all slices of a window."""
        return range(window_end - self.size_ms + self.slice_ms, window_end + 1, self.slice_ms)


def grid_of(spec: WindowSpec) -> Grid:
    assert isinstance(spec.assigner, AlignedWindows)
    return Grid(spec.assigner.size_ms, spec.assigner.slide_ms, spec.assigner.offset_ms)


def common_slice(grids: list[Grid]) -> Grid:
    """The coarsest slices that fit all of these windows, as tumbling windows."""
    step = 0
    for grid in grids:
        step = gcd(step, grid.slice_ms, grid.offset_ms - grids[0].offset_ms)
    return Grid(step, step, grids[0].offset_ms % step)


def saturated(time: Milliseconds) -> Milliseconds:
    return min(time, MAX_WATERMARK)
