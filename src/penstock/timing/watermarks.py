"""Watermark strategies: the definition a user writes, and the clock that runs for each source partition.

Law: a partition's clock is a function of the partition's records and nothing else; its state is in the manifest, so a replay
sees the same times. A watermark `w` says: no record with a timestamp `<= w` is expected any more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from penstock.errors import ConfigError
from penstock.functions import Call, call_of
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.records import NO_TIMESTAMP, Batch, Timestamps
from penstock.timing.durations import Duration, to_ms
from penstock.timing.timestamps import TimestampSelector, Unit, check_unit, select_timestamps

T = TypeVar("T")

_FIRST = -(1 << 61)
"""Timestamps before this count as this, where they are computed with."""


class WatermarkGenerator(Generic[T]):
    """A user's own way to derive watermarks. One instance for each source partition.

    `snapshot` must be JSON-able; `restore` gets it back in the next epoch, whichever process runs it.
    """

    def on_record(self, record: T, timestamp: Milliseconds) -> Milliseconds | None:
        """Called for each record; a returned watermark takes effect after this record."""
        return None

    def on_batch_end(self) -> Milliseconds | None:
        """Called after each batch; a returned watermark takes effect there."""
        return None

    def snapshot(self) -> Any:
        return None

    def restore(self, snapshot: Any) -> None:
        """Continue from `snapshot`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks(Generic[T]):
    """How records get their timestamps and the stream its watermarks.

    Make one with `monotonous`, `bounded`, `punctuated`, `ingestion`, `custom` or `none`.

    >>> Watermarks.bounded(seconds=5, timestamp="time").with_idleness(60).describe()
    'bounded 5000 ms, idle after 60000 ms'
    """

    timestamp: TimestampSelector = None
    slack_ms: Milliseconds | None = None
    generator: Callable[[], WatermarkGenerator[T]] | None = None
    idle_ms: Milliseconds | None = None
    every_ms: Milliseconds | None = None
    by_arrival: bool = False
    unit: Unit = "ms"
    drift_ms: Milliseconds | None = None

    def __post_init__(self) -> None:
        check_unit(self.unit, self.timestamp)

    @classmethod
    def monotonous(
        cls,
        *,
        timestamp: TimestampSelector = None,
        unit: Unit = "ms",
        idle: Duration | None = None,
        every: Duration | None = None,
    ) -> Watermarks[T]:
        """Timestamps never go back within a source partition. `unit`, `every`: see `bounded`."""
        return cls(timestamp=timestamp, unit=unit, slack_ms=0, every_ms=_step(every))._idle(idle)

    @classmethod
    def bounded(
        cls,
        *,
        seconds: float | None = None,
        slack: timedelta | None = None,
        timestamp: TimestampSelector = None,
        unit: Unit = "ms",
        idle: Duration | None = None,
        every: Duration | None = None,
    ) -> Watermarks[T]:
        """Records come at most `slack` (or `seconds`) out of order within a source partition.

        `unit`: what the numbers that `timestamp` gives are in, `"s"`, `"ms"`, `"us"` or `"ns"` since 1970.

        Time moves with every record that is later than all before it in its source partition, so timers fire between records,
        wherever the input is cut into epochs. With `every` it moves at such steps of event time only. Windows over columns and
        steps without state are told of it after each batch.
        """
        if (seconds is None) == (slack is None):
            raise ConfigError("Watermarks.bounded needs one of seconds= and slack=", hint="for example seconds=5")
        duration: Duration = slack if slack is not None else float(seconds or 0)
        slack_ms = to_ms(duration, what="the slack of Watermarks.bounded")
        return cls(timestamp=timestamp, unit=unit, slack_ms=slack_ms, every_ms=_step(every))._idle(idle)

    @classmethod
    def custom(
        cls,
        generator: Callable[[], WatermarkGenerator[T]],
        *,
        timestamp: TimestampSelector = None,
        unit: Unit = "ms",
        idle: Duration | None = None,
    ) -> Watermarks[T]:
        """Watermarks from a `WatermarkGenerator`; `generator` makes one for each source partition."""
        return cls(timestamp=timestamp, unit=unit, generator=generator)._idle(idle)

    @classmethod
    def punctuated(
        cls,
        function: Callable[[T, Milliseconds], Milliseconds | None],
        *,
        timestamp: TimestampSelector = None,
        unit: Unit = "ms",
        idle: Duration | None = None,
    ) -> Watermarks[T]:
        """Some records tell the time: `function(record, timestamp)` returns a watermark, which takes effect after the record, or
        None."""
        return cls(timestamp=timestamp, unit=unit, generator=partial(Punctuated, function))._idle(idle)

    @classmethod
    def ingestion(cls, *, idle: Duration | None = None) -> Watermarks[T]:
        """A record's timestamp is the processing time of the epoch that reads it, also when that epoch is run again."""
        return cls(slack_ms=0, by_arrival=True)._idle(idle)

    @classmethod
    def none(cls, *, timestamp: TimestampSelector = None, unit: Unit = "ms") -> Watermarks[T]:
        """Timestamps, but no watermarks until the end of the input."""
        return cls(timestamp=timestamp, unit=unit)

    def with_idleness(self, idle: Duration) -> Watermarks[T]:
        """A partition without data for this long no longer holds event time back."""
        return self._idle(idle)

    def with_drift(self, drift: Duration) -> Watermarks[T]:
        """A partition is read at most so far ahead, in event time, of the one that is furthest behind: of this source, and of
        others that functions see. Input that is held back so does not make its partition idle. For live input; history is
        read in order of event time anyway.
        """
        return replace(self, drift_ms=to_ms(drift, what="drift"))

    def _idle(self, idle: Duration | None) -> Watermarks[T]:
        return self if idle is None else replace(self, idle_ms=to_ms(idle, what="idle"))

    def assign(self, batch: Batch, processing_time: Milliseconds = 0) -> Batch:
        """The batch with its timestamps."""
        if self.by_arrival:
            return batch.with_timestamps(np.full(len(batch), processing_time, dtype=np.int64))
        if self.timestamp is None:
            return batch
        return batch.with_timestamps(select_timestamps(batch, self.timestamp, self.unit))

    @property
    def _punctuation(self) -> Callable[[T, Milliseconds], Milliseconds | None] | None:
        """The function of `punctuated`."""
        made = self.generator
        return made.args[0] if isinstance(made, partial) and made.func is Punctuated else None

    def function_calls(self) -> tuple[Call, ...]:
        """How the user's functions will be called."""
        found = (call_of(self.timestamp, "timestamp", "record"),) if callable(self.timestamp) else ()
        if self._punctuation is not None:
            return *found, call_of(self._punctuation, "function", "record", "timestamp")
        if self.generator is None:
            return found
        made = self.generator
        of_class = generator_calls(made) if isinstance(made, type) else ()
        return *found, Call(made, "generator", made, ()), *of_class

    def clock(self, state: Any = None) -> PartitionClock:
        """The running part, continuing from `state` (what `PartitionClock.state` gave)."""
        if self.generator is not None:
            return GeneratedClock(self.generator(), state)
        if self.every_ms is not None and self.slack_ms is not None:
            return SteppedClock(self.slack_ms, self.every_ms, state)
        return BoundedClock(self.slack_ms, state)

    @property
    def by_records(self) -> bool:
        """Does time move as the records do, the same whenever they are read?"""
        return not self.by_arrival and (self.generator is not None or self.slack_ms is not None)

    def describe(self) -> str:
        if self.by_arrival:
            kind = "ingestion time"
        elif self._punctuation is not None:
            kind = "punctuated"
        elif self.generator is not None:
            kind = "custom"
        elif self.slack_ms is None:
            kind = "none"
        else:
            kind = "monotonous" if self.slack_ms == 0 else f"bounded {self.slack_ms} ms"
        kind += "" if self.every_ms is None else f", every {self.every_ms} ms"
        kind += f", idle after {self.idle_ms} ms" if self.idle_ms is not None else ""
        return kind + (f", drift of {self.drift_ms} ms" if self.drift_ms is not None else "")


def generator_calls(kind: type) -> tuple[Call, ...]:
    """How the methods of a class of watermark generators will be called."""
    methods = {
        "on_record": ("record", "timestamp"),
        "on_batch_end": (),
        "snapshot": (),
        "restore": ("snapshot",),
    }
    return tuple(
        Call(kind, name, partial(method, None), arguments)
        for name, arguments in methods.items()
        if inspect.isfunction(method := inspect.getattr_static(kind, name, None))
    )


class Punctuated(WatermarkGenerator[T]):
    """Watermarks that records carry."""

    def __init__(self, function: Callable[[T, Milliseconds], Milliseconds | None]) -> None:
        self.function = function

    def on_record(self, record: T, timestamp: Milliseconds) -> Milliseconds | None:
        return self.function(record, timestamp)


class PartitionClock:
    """Event time of one source partition."""

    __slots__ = ("watermark",)

    def __init__(self, watermark: Milliseconds) -> None:
        self.watermark = watermark

    def advance(self, batch: Batch) -> list[tuple[int, Milliseconds]]:
        """Where in the batch the watermark is to be announced: `(rows before it, watermark)`, in order."""
        raise NotImplementedError

    def ticks(self, batch: Batch) -> Timestamps:
        """The watermark from before each record; moves on as `advance` does."""
        before = self.watermark
        cuts = self.advance(batch)
        ends = np.asarray([end for end, _ in cuts], dtype=np.int64)
        known = np.asarray([before, *(watermark for _, watermark in cuts[:-1])], dtype=np.int64)
        return np.repeat(known, np.diff(ends, prepend=0))

    def state(self) -> Any:
        raise NotImplementedError


class BoundedClock(PartitionClock):
    """The greatest timestamp seen, less the slack, less one millisecond."""

    __slots__ = ("slack_ms",)

    def __init__(self, slack_ms: Milliseconds | None, state: Any) -> None:
        super().__init__(MIN_WATERMARK if state is None else state)
        self.slack_ms = slack_ms

    def advance(self, batch: Batch) -> list[tuple[int, Milliseconds]]:
        if self.slack_ms is not None and batch.timestamps is not None and len(batch):
            latest = int(batch.timestamps.max())
            if latest != NO_TIMESTAMP:
                self.watermark = max(self.watermark, min(latest - self.slack_ms - 1, MAX_WATERMARK - 1))
        return [(len(batch), self.watermark)]

    def ticks(self, batch: Batch) -> Timestamps:
        """Time moves with each record that is later than all before it."""
        if self.slack_ms is None or batch.timestamps is None or not len(batch):
            return np.full(len(batch), self.watermark, dtype=np.int64)
        return self._moved(batch.timestamps, self.slack_ms, 1)

    def _moved(self, times: Timestamps, slack_ms: Milliseconds, every_ms: Milliseconds) -> Timestamps:
        """With the watermark at steps of `every_ms`."""
        known = np.maximum(times, _FIRST + slack_ms)
        after = (known - slack_ms) // every_ms * every_ms - 1
        after[times == NO_TIMESTAMP] = MIN_WATERMARK
        np.minimum(after, MAX_WATERMARK - 1, out=after)
        ticks = np.maximum.accumulate(np.concatenate((np.asarray([self.watermark], dtype=np.int64), after)))
        self.watermark = int(ticks[-1])
        return ticks[:-1]

    def state(self) -> Any:
        return None if self.watermark == MIN_WATERMARK else self.watermark


class SteppedClock(BoundedClock):
    """As `BoundedClock`, but on a coarser grid of event time."""

    __slots__ = ("every_ms",)

    def __init__(self, slack_ms: Milliseconds, every_ms: Milliseconds, state: Any) -> None:
        super().__init__(slack_ms, state)
        self.slack_ms: Milliseconds = slack_ms
        self.every_ms = every_ms

    def ticks(self, batch: Batch) -> Timestamps:
        if batch.timestamps is None or not len(batch):
            return np.full(len(batch), self.watermark, dtype=np.int64)
        return self._moved(batch.timestamps, self.slack_ms, self.every_ms)

    def advance(self, batch: Batch) -> list[tuple[int, Milliseconds]]:
        size = len(batch)
        cuts: list[tuple[int, Milliseconds]] = []
        if batch.timestamps is not None and size:
            seen = batch.timestamps[batch.timestamps != NO_TIMESTAMP]
            rows = np.flatnonzero(batch.timestamps != NO_TIMESTAMP)
            steps = (np.maximum.accumulate(seen) - self.slack_ms) // self.every_ms * self.every_ms - 1
            before = np.concatenate((np.asarray([self.watermark], dtype=np.int64), steps[:-1]))
            news = np.flatnonzero((steps > before) & (steps > self.watermark))
            cuts += zip((rows[news] + 1).tolist(), steps[news].tolist(), strict=True)
            if cuts:
                self.watermark = cuts[-1][1]
        if not cuts or cuts[-1][0] != size:
            cuts.append((size, self.watermark))
        return cuts


class GeneratedClock(PartitionClock):
    """A user's generator; the batch is cut wherever it announces a watermark."""

    __slots__ = ("generator",)

    def __init__(self, generator: WatermarkGenerator[Any], state: Any) -> None:
        super().__init__(MIN_WATERMARK)
        self.generator = generator
        if state is not None:
            self.watermark = state["watermark"]
            if state["snapshot"] is not None:
                generator.restore(state["snapshot"])

    def advance(self, batch: Batch) -> list[tuple[int, Milliseconds]]:
        cuts: list[tuple[int, Milliseconds]] = []
        times = [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        on_record = self.generator.on_record
        for row, (record, time) in enumerate(zip(batch.values(), times, strict=True), start=1):
            self._take(on_record(record, time), row, cuts)
        self._take(self.generator.on_batch_end(), len(batch), cuts)
        if not cuts or cuts[-1][0] != len(batch):
            cuts.append((len(batch), self.watermark))
        return cuts

    def _take(self, watermark: Milliseconds | None, row: int, cuts: list[tuple[int, Milliseconds]]) -> None:
        if watermark is not None and watermark > self.watermark:
            self.watermark = int(watermark)
            if cuts and cuts[-1][0] == row:
                cuts.pop()
            cuts.append((row, self.watermark))

    def state(self) -> Any:
        return {"watermark": self.watermark, "snapshot": self.generator.snapshot()}


def _step(every: Duration | None) -> Milliseconds | None:
    if every is None:
        return None
    step = to_ms(every, what="every")
    if step == 0:
        raise ConfigError("every= is zero", hint="give the step of event time, for example timedelta(milliseconds=100)")
    return step
