"""The first records of each key that are far enough apart in event time.

Laws:
- A record is a duplicate if its own time is nearer than `within` to that of a record of its key that was given before, be it
  earlier or later. Which watermark is behind it says nothing.
- The time of a record that was given is known until the watermark has reached it and `within`; every record that is not late
  meets all that are near it. A late record is compared with those that are still known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.changes import APPENDS, Changes
from penstock.contexts import RuntimeContext
from penstock.functions import Call, KeyedProcessFunction
from penstock.ids import Milliseconds
from penstock.joins.keyed_steps import Changed
from penstock.joins.results import Result
from penstock.state.descriptors import ValueState
from penstock.windows.step import no_timestamp


class FirstWithin(KeyedProcessFunction[Any, Any, Result]):
    def __init__(self, within_ms: Milliseconds) -> None:
        self.within_ms = within_ms
        self.times: ValueState[list[int]] = ValueState(list[int])

    def function_calls(self) -> tuple[Call, ...]:
        return ()

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS

    def of_what(self) -> dict[str, str]:
        return {"times": "of the first records of each key"}

    def describe(self) -> dict[str, str]:
        return {"keeps": "the first record of each key", "known": f"for {self.within_ms} ms of event time around it"}

    def open(self, context: RuntimeContext) -> None:
        self._step = context.step

    def process(self, value: Changed, ctx: Any) -> Iterator[Result]:
        time = ctx.timestamp
        if time is None:
            raise no_timestamp(self._step, value.value)
        known = self.times.value or []
        if any(abs(time - other) < self.within_ms for other in known):
            return
        end = time + self.within_ms
        if end > ctx.current_watermark:
            self.times.update([*known, time])
            ctx.timers.register_event_time(end)
        yield Result(value.value)

    def on_timer(self, timestamp: Milliseconds, ctx: Any) -> Iterator[Result]:
        left = [time for time in self.times.value or () if time + self.within_ms > timestamp]
        if left:
            self.times.update(left)
        else:
            self.times.clear()
        yield from ()
