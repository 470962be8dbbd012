"""Window assigners: which windows a record belongs to.

Laws:
- `assign` is a function of the record, its timestamp and the processing time. It keeps nothing.
- Windows of a `merging` assigner that touch are one window: their cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

from penstock.errors import ConfigError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.timing.durations import Duration, signed_ms, total_ms
from penstock.windows.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger, Trigger
from penstock.windows.window import GLOBAL, TimeWindow

TimeDomain = Literal["event", "processing"]
Stagger = Literal["aligned", "natural", "random"]

MOST_SLIDES = 10_000_000
"""A record may be in so many sliding windows at most."""


class WindowAssigner:
    """What a user implements to have windows of another kind.

    `event_time`: windows are closed by the watermark, and records can be late. `merging`: windows that touch become one.
    """

    event_time: bool = True
    merging: bool = False

    def assign(self, record: Any, timestamp: Milliseconds | None, processing_time: Milliseconds) -> Iterable[TimeWindow]:
        """The windows of a record. The timestamp is None only if `event_time` is false."""
        raise NotImplementedError

    def default_trigger(self) -> Trigger:
        """When a window is emitted, unless the user says so."""
        return EventTimeTrigger() if self.event_time else ProcessingTimeTrigger()

    def describe(self) -> str:
        """For explain."""
        return type(self).__name__


@dataclass(frozen=True, init=False)
class AlignedWindows(WindowAssigner):
    """Windows of one size that start at multiples of `slide_ms` (plus the offset), for all keys alike."""

    size_ms: Milliseconds
    slide_ms: Milliseconds
    offset_ms: Milliseconds
    time: TimeDomain
    stagger: Stagger

    @property
    def event_time(self) -> bool:  # type: ignore[override]
        return self.time == "event"

    def assign(self, record: Any, timestamp: Milliseconds | None, processing_time: Milliseconds) -> Iterable[TimeWindow]:
        moment = processing_time if self.time == "processing" else timestamp
        assert moment is not None
        start = moment - (moment - self.offset_ms) % self.slide_ms
        windows = []
        while start > moment - self.size_ms:
            windows.append(clamped(start, start + self.size_ms))
            start -= self.slide_ms
        return windows

    def _fill(self, size_ms: int, slide_ms: int, offset_ms: int, time: TimeDomain) -> None:
        if time not in ("event", "processing"):
            raise ConfigError(f"time={time!r}", hint='choose "event" or "processing"')
        for name, value in {"size_ms": size_ms, "slide_ms": slide_ms, "offset_ms": offset_ms, "time": time}.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, init=False)
class TumblingWindows(AlignedWindows):
    """Windows of one size, one after another.

    `stagger` keeps the windows of all keys from ending at once: "natural" has a key's windows begin where the clock was, within a
    window, at its first record; "random" has them begin anywhere, by the key.

    >>> TumblingWindows(hours=1).assign(None, 3_600_000, 0)
    [TimeWindow(start=3600000, end=7200000)]
    """

    def __init__(
        self,
        size: Duration | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        offset: Duration = 0,
        time: TimeDomain = "event",
        stagger: Stagger = "aligned",
    ) -> None:
        size_ms = total_ms(
            size,
            days=days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            milliseconds=milliseconds,
            what="the size of the windows",
        )
        offset_ms = signed_ms(offset, what="the offset of the windows")
        if size_ms <= 0:
            raise ConfigError(f"tumbling windows of {size_ms} ms", hint="the size must be above zero, for example minutes=5")
        if abs(offset_ms) >= size_ms:
            raise ConfigError(
                f"tumbling windows of {size_ms} ms with an offset of {offset_ms} ms", hint="the offset must be less than the size"
            )
        if stagger not in ("aligned", "natural", "random"):
            raise ConfigError(f"stagger={stagger!r}", hint='choose "aligned", "natural" or "random"')
        self._fill(size_ms, size_ms, offset_ms, time)
        object.__setattr__(self, "stagger", stagger)

    def staggered(self, key: bytes, processing_time: Milliseconds) -> Milliseconds:
        """What is added to the offset for a key whose first record comes now."""
        return (crc32(key) if self.stagger == "random" else processing_time) % self.size_ms

    def assign_staggered(
        self, timestamp: Milliseconds | None, processing_time: Milliseconds, by: Milliseconds
    ) -> Iterable[TimeWindow]:
        """The windows of a key that is staggered by so much."""
        moment = processing_time if self.time == "processing" else timestamp
        assert moment is not None
        start = moment - (moment - (self.offset_ms + by)) % self.size_ms
        return [clamped(start, start + self.size_ms)]

    def describe(self) -> str:
        staggered = "" if self.stagger == "aligned" else f", {self.stagger} stagger"
        return f"tumbling {self.size_ms} ms" + _rest(self.offset_ms, self.time) + staggered


@dataclass(frozen=True, init=False)
class SlidingWindows(AlignedWindows):
    """Windows of one size, a new one every `slide`; a record is in all that hold its time.

    >>> [window.start for window in SlidingWindows(60, 20).assign(None, 65_000, 0)]
    [60000, 40000, 20000]
    """

    def __init__(self, size: Duration, slide: Duration, *, offset: Duration = 0, time: TimeDomain = "event") -> None:
        size_ms = signed_ms(size, what="the size of the windows")
        slide_ms = signed_ms(slide, what="the slide of the windows")
        offset_ms = signed_ms(offset, what="the offset of the windows")
        shown = f"sliding windows of {size_ms} ms every {slide_ms} ms with an offset of {offset_ms} ms"
        if size_ms <= 0 or slide_ms <= 0:
            raise ConfigError(shown, hint="size and slide must be above zero")
        if abs(offset_ms) >= slide_ms:
            raise ConfigError(shown, hint="the offset must be less than the slide")
        if size_ms / slide_ms > MOST_SLIDES:
            raise ConfigError(shown, detail=f"a record would be in {size_ms // slide_ms} windows", hint="choose a longer slide")
        self._fill(size_ms, slide_ms, offset_ms, time)
        object.__setattr__(self, "stagger", "aligned")

    def describe(self) -> str:
        return f"sliding {self.size_ms} ms every {self.slide_ms} ms" + _rest(self.offset_ms, self.time)


@dataclass(frozen=True, init=False)
class SessionWindows(WindowAssigner):
    """A window for each run of records of a key without a pause of `gap`.

    The gap is a duration, or a function from a record to one: a `timedelta`, or a number of seconds.

    >>> SessionWindows(30).assign("a", 1_000, 0)
    [TimeWindow(start=1000, end=31000)]
    """

    gap_ms: Milliseconds | None
    gap_of: Callable[[Any], Duration] | None
    time: TimeDomain
    merging = True

    def __init__(
        self,
        gap: Duration | Callable[[Any], Duration] | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        time: TimeDomain = "event",
    ) -> None:
        if time not in ("event", "processing"):
            raise ConfigError(f"time={time!r}", hint='choose "event" or "processing"')
        units = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds, "milliseconds": milliseconds}
        dynamic = callable(gap)
        gap_ms = None if callable(gap) else total_ms(gap, **units, what="the gap of the sessions")
        if gap_ms is not None and gap_ms <= 0:
            raise ConfigError(
                f"sessions with a gap of {gap_ms} ms", hint="the gap must be above zero, for example timedelta(seconds=30)"
            )
        object.__setattr__(self, "gap_ms", gap_ms)
        object.__setattr__(self, "gap_of", gap if dynamic else None)
        object.__setattr__(self, "time", time)

    @property
    def event_time(self) -> bool:  # type: ignore[override]
        return self.time == "event"

    def assign(self, record: Any, timestamp: Milliseconds | None, processing_time: Milliseconds) -> Iterable[TimeWindow]:
        moment = processing_time if self.time == "processing" else timestamp
        assert moment is not None
        gap = self.gap_ms if self.gap_of is None else self._dynamic(record)
        assert gap is not None
        return [clamped(moment, moment + gap)]

    def _dynamic(self, record: Any) -> Milliseconds:
        assert self.gap_of is not None
        gap = self.gap_of(record)
        gap_ms = signed_ms(gap, what="the gap of a session")
        if gap_ms <= 0:
            raise ConfigError(
                f"a session gap of {gap_ms} ms",
                detail=f"record: {record!r:.300}",
                hint="the gap function must return more than zero",
            )
        return gap_ms

    def describe(self) -> str:
        gap = "a gap of each record's own" if self.gap_ms is None else f"a gap of {self.gap_ms} ms"
        return f"sessions with {gap}" + _rest(0, self.time)


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for all records of a key. It is never emitted by itself: give it a trigger."""

    event_time = False

    def assign(self, record: Any, timestamp: Milliseconds | None, processing_time: Milliseconds) -> Iterable[TimeWindow]:
        return _ALL

    def default_trigger(self) -> Trigger:
        return NeverTrigger()

    def describe(self) -> str:
        return "one global window"


_ALL = [GLOBAL]


def clamped(start: Milliseconds, end: Milliseconds) -> TimeWindow:
    """A window within the time there is."""
    return TimeWindow(max(start, MIN_WATERMARK), min(end, MAX_WATERMARK))


def _rest(offset_ms: Milliseconds, time: TimeDomain) -> str:
    return (f", offset {offset_ms} ms" if offset_ms else "") + ("" if time == "event" else ", processing time")
