"""Triggers: when a window's result is emitted, and whether its contents are dropped then.

Laws:
- A trigger keeps nothing in its fields. What it must remember is declared on its class, like the state of a function, and is kept
  for each (key, window).
- A trigger sees records and timers of one window at a time, in order. Whatever it returns, a window that has nothing in it emits
  nothing.
- When windows merge, reducing, aggregating and list state of the parts is merged before `on_merge` is called.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.state.descriptors import ReducingState, ValueState
from penstock.timing.durations import Duration, to_ms
from penstock.windows.window import TimeWindow

if TYPE_CHECKING:
    from penstock.contexts import Timers


class TriggerResult(Enum):
    """What to do with a window now."""

    CONTINUE = "continue"
    FIRE = "fire"
    PURGE = "purge"
    FIRE_AND_PURGE = "fire and purge"


CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = TriggerResult


class Trigger:
    """What a user implements to emit windows at other times.

    State is declared on the class. `timers` sets and deletes timers of the window, and knows the time. `merges`: the trigger
    works for windows that merge.
    """

    merges: bool = False

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        """A record was added to the window."""
        raise NotImplementedError

    def on_event_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        """An event-time timer of the window is due."""
        return CONTINUE

    def on_processing_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        """A processing-time timer of the window is due."""
        return CONTINUE

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        """The window has just been made of others, which are gone: set what timers it needs."""

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        """The window is over, or part of another now: delete its timers, and its state."""

    def describe(self) -> str:
        """For explain."""
        return type(self).__name__


@dataclass(frozen=True)
class EventTimeTrigger(Trigger):
    """Fires when the watermark passes the end of the window, and again for each late record.

    `early` decides about results before the end, `late` about results after it: `EventTimeTrigger(early=CountTrigger(100))`.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def merges(self) -> bool:  # type: ignore[override]
        return all(part is None or part.merges for part in (self.early, self.late))

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        if window.max_timestamp <= timers.current_watermark:
            return FIRE if self.late is None else self.late.on_record(record, timestamp, window, timers)
        timers.register_event_time(window.max_timestamp)
        return CONTINUE if self.early is None else self.early.on_record(record, timestamp, window, timers)

    def on_event_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        if time == window.max_timestamp:
            if self.early is not None:
                self.early.clear(window, timers)
            return FIRE
        part = self._now(window, timers)
        return CONTINUE if part is None else part.on_event_time(time, window, timers)

    def on_processing_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        part = self._now(window, timers)
        return CONTINUE if part is None else part.on_processing_time(time, window, timers)

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        if window.max_timestamp > timers.current_watermark:
            timers.register_event_time(window.max_timestamp)
        part = self._now(window, timers)
        if part is not None:
            part.on_merge(window, timers)

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        timers.delete_event_time(window.max_timestamp)
        for part in (self.early, self.late):
            if part is not None:
                part.clear(window, timers)

    def _now(self, window: TimeWindow, timers: Timers) -> Trigger | None:
        return self.late if window.max_timestamp <= timers.current_watermark else self.early

    def describe(self) -> str:
        early = "" if self.early is None else f", early: {self.early.describe()}"
        late = "" if self.late is None else f", late: {self.late.describe()}"
        return f"event time{early}{late}"


@dataclass(frozen=True)
class ProcessingTimeTrigger(Trigger):
    """Fires when the clock passes the end of the window."""

    merges = True

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        timers.register_processing_time(window.max_timestamp)
        return CONTINUE

    def on_processing_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        return FIRE

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        if window.max_timestamp > timers.current_processing_time:
            timers.register_processing_time(window.max_timestamp)

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        timers.delete_processing_time(window.max_timestamp)

    def describe(self) -> str:
        return "processing time"


@dataclass(frozen=True)
class CountTrigger(Trigger):
    """Fires whenever `count` records have come since it last fired."""

    count: int
    merges = True
    seen = ReducingState(int, operator.add)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"CountTrigger({self.count})", hint="the count must be 1 or more")

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        self.seen.add(1)
        if (self.seen.value or 0) < self.count:
            return CONTINUE
        self.seen.clear()
        return FIRE

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        self.seen.clear()

    def describe(self) -> str:
        return f"every {self.count} records"


@dataclass(frozen=True, init=False)
class ContinuousEventTimeTrigger(Trigger):
    """Fires whenever the watermark passes a multiple of `every`, at the end of the window, and for each late record."""

    every_ms: Milliseconds
    merges = True
    following = ReducingState[int](int, min)

    def __init__(self, every: Duration) -> None:
        object.__setattr__(self, "every_ms", _interval(every))

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        if window.max_timestamp <= timers.current_watermark:
            return FIRE
        timers.register_event_time(window.max_timestamp)
        if self.following.value is None:
            assert timestamp is not None
            self._schedule(timestamp - timestamp % self.every_ms, window, timers)
        return CONTINUE

    def on_event_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        if time == window.max_timestamp:
            self.following.clear()
            return FIRE
        if self.following.value != time:
            return CONTINUE
        self.following.clear()
        self._schedule(time, window, timers)
        return FIRE

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        following = self.following.value
        if following is not None:
            timers.register_event_time(following)

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        timers.delete_event_time(window.max_timestamp)
        following = self.following.value
        if following is not None:
            timers.delete_event_time(following)
            self.following.clear()

    def _schedule(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> None:
        last = window.max_timestamp
        endless = timers.ended and last == MAX_WATERMARK
        following = last if endless else min(time + self.every_ms, last)
        self.following.add(following)
        timers.register_event_time(following)

    def describe(self) -> str:
        return f"every {self.every_ms} ms of event time"


@dataclass(frozen=True, init=False)
class ContinuousProcessingTimeTrigger(Trigger):
    """Fires whenever the clock passes a multiple of `every`, as long as the window is there."""

    every_ms: Milliseconds
    merges = True
    following = ReducingState[int](int, min)

    def __init__(self, every: Duration) -> None:
        object.__setattr__(self, "every_ms", _interval(every))

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        if self.following.value is None:
            now = timers.current_processing_time
            self._schedule(now, now - now % self.every_ms + self.every_ms, window, timers)
        return CONTINUE

    def on_processing_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        if self.following.value != time:
            return CONTINUE
        self.following.clear()
        if not timers.ended:
            self._schedule(time, time + self.every_ms, window, timers)
        return FIRE

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        following = self.following.value
        if following is not None:
            timers.register_processing_time(following)

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        following = self.following.value
        if following is not None:
            timers.delete_processing_time(following)
            self.following.clear()

    def _schedule(self, now: Milliseconds, following: Milliseconds, window: TimeWindow, timers: Timers) -> None:
        if now < window.max_timestamp < following:
            following = window.max_timestamp
        self.following.add(following)
        timers.register_processing_time(following)

    def describe(self) -> str:
        return f"every {self.every_ms} ms of processing time"


@dataclass(frozen=True)
class DeltaTrigger(Trigger):
    """Fires when a record is further than `threshold` from the one it last fired for, by `delta(that one, this one)`."""

    threshold: float
    delta: Callable[[Any, Any], float]
    last = ValueState[Any]()

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        last = self.last.value
        if last is None:
            self.last.update((record,))
            return CONTINUE
        if self.delta(last[0], record) <= self.threshold:
            return CONTINUE
        self.last.update((record,))
        return FIRE

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        self.last.clear()

    def describe(self) -> str:
        return f"delta above {self.threshold}"


@dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """Fires as the inner trigger does, and drops the contents each time."""

    inner: Trigger

    @property
    def merges(self) -> bool:  # type: ignore[override]
        return self.inner.merges

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        return _purging(self.inner.on_record(record, timestamp, window, timers))

    def on_event_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        return _purging(self.inner.on_event_time(time, window, timers))

    def on_processing_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        return _purging(self.inner.on_processing_time(time, window, timers))

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        self.inner.on_merge(window, timers)

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        self.inner.clear(window, timers)

    def describe(self) -> str:
        return f"{self.inner.describe()}, purging"


@dataclass(frozen=True)
class NeverTrigger(Trigger):
    """Never fires."""

    merges = True

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        return CONTINUE

    def describe(self) -> str:
        return "never"


@dataclass(frozen=True)
class EndOfStreamTrigger(Trigger):
    """Fires once, when all input has ended."""

    merges = True

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow, timers: Timers) -> TriggerResult:
        timers.register_event_time(MAX_WATERMARK)
        return CONTINUE

    def on_event_time(self, time: Milliseconds, window: TimeWindow, timers: Timers) -> TriggerResult:
        return FIRE if time == MAX_WATERMARK else CONTINUE

    def on_merge(self, window: TimeWindow, timers: Timers) -> None:
        timers.register_event_time(MAX_WATERMARK)

    def clear(self, window: TimeWindow, timers: Timers) -> None:
        timers.delete_event_time(MAX_WATERMARK)

    def describe(self) -> str:
        return "end of the stream"


def _purging(result: TriggerResult) -> TriggerResult:
    return FIRE_AND_PURGE if result is FIRE else result


def _interval(every: Duration) -> Milliseconds:
    every_ms = to_ms(every, what="the interval of a trigger")
    if every_ms == 0:
        raise ConfigError("a trigger that fires every 0 ms", hint="give the interval, for example timedelta(seconds=10)")
    return every_ms
