"""What a function is handed: the runtime context at `open`, and the context of a record or a timer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.changes import KINDS, RowKind
from penstock.ids import Milliseconds, StepId
from penstock.records import NO_TIMESTAMP
from penstock.timing.durations import time_ms

if TYPE_CHECKING:
    from penstock.functions import OutputTag
    from penstock.state.overlay.keyed import KeyedState

__all__ = ["KeyedBroadcastContext", "KeyedContext", "OnTimerContext", "ProcessContext", "RuntimeContext", "Timers"]

K = TypeVar("K")
T = TypeVar("T")
S = TypeVar("S")

Sides = dict[str, tuple[list[Any], ...]]
"""What was written to side outputs, by tag: values, timestamps, ticks; in a stream that updates, kinds too."""


class RuntimeContext:
    """Where a function runs, and its counters."""

    def __init__(self, *, job: str, step: StepId, partition: int, parallelism: int) -> None:
        self.job = job
        self.step = step
        self.partition = partition
        self.parallelism = parallelism
        self.counters: dict[str, int] = {}
        self._counting = Lock()

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of this step; `penstock` sums them over all partitions and shows them as metrics."""
        with self._counting:  # a function may be called in threads
            self.counters[name] = self.counters.get(name, 0) + by


class ProcessContext:
    """The context of one record."""

    __slots__ = ("_side", "_tick", "current_processing_time", "current_watermark", "timestamp_ms")

    def __init__(self) -> None:
        self.timestamp_ms: Milliseconds = NO_TIMESTAMP
        self.current_watermark: Milliseconds = NO_TIMESTAMP
        self.current_processing_time: Milliseconds = 0
        self._tick: Milliseconds | None = None
        """Of what is written now; None: the watermark."""
        self._side: Sides = {}

    @property
    def timestamp(self) -> Milliseconds | None:
        """Event time of the record in milliseconds; None if it has none."""
        return None if self.timestamp_ms == NO_TIMESTAMP else self.timestamp_ms

    @property
    def kind(self) -> RowKind:
        """What the record is to a stream that updates: it is added to one, taken back, … What is emitted is of the same kind."""
        return RowKind.INSERT

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        """Write to a side output."""
        side = self._side.get(tag.name)
        if side is None:
            side = self._side[tag.name] = ([], [], [])
        side[0].append(value)
        side[1].append(self.timestamp_ms)
        side[2].append(self.current_watermark if self._tick is None else self._tick)

    def side_mark(self) -> dict[str, int]:
        """How much has been written to side outputs. For the runtime."""
        return {tag: len(side[0]) for tag, side in self._side.items()}

    def side_back_to(self, mark: dict[str, int]) -> None:
        """Forget what has been written to side outputs since the mark. For the runtime."""
        for tag, side in self._side.items():
            for written in side:
                del written[mark.get(tag, 0) :]

    def take_side(self) -> Sides:
        """What has been written to side outputs since the last call. For the runtime."""
        side, self._side = self._side, {}
        return side


class ChangeContext(ProcessContext):
    """The context of one record of a stream that updates."""

    __slots__ = ("_code",)

    def __init__(self) -> None:
        super().__init__()
        self._code = 0

    @property
    def kind(self) -> RowKind:
        return KINDS[self._code]

    def following(self, codes: list[int], rows: Iterable[T]) -> Iterator[T]:
        """The rows, each with its kind known here. For the runtime."""
        for self._code, row in zip(codes, rows, strict=True):
            yield row

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        super().output(tag, value)
        side = self._side[tag.name]
        if len(side) == 3:
            side = self._side[tag.name] = (*side, [])
        side[3].append(self._code)


class Timers:
    """The timers of the current key. The same timer registered twice is one timer."""

    __slots__ = ("_ctx", "_keyed")

    def __init__(self, keyed: KeyedState, ctx: ProcessContext) -> None:
        self._keyed = keyed
        self._ctx = ctx

    @property
    def current_watermark(self) -> Milliseconds:
        return self._ctx.current_watermark

    @property
    def current_processing_time(self) -> Milliseconds:
        return self._ctx.current_processing_time

    @property
    def ended(self) -> bool:
        """Has all input ended? Then time is at its end: every timer fires, also one that is set now."""
        return self._keyed.times.ended

    def register_event_time(self, time: Milliseconds | datetime) -> None:
        keyed = self._keyed
        keyed.event_timers.register(time if type(time) is int else time_ms(time), keyed.slot)

    def delete_event_time(self, time: Milliseconds | datetime) -> None:
        keyed = self._keyed
        keyed.event_timers.delete(time if type(time) is int else time_ms(time), keyed.slot)

    def register_processing_time(self, time: Milliseconds | datetime) -> None:
        keyed = self._keyed
        keyed.processing_timers.register(time if type(time) is int else time_ms(time), keyed.slot)

    def delete_processing_time(self, time: Milliseconds | datetime) -> None:
        keyed = self._keyed
        keyed.processing_timers.delete(time if type(time) is int else time_ms(time), keyed.slot)


class KeyedContext(ProcessContext, Generic[K]):
    """The context of one record of a keyed stream."""

    __slots__ = ("key", "timers")

    key: K
    """The key of the record, or of the timer."""

    def __init__(self, keyed: KeyedState) -> None:
        super().__init__()
        self.timers = Timers(keyed, self)


class OnTimerContext(KeyedContext[K]):
    """The context of a timer: `time_domain` is "event" or "processing"."""

    __slots__ = ("time_domain",)

    def __init__(self, keyed: KeyedState) -> None:
        super().__init__(keyed)
        self.time_domain = "event"


class KeyedBroadcastContext(ProcessContext, Generic[K]):
    """The context of a broadcast record at a keyed stream: there is no key, but all keys can be gone through."""

    __slots__ = ("_visit",)

    def __init__(self, visit: Callable[[Any, Callable[[Any, Any], None]], None]) -> None:
        super().__init__()
        self._visit = visit

    def apply_to_keyed_state(self, state: S, function: Callable[[K, S], None]) -> None:
        """Call `function(key, state)` for every key of this partition that has something in a keyed state, such as `self.seen`.
        The function may read and change that, and every other keyed state of the key."""
        self._visit(state, function)
