"""A trigger in a worker: its state bound to handles, on the current window."""

from __future__ import annotations

import copy
from typing import Any

from penstock.contexts import Timers
from penstock.ids import Milliseconds
from penstock.state.descriptors import declared_states
from penstock.state.overlay.collections import ListHandle
from penstock.state.overlay.handles import AggregatingHandle, ReducingHandle
from penstock.state.overlay.keyed import KeyedState, Slot
from penstock.windows.triggers import Trigger, TriggerResult
from penstock.windows.window import TimeWindow

PREFIX = "trigger"
"""States of triggers are named `trigger.<name>`, those of a trigger in a trigger `trigger.<field>.<name>`."""


class TriggerLogic:
    """The trigger of a step; every call is about the window of the current slot."""

    def __init__(self, trigger: Trigger, keyed: KeyedState, handles: dict[str, Any], timers: Timers) -> None:
        self._trigger = bound(trigger, handles, PREFIX)
        self._keyed = keyed
        self._timers = timers
        mergeable = (ReducingHandle, AggregatingHandle, ListHandle)
        self._mergeable = [
            handle for name, handle in handles.items() if name.startswith(f"{PREFIX}.") and isinstance(handle, mergeable)
        ]

    def on_record(self, record: Any, timestamp: Milliseconds | None, window: TimeWindow) -> TriggerResult:
        return self._trigger.on_record(record, timestamp, window, self._timers)

    def on_timer(self, time: Milliseconds, window: TimeWindow, domain: str) -> TriggerResult:
        called = self._trigger.on_event_time if domain == "event" else self._trigger.on_processing_time
        return called(time, window, self._timers)

    def clear(self, window: TimeWindow) -> None:
        self._trigger.clear(window, self._timers)

    def merge(self, target: Slot, window: TimeWindow, parts: list[tuple[Slot, TimeWindow]]) -> None:
        """`window` takes the place of its parts."""
        keyed = self._keyed
        for handle in self._mergeable:
            for slot, _ in parts:
                keyed.slot = slot
                held = handle.held()
                keyed.slot = target
                handle.merge(held)
        keyed.slot = target
        self._trigger.on_merge(window, self._timers)
        for slot, part in parts:
            keyed.slot = slot
            self._trigger.clear(part, self._timers)


def bound(trigger: Trigger, handles: dict[str, Any], path: str) -> Trigger:
    """A copy of the trigger with its states, and those of triggers in it, bound."""
    own = copy.copy(trigger)
    for name in declared_states(trigger):
        object.__setattr__(own, name, handles[f"{path}.{name}"])
    for name, part in vars(trigger).items():
        if isinstance(part, Trigger):
            object.__setattr__(own, name, bound(part, handles, f"{path}.{name}"))
    return own
