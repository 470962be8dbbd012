"""A window: a half-open stretch of time `[start, end)`.

Laws:
- A window's last moment, and the timestamp of its results, is `end - 1`. A window that ends with time itself (the global one)
  lasts to the end of time.
- Encoded windows are 16 bytes and sort by (start, end).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds

_PAIR = Struct(">QQ")
_SIGN = 1 << 63

WINDOW_SIZE = _PAIR.size
"""How many bytes an encoded window has."""


class TimeWindow(NamedTuple):
    """The time from `start` up to, and without, `end`, in milliseconds.

    >>> TimeWindow(0, 10).cover(TimeWindow(10, 15)), TimeWindow(0, 10).max_timestamp
    (TimeWindow(start=0, end=15), 9)
    """

    start: Milliseconds
    end: Milliseconds

    @property
    def max_timestamp(self) -> Milliseconds:
        """The last moment in the window."""
        return self.end - 1 if self.end < MAX_WATERMARK else MAX_WATERMARK

    @property
    def is_global(self) -> bool:
        return self == GLOBAL

    def touches(self, other: TimeWindow) -> bool:
        """Do the two overlap, or does one begin where the other ends?"""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The least window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        return "[all time]" if self.is_global else f"[{self.start}, {self.end})"


GLOBAL = TimeWindow(MIN_WATERMARK, MAX_WATERMARK)
"""The one window of `GlobalWindows`: all time."""


def encode_window(window: TimeWindow) -> bytes:
    start, end = window
    return _PAIR.pack(max(start, MIN_WATERMARK) + _SIGN, min(end, MAX_WATERMARK) + _SIGN)


def decode_window(encoded: bytes) -> TimeWindow:
    """The window at the end of an encoded (key, window)."""
    start, end = _PAIR.unpack_from(encoded, len(encoded) - WINDOW_SIZE)
    return TimeWindow(start - _SIGN, end - _SIGN)
