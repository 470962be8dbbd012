"""The keyed process step: a user's function with state and timers, for each key.

Law: an event-time timer sees the time it was set for, not how far the watermark jumped: on_timer gives the same whether time went
there in one step or in many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.contexts import OnTimerContext
from penstock.errors import PlanError
from penstock.functions import Call, life_cycle, method_call
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.plan.definition import Definition, KeyFields, StateDeclaration
from penstock.plan.schema import Schema
from penstock.records import NO_TIMESTAMP, Batch, Records
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.returned import as_records
from penstock.runtime.operators.stateless import repeated
from penstock.runtime.rolling import ByField, Rolling
from penstock.runtime.services import TIMER_STATES, Services
from penstock.state.descriptors import declared_states, state_calls
from penstock.state.overlay.handles import bind_states, check_defaults
from penstock.state.overlay.keyed import KeyedState, Slot
from penstock.state.overlay.timers import TimerQueue
from penstock.state.overlay.writes import Place

ROWS_AT_A_TIME = 4096
"""So many rows become Python records, are processed and passed on together: they fit into the cache of a core."""

EMIT_ABOVE = 50_000
"""So many records that timers emitted are passed on together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedProcess(Definition):
    """A `KeyedProcessFunction` on a keyed stream; `label` is what the user called (reduce, sum, …)."""

    body: Any
    key_type: Any = None
    key_fields: KeyFields | None = None
    label: str = "process"

    def __post_init__(self) -> None:
        if not callable(getattr(self.body, "process", None)):
            raise PlanError(
                f"{self.body!r} is not a KeyedProcessFunction",
                hint="give an instance of a class with process(self, value, ctx), and on_timer if it sets timers",
            )
        check_defaults(declared_states(self.body))
        for name in declared_states(self.body):
            if name in ("process", "on_timer", "open", "close"):
                raise PlanError(f"a state may not be called {name!r}", hint="choose another name for the state")

    @property
    def kind(self) -> str:
        return f"keyed {self.label}"

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        if isinstance(self.body, Rolling):
            return *self.body._function_calls(), *state_calls(self.body)
        return (
            method_call(self.body, "process", "value", "ctx", several=True),
            method_call(self.body, "on_timer", "timestamp", "ctx", optional=True, several=True),
            *life_cycle(self.body),
            *state_calls(self.body),
        )

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self.body.output(inputs[0]) if isinstance(self.body, ByField) else None

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        keys: dict[str, Any] = {"key_type": self.key_type, "key_fields": self.key_fields}
        return tuple(
            StateDeclaration(step=step, name=name, state=state, kind=state.kind, **keys)
            for name, state in declared_states(self.body).items()
        ) + tuple(StateDeclaration(step=step, name=name, state=None, kind="timers", **keys) for name in TIMER_STATES)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return KeyedProcessOperator(step, services, services.opened(step, self.body), self)


class KeyedProcessOperator(Operator):
    def __init__(self, step: StepId, services: Services, function: Any, definition: KeyedProcess) -> None:
        super().__init__(step, services)
        self.function = function
        self.errors = definition.errors
        self.keyed: KeyedState = services.keyed_state(step, definition.key_type, self.watermark)
        states = declared_states(definition.body)
        handles = bind_states(
            self.keyed,
            states,
            lambda name: services.state_id(step, name),
            lambda name: Place(step=step, state=name, function=definition.function(), tolerant=self.errors != "fail"),
        )
        for name, handle in handles.items():
            object.__setattr__(function, name, handle)
        self.ctx: OnTimerContext[Any] = OnTimerContext(self.keyed)
        self.ctx.current_watermark = self.watermark
        self.ctx.current_processing_time = services.processing_time

    def on_batch(self, batch: Keyed) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        slots = self.keyed.enter(batch.keys)
        for start in range(0, len(batch), ROWS_AT_A_TIME):
            part = batch.batch.slice(start, start + ROWS_AT_A_TIME)
            rows = map(slots.__getitem__, batch.codes[start : start + ROWS_AT_A_TIME].tolist())
            if part.timestamps is None and self.errors == "fail":
                self._run_plain(rows, part.values())
            else:
                self._run(rows, part)
            self.outputs.emit_sides(self.ctx.take_side())

    def _run_plain(self, rows: map[Slot], values: list[Any]) -> None:
        """The hot loop: no timestamps, and the first error ends the epoch."""
        keyed, sole, ctx, process = self.keyed, self.keyed.sole, self.ctx, self.function.process
        ctx.timestamp_ms = NO_TIMESTAMP
        keyed.times.record_time = None
        out: list[Any] = []
        extend = out.extend
        usual: type | None = None
        record = None
        try:
            for slot, record in zip(rows, values, strict=True):
                keyed.slot = slot
                ctx.key = slot.key
                if sole is not None:
                    sole.slot = slot
                    sole.value = slot.cells[0]
                result = process(record, ctx)
                if result is not None:
                    if type(result) is not usual:
                        result = as_records(result, self.step, self.function, "process")
                        usual = type(result)
                    extend(result)
        except Exception as error:
            raise self._error(error, record) from error
        self.outputs.emit(Records(out))

    def _run(self, rows: map[Slot], batch: Batch) -> None:
        keyed, sole, ctx, process, times = self.keyed, self.keyed.sole, self.ctx, self.function.process, self.keyed.times
        stamps = batch.timestamps
        out: list[Any] = []
        extend = out.extend
        usual: type | None = None
        ends: list[int] = []
        todo = zip(rows, batch.values(), [NO_TIMESTAMP] * len(batch) if stamps is None else stamps.tolist(), strict=True)
        record, time = None, NO_TIMESTAMP
        tolerant, mark = self.errors != "fail", ctx.side_mark()
        while True:
            try:
                for slot, record, time in todo:
                    if tolerant:
                        mark = ctx.side_mark()
                    keyed.slot = slot
                    ctx.key = slot.key
                    if sole is not None:
                        sole.slot = slot
                        sole.value = slot.cells[0]
                    ctx.timestamp_ms = time
                    times.record_time = None if time == NO_TIMESTAMP else time
                    result = process(record, ctx)
                    if result is not None:
                        if type(result) is not usual:
                            result = as_records(result, self.step, self.function, "process")
                            usual = type(result)
                        extend(result)
                    ends.append(len(out))
                break
            except Exception as error:
                if self.errors == "fail":
                    raise self._error(error, record) from error
                del out[ends[-1] if ends else 0 :]
                ends.append(len(out))
                ctx.side_back_to(mark)
                self.set_aside(error, self.function, record, time)
        self.outputs.emit(Records(out, repeated(stamps, ends)))

    def _error(self, error: Exception, record: Any, doing: str = "") -> Exception:
        return self.user_error(error, self.function, record, doing=f"{doing}key {self.keyed.slot.key!r:.200}")

    def advance(self, watermark: Milliseconds) -> None:
        self.watermark = watermark
        self.keyed.times.ended = watermark == MAX_WATERMARK
        if self.keyed.event_timers.has_due(watermark):
            self._fire(self.keyed.event_timers, watermark, "event")
        self.keyed.times.watermark = watermark
        self.ctx.current_watermark = watermark
        if self.keyed.ttl_timers[0].has_due(watermark):
            self.keyed.purge_expired()

    def on_processing_time(self, now: Milliseconds) -> None:
        self.keyed.times.processing_time = now
        self.ctx.current_processing_time = now
        if self.keyed.processing_timers.has_due(now):
            self._fire(self.keyed.processing_timers, now, "processing")
        if self.keyed.ttl_timers[1].has_due(now):
            self.keyed.purge_expired()

    def on_end(self) -> None:
        """The end of time: each pending processing-time timer fires once, and event-time timers that were set after the last
        watermark fire too."""
        self.keyed.times.ended = True
        self._fire(self.keyed.event_timers, MAX_WATERMARK, "event")
        self._fire_all(self.keyed.processing_timers.pending(), "processing")
        self._fire(self.keyed.event_timers, MAX_WATERMARK, "event")

    def _fire(self, queue: TimerQueue, until: Milliseconds, domain: str) -> None:
        self._fire_all(queue.due(until), domain)

    def _fire_all(self, timers: Any, domain: str) -> None:
        ctx, keyed = self.ctx, self.keyed
        on_timer: Callable[..., Any] = self.function.on_timer
        ctx.time_domain = domain
        out: list[Any] = []
        times: list[Milliseconds] = []
        for time, encoded in timers:
            if len(out) >= EMIT_ABOVE:
                self._emit_fired(out, times, domain)
                out, times = [], []
            ctx.key = keyed.enter_one(encoded).key
            if domain == "event":
                ctx.timestamp_ms = time
                if time > keyed.times.watermark:
                    keyed.times.watermark = ctx.current_watermark = time
            else:
                ctx.timestamp_ms = NO_TIMESTAMP
            keyed.times.record_time = None
            start = len(out)
            mark = ctx.side_mark()
            try:
                result = on_timer(time, ctx)
                if result is not None:
                    out.extend(as_records(result, self.step, self.function, "on_timer"))
            except Exception as error:
                if self.errors == "fail":
                    raise self._error(error, f"the {domain}-time timer at {time}", "on_timer, ") from error
                del out[start:]
                ctx.side_back_to(mark)
                self.set_aside(error, self.function, {"timer": time, "domain": domain}, ctx.timestamp_ms)
            times.extend([ctx.timestamp_ms] * (len(out) - start))
        self._emit_fired(out, times, domain)

    def _emit_fired(self, out: list[Any], times: list[Milliseconds], domain: str) -> None:
        self.outputs.emit_sides(self.ctx.take_side())
        self.outputs.emit(Records(out, np.asarray(times, dtype=np.int64) if domain == "event" else None))
