"""Calling a user's function while somebody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from penstock.contexts import Timers
from penstock.records import NO_TIMESTAMP
from penstock.snapshots.replay.result import Emitted, Event, TimerChange
from penstock.snapshots.replay.watching.peeking import duplicate
from penstock.snapshots.replay.watching.trace import StepTrace
from penstock.timing.durations import time_ms

ORIGINAL = "penstock_original"


def call_watched(trace: StepTrace, stop: bool, function: Callable[..., Any], event: Event | None, *arguments: Any) -> Any:
    if not stop or trace.debugger is None:
        return function(*arguments)
    return trace.debugger.call(trace.result.step, function, event, *arguments)


def yielding(result: Any, failed: Callable[[Exception], None]) -> Any:
    """What a function returned; a generator's errors come when it is asked for more."""
    if not isinstance(result, GeneratorType):
        return result

    def each() -> Iterator[Any]:
        try:
            yield from result
        except Exception as error:
            failed(error)
            raise

    return each()


def sides_since(ctx: Any, mark: dict[str, int]) -> list[Emitted]:
    found = []
    for tag, (values, times, *_) in ctx._side.items():
        start = mark.get(tag, 0)
        for value, time in zip(values[start:], times[start:], strict=True):
            found.append(Emitted(duplicate(value), None if time == NO_TIMESTAMP else time, tag))
    return found


def original_method(function: Any, name: str) -> Any:
    """A method of a function that may be watched already: it is kept open from epoch to epoch."""
    method = getattr(function, name, None)
    return getattr(method, ORIGINAL, method)


def replace_method(function: Any, name: str, original: Any, by: Callable[..., Any]) -> None:
    setattr(by, ORIGINAL, original)
    object.__setattr__(function, name, by)


class NotedTimers(Timers):
    """The timers of the current key; what is set and deleted is noted."""

    __slots__ = ("changes",)

    def __init__(self, keyed: Any, ctx: Any) -> None:
        super().__init__(keyed, ctx)
        self.changes: list[TimerChange] = []

    def register_event_time(self, time: Any) -> None:
        super().register_event_time(time)
        self._note(time, "event", False)

    def delete_event_time(self, time: Any) -> None:
        super().delete_event_time(time)
        self._note(time, "event", True)

    def register_processing_time(self, time: Any) -> None:
        super().register_processing_time(time)
        self._note(time, "processing", False)

    def delete_processing_time(self, time: Any) -> None:
        super().delete_processing_time(time)
        self._note(time, "processing", True)

    def _note(self, time: Any, domain: str, deleted: bool) -> None:
        self.changes.append(TimerChange(time if type(time) is int else time_ms(time), domain, deleted))
