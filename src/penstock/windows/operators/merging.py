"""Windows that merge: the in-flight windows of one key.

Laws:
- In-flight windows of a key do not touch: one that does is merged, and the result is their cover.
- The contents of a window stay where they were first put, at its *state window*, however often the window grows. Only when
  two in-flight windows become one are contents moved.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.windows.window import TimeWindow


class Merge(NamedTuple):
    """What adding a window did: the window it is part of now, in-flight windows that it replaced, and where contents go."""

    window: TimeWindow
    replaced: list[TimeWindow]
    state_window: TimeWindow
    moved: list[TimeWindow]


class InFlight:
    """The in-flight windows of one key, each with its state window."""

    __slots__ = ("windows",)

    def __init__(self, stored: list[tuple[int, int, int, int]] | None = None) -> None:
        self.windows: dict[TimeWindow, TimeWindow] = {
            TimeWindow(start, end): TimeWindow(at, until) for start, end, at, until in stored or ()
        }

    def add(self, window: TimeWindow) -> Merge:
        """Take a window in."""
        touched = sorted(other for other in self.windows if other.touches(window))
        result = window
        for other in touched:
            result = result.cover(other)
        if not touched:
            self.windows[window] = window
            return Merge(window, [], window, [])
        if touched == [result]:
            return Merge(result, [], self.windows[result], [])
        homes = [self.windows.pop(other) for other in touched]
        self.windows[result] = homes[0]
        return Merge(result, touched, homes[0], homes[1:])

    def retire(self, window: TimeWindow) -> None:
        """The window is over."""
        del self.windows[window]

    def stored(self) -> list[tuple[int, int, int, int]]:
        """As it is kept in state."""
        return [(*window, *home) for window, home in sorted(self.windows.items())]


def merge_windows(windows: list[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
    """All merges among these windows: (cover, its parts), without windows that stay alone.

    >>> merge_windows([TimeWindow(0, 2), TimeWindow(5, 6), TimeWindow(2, 3)])
    [(TimeWindow(start=0, end=3), [TimeWindow(start=0, end=2), TimeWindow(start=2, end=3)])]
    """
    groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
    for window in sorted(windows):
        if groups and groups[-1][0].touches(window):
            cover, parts = groups[-1]
            groups[-1] = (cover.cover(window), [*parts, window])
        else:
            groups.append((window, [window]))
    return [(cover, parts) for cover, parts in groups if len(parts) > 1]
