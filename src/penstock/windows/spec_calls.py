"""How the functions and classes that a user gave to `window(...)` will be called: checked when the step is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.functions import Call, call_of, method_call
from penstock.windows.spec import WindowSpec
from penstock.windows.triggers import Trigger

Methods = dict[str, tuple[str, ...]]
"""The arguments of each method."""

_ASSIGNER: Methods = {"assign": ("record", "timestamp", "processing_time")}
_TRIGGER: Methods = {
    "on_record": ("record", "timestamp", "window", "timers"),
    "on_event_time": ("time", "window", "timers"),
    "on_processing_time": ("time", "window", "timers"),
    "on_merge": ("window", "timers"),
    "clear": ("window", "timers"),
}
_EVICTOR: Methods = {"evict_before": ("elements", "window"), "evict_after": ("elements", "window")}
_FUNCTIONS: Methods = {"gap_of": ("record",), "delta": ("one", "other")}
"""What assigners, triggers and evictors of ours are given."""


def spec_calls(spec: WindowSpec) -> tuple[Call, ...]:
    """The calls of all parts."""
    return (
        *_of(spec.assigner, _ASSIGNER),
        *(call for trigger in _triggers(spec.trigger) for call in _of(trigger, _TRIGGER)),
        *(() if spec.evictor is None else _of(spec.evictor, _EVICTOR)),
    )


def _of(part: Any, methods: Methods) -> Iterator[Call]:
    for name, arguments in methods.items():
        yield method_call(part, name, *arguments, several=name == "assign")
    for name, arguments in _FUNCTIONS.items():
        given = getattr(part, name, None)
        if callable(given) and type(part).__module__.startswith("penstock.windows."):
            yield call_of(given, name.removesuffix("_of"), *arguments)


def _triggers(trigger: Trigger) -> Iterator[Trigger]:
    """A trigger, and those that it was given."""
    yield trigger
    for part in getattr(trigger, "__dict__", {}).values():
        if isinstance(part, Trigger):
            yield from _triggers(part)
