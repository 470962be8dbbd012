"""The functions that operator scripts name, as a user would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock import KeyedProcessFunction, OutputTag, ValueState

Spec = dict[str, Any]


def now(ctx: Any, domain: str) -> int:
    current: int = ctx.current_processing_time if domain == "processing" else ctx.current_watermark
    return current


class QueryTime(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        stamp = "null" if ctx.timestamp is None else ctx.timestamp
        yield f"{value}{self.spec['label']}:{now(ctx, self.spec['domain'])} TS:{stamp}"


class EchoThenTimer(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value
        domain = self.spec["domain"]
        register = ctx.timers.register_processing_time if domain == "processing" else ctx.timers.register_event_time
        register(now(ctx, domain) + self.spec["delay_ms"])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if ctx.time_domain != self.spec["domain"]:
            raise AssertionError(f"a timer of the domain {ctx.time_domain}")
        yield self.spec["timer_value"]


class ToggleState(KeyedProcessFunction[Any, Any, Any]):
    seen: ValueState[Any] = ValueState()

    def __init__(self, spec: Spec) -> None:
        self.domain = spec.get("domain", "event")

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        processing = self.domain == "processing"
        if self.seen.value is None:
            yield f"INPUT:{value}"
            self.seen.update(value)
            (ctx.timers.register_processing_time if processing else ctx.timers.register_event_time)(now(ctx, self.domain) + 5)
        else:
            self.seen.clear()
            (ctx.timers.delete_processing_time if processing else ctx.timers.delete_event_time)(now(ctx, self.domain) + 4)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield f"STATE:{self.seen.value}"


class BothTimers(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> None:
        timers = ctx.timers
        timers.register_processing_time(3)
        timers.register_processing_time(5)
        timers.register_event_time(4)
        timers.register_event_time(6)
        timers.delete_processing_time(3)
        timers.delete_event_time(4)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "EVENT:1777" if ctx.time_domain == "event" else "PROC:1777"


class SideOutputs(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield f"IN:{value}"
        ctx.output(OutputTag("int-out"), value)
        ctx.output(OutputTag("long-out"), value)


class SideOutputNullTag(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> None:
        tag: Any = None
        ctx.output(tag, value)


KEYED: dict[str, Callable[[Spec], Any]] = {
    "query_time": QueryTime,
    "echo_then_timer": EchoThenTimer,
    "toggle_state": ToggleState,
    "both_timers": BothTimers,
    "side_outputs": SideOutputs,
    "side_output_null_tag": SideOutputNullTag,
}

KEYS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda value: value,
    "field0": lambda value: value[0],
    "constant": lambda value: 0,
}
