"""The window functions, triggers and evictors that window scripts name, as a user would write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.state.descriptors import ValueState
from penstock.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from penstock.windows.functions import WindowFunction, per_window
from penstock.windows.triggers import (
    CONTINUE,
    FIRE,
    FIRE_AND_PURGE,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from tests.cases.assigner_scripts import ms
from tests.cases.expectations import NotBuiltError

Spec = dict[str, Any]


def sum_field1_reduce(left: Any, right: Any) -> Any:
    return [left[0], left[1] + right[1]]


class PassThrough(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield from values


class SumField1(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield [ctx.key, sum(value[1] for value in values)]


class ReduceSumField1(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        total = values[0]
        for value in values[1:]:
            total = sum_field1_reduce(total, value)
        yield total


class SessionSum(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield [f"{ctx.key}-{sum(value[1] for value in values)}", ctx.window.start, ctx.window.end]


class SessionEach(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        for value in values:
            yield [f"{ctx.key}-{value[1]}", ctx.window.start, ctx.window.end]


class GotJoin(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield "GOT: " + ",".join(f"({key},{value})" for key, value in values)


class Nothing(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> None:
        return None


class CollectSorted(WindowFunction[Any, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield sorted(values)


class Panes(WindowFunction[Any, Any, Any]):
    """Beam's panes: what another function emits, with its window and what kind of pane it is."""

    panes = per_window(ValueState[int](int, 0))
    on_time = per_window(ValueState[int](int, 0))

    def __init__(self, inner: WindowFunction[Any, Any, Any]) -> None:
        self.inner = inner

    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        early = ctx.current_watermark < ctx.window.max_timestamp
        pane = {
            "early": early,
            "late": not early and self.on_time.value > 0,
            "index": self.panes.value,
            "nonspeculative_index": -1 if early else self.on_time.value,
        }
        self.panes.update(self.panes.value + 1)
        self.on_time.update(self.on_time.value + (not early))
        for value in self.inner.process(values, ctx) or ():
            yield {"value": value, "window": list(ctx.window), "pane": pane}


WINDOW_FUNCTIONS: dict[str, Callable[[], WindowFunction[Any, Any, Any]]] = {
    "pass_through": PassThrough,
    "sum_field1": SumField1,
    "reduce_sum_field1": ReduceSumField1,
    "session_sum": SessionSum,
    "session_each": SessionEach,
    "got_join": GotJoin,
    "nothing": Nothing,
    "collect_sorted": CollectSorted,
}

REDUCES: dict[str, Callable[[Any, Any], Any]] = {"sum_field1": sum_field1_reduce}


@dataclass(frozen=True)
class PurgeAtEndAndCleanup(Trigger):
    """`event_time_purge_at_end_and_cleanup`."""

    cleanup_ms: int
    merges = True

    def on_record(self, record: Any, timestamp: Any, window: Any, timers: Any) -> TriggerResult:
        if window.max_timestamp <= timers.current_watermark:
            return FIRE
        timers.register_event_time(window.max_timestamp)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, timers: Any) -> TriggerResult:
        return FIRE_AND_PURGE if time in (window.max_timestamp, window.max_timestamp + self.cleanup_ms) else CONTINUE

    def on_merge(self, window: Any, timers: Any) -> None:
        if window.max_timestamp > timers.current_watermark:
            timers.register_event_time(window.max_timestamp)

    def clear(self, window: Any, timers: Any) -> None:
        timers.delete_event_time(window.max_timestamp)


@dataclass(frozen=True)
class FireOnEveryCall(Trigger):
    """`fire_on_every_call`."""

    merges = True

    def on_record(self, record: Any, timestamp: Any, window: Any, timers: Any) -> TriggerResult:
        return FIRE

    def on_event_time(self, time: int, window: Any, timers: Any) -> TriggerResult:
        return FIRE

    def on_processing_time(self, time: int, window: Any, timers: Any) -> TriggerResult:
        return FIRE


TRIGGERS: dict[str, Callable[[Spec], Trigger]] = {
    "event_time": lambda spec: EventTimeTrigger(),
    "processing_time": lambda spec: ProcessingTimeTrigger(),
    "count": lambda spec: CountTrigger(spec["count"]),
    "continuous_event_time": lambda spec: ContinuousEventTimeTrigger(ms(spec["interval_ms"])),
    "continuous_processing_time": lambda spec: ContinuousProcessingTimeTrigger(ms(spec["interval_ms"])),
    "end_of_stream": lambda spec: EndOfStreamTrigger(),
    "never": lambda spec: NeverTrigger(),
    "event_time_purge_at_end_and_cleanup": lambda spec: PurgeAtEndAndCleanup(spec["cleanup_ms"]),
    "fire_on_every_call": lambda spec: FireOnEveryCall(),
}


def make_trigger(spec: Spec | None) -> Trigger | None:
    if spec is None:
        return None
    if spec["type"] not in TRIGGERS:
        raise NotBuiltError(f"no trigger {spec['type']!r} in the runner")
    trigger = TRIGGERS[spec["type"]](spec)
    return PurgingTrigger(trigger) if spec.get("purging") else trigger


def make_evictor(spec: Spec | None) -> Evictor | None:
    if spec is None:
        return None
    after = spec.get("evict", "before") == "after"
    if spec["type"] == "count":
        return CountEvictor(spec["keep"], after)
    if spec["type"] == "time":
        return TimeEvictor(ms(spec["keep_ms"]), after)
    if spec["type"] == "delta":
        return DeltaEvictor(spec["threshold"], delta(spec["delta"]), after)
    raise NotBuiltError(f"no evictor {spec['type']!r} in the runner")


def delta(text: str) -> Callable[[Any, Any], float]:
    """The delta function that a script writes as, for example, `newest.field1 - element.field1`."""
    side = r"(newest|element)(?:\.field(\d+))?"
    found = re.fullmatch(rf"\s*(abs\()?\s*{side}\s*-\s*{side}\s*\)?\s*", text)
    if found is None:
        raise NotBuiltError(f"no delta {text!r} in the runner")
    absolute, left, left_field, right, right_field = found.groups()

    def of(element: Any, newest: Any) -> float:
        sides = {"element": element, "newest": newest}
        first, second = sides[left], sides[right]
        difference: float = (first if left_field is None else first[int(left_field)]) - (
            second if right_field is None else second[int(right_field)]
        )
        return abs(difference) if absolute else difference

    return of
