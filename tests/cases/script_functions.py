"""The functions that operator scripts name, as a user would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from penstock import KeyedProcessFunction, OutputTag, ValueState
from tests.cases.expectations import NotBuiltError

Spec = dict[str, Any]


def now(ctx: Any, domain: str) -> int:
    current: int = ctx.current_processing_time if domain == "processing" else ctx.current_watermark
    return current


def register(ctx: Any, domain: str, time: int) -> None:
    """Set a timer of the current key."""
    (ctx.timers.register_processing_time if domain == "processing" else ctx.timers.register_event_time)(time)


def delete(ctx: Any, domain: str, time: int) -> None:
    (ctx.timers.delete_processing_time if domain == "processing" else ctx.timers.delete_event_time)(time)


def queried(value: Any, ctx: Any, spec: Spec) -> str:
    stamp = "null" if ctx.timestamp is None else ctx.timestamp
    return f"{value}{spec['label']}:{now(ctx, spec['domain'])} TS:{stamp}"


class QueryTime(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield queried(value, ctx, self.spec)


class EchoThenTimer(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value
        register(ctx, self.spec["domain"], now(ctx, self.spec["domain"]) + self.spec["delay_ms"])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if ctx.time_domain != self.spec["domain"]:
            raise AssertionError(f"a timer of the domain {ctx.time_domain}")
        yield self.spec["timer_value"]


class ToggleState(KeyedProcessFunction[Any, Any, Any]):
    seen: ValueState[Any] = ValueState()

    def __init__(self, spec: Spec) -> None:
        self.domain = spec.get("domain", "event")

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        if self.seen.value is None:
            yield f"INPUT:{value}"
            self.seen.update(value)
            register(ctx, self.domain, now(ctx, self.domain) + 5)
        else:
            self.seen.clear()
            delete(ctx, self.domain, now(ctx, self.domain) + 4)

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


class EmitField1(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[1]


class AppendKey(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield f"{value},{ctx.key}"


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
    "append_key": AppendKey,
    "emit_field1": EmitField1,
    "query_time": QueryTime,
    "echo_then_timer": EchoThenTimer,
    "toggle_state": ToggleState,
    "both_timers": BothTimers,
    "side_outputs": SideOutputs,
    "side_output_null_tag": SideOutputNullTag,
}

KEYS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda value: value,
    "to_string": str,
    "constant": lambda value: 0,
}


def key_selector(key: Any) -> Callable[[Any], Any]:
    """By a name of the above, by the number or name of a field, or a constant."""
    if isinstance(key, dict) and "constant" in key:
        constant = key["constant"]
        return lambda value: constant
    if isinstance(key, dict) and "field" in key:
        return itemgetter(key["field"])
    if isinstance(key, int):
        return itemgetter(key)
    if isinstance(key, str) and key in KEYS:
        return KEYS[key]
    if isinstance(key, str) and key.startswith("field") and key[5:].isdigit():
        return itemgetter(int(key[5:]))
    if isinstance(key, str):
        return itemgetter(key)
    raise NotBuiltError(f"no key selector {key!r} in the runner")
