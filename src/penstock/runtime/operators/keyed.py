"""The keyed process step: a user's function with state and timers, for each key.

Laws:
- An event-time timer sees the time it was set for, not how far the watermark jumped: on_timer gives the same whether time went
  there in one step or in many.
- A record with a tick sees the tick as the watermark. Timers that are due by then have fired, those set since have not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from penstock.contexts import OnTimerContext
from penstock.errors import PenstockError, PlanError
from penstock.functions import Call, life_cycle, method_call
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.plan.definition import Definition, KeyFields, Scope, StateDeclaration, Takes
from penstock.plan.schema import Schema
from penstock.records import NO_TIMESTAMP, Batch, Records
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.observer import Invocation, ObservedTimers, Observer
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.operators.returned import as_records
from penstock.runtime.operators.scopes import bind_operator_states, check_scopes, declarations, states_of
from penstock.runtime.operators.stateless import repeated
from penstock.runtime.ordering import merged_keyed
from penstock.runtime.rolling import ByField, Rolling
from penstock.runtime.services import TIMER_STATES, Services
from penstock.state.descriptors import declared_states, state_calls
from penstock.state.entries.kinds import TIMERS
from penstock.state.overlay.handles import bind_states, check_defaults
from penstock.state.overlay.keyed import KeyedState, Slot
from penstock.state.overlay.timers import Timer, TimerQueue
from penstock.state.overlay.writes import StateLabel

Method = Callable[[Any, Any], Any]

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
    sees_order: ClassVar[bool] = True
    made_for: ClassVar[str] = "KeyedProcessFunction"
    methods: ClassVar[tuple[str, ...]] = ("process",)
    """What is called for a record, by the input that it comes in at."""
    scopes: ClassVar[tuple[Scope, ...]] = ("keyed", "operator")
    """Whose state its function may have."""

    def __post_init__(self) -> None:
        if not all(callable(getattr(self.body, name, None)) for name in self.methods):
            expected = " and ".join(f"{name}(self, value, ctx)" for name in self.methods)
            raise PlanError(
                f"{self.body!r} is not a {self.made_for}",
                hint=f"give an instance of a class with {expected}, and on_timer if it sets timers",
            )
        check_scopes(self.body, self.scopes, self.made_for)
        check_defaults(declared_states(self.body))
        for name in declared_states(self.body):
            if name in (*self.methods, "on_timer", "open", "close"):
                raise PlanError(f"a state may not be called {name!r}", hint="choose another name for the state")

    @property
    def kind(self) -> str:
        return f"keyed {self.label}"

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        if isinstance(self.body, Rolling):
            return *self.body.function_calls(), *state_calls(self.body)
        return (
            *(method_call(self.body, name, "value", "ctx", several=True) for name in self.methods),
            method_call(self.body, "on_timer", "timestamp", "ctx", optional=True, several=True),
            *life_cycle(self.body),
            *state_calls(self.body),
        )

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=True, key_type=self.key_type),) * len(self.methods)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self.body.output(inputs[0]) if isinstance(self.body, ByField) else None

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        keys: dict[str, Any] = {"key_type": self.key_type, "key_fields": self.key_fields}
        timers = (StateDeclaration(step=step, name=name, state=None, kind=TIMERS.name, **keys) for name in TIMER_STATES)
        return *declarations(step, self.body, **keys), *timers

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return KeyedProcessOperator(step, services, inputs, self)


class KeyedProcessOperator(Operator):
    observed = frozenset(("record", "timer"))
    always_keyed: ClassVar[bool] = True
    """Whatever its function is called for has a key."""

    def __init__(self, step: StepId, services: Services, inputs: int, definition: KeyedProcess) -> None:
        super().__init__(step, services, inputs)
        self.function = function = services.opened(step, definition.body)
        self._methods = definition.methods
        self.errors = definition.errors
        self.keyed: KeyedState = services.keyed_state(step, definition.key_type, self.watermark)
        states = states_of(definition.body, "keyed")
        bind_operator_states(services, step, function, definition.body)
        self._handles = handles = bind_states(
            self.keyed,
            states,
            lambda name: services.state_id(step, name),
            lambda name: StateLabel(step=step, state=name, function=definition.function(), tolerant=self.errors != "fail"),
            sole=self.always_keyed,
        )
        for name, handle in handles.items():
            object.__setattr__(function, name, handle)
        self._expires = any(state.ttl is not None and state.ttl.time == "event" for state in states.values())
        """Does event time decide what is still there of a state?"""
        self.ctx: OnTimerContext[Any] = OnTimerContext(self.keyed)
        self.ctx.current_watermark = self.watermark
        self.ctx.current_processing_time = services.processing_time
        self._calls: list[Method] = [getattr(function, name) for name in definition.methods]
        self._on_timer: Any = getattr(function, "on_timer", None)
        if self.observer is not None:
            self.ctx.timers = ObservedTimers(self.keyed, self.ctx, self.observer)
            self._calls = [self._observed(name, handles, self.observer) for name in definition.methods]
            self._on_timer = self._observed("on_timer", handles, self.observer)

    def _observed(self, method: str, handles: Mapping[str, Any], observer: Observer) -> Method:
        function: Any = getattr(self.function, method, None)
        timer = method == "on_timer"

        def invoked(what: Any, ctx: OnTimerContext[Any]) -> Any:
            slot = self.keyed.slot
            one = Invocation(
                kind="timer" if timer else "record",
                value=what,
                time=what if timer else ctx.timestamp_ms,
                watermark=ctx.current_watermark,
                key=ctx.key,
                encoded=slot.encoded,
                domain=ctx.time_domain if timer else None,
                slot=slot,
                handles=handles,
            )

            def proceed() -> list[Any]:
                mark = ctx.side_mark()
                result = function(what, ctx)
                records = [] if result is None else list(as_records(result, self.step, self.function, method))
                one.emits(((record, ctx.timestamp_ms) for record in records), ctx, mark)
                return records

            return observer.on_call(one, proceed)

        return invoked

    def on_batch(self, batch: Keyed) -> None:  # type: ignore[override]
        self.on_input(0, batch)

    def on_input(self, port: int, batch: Keyed) -> None:
        self._take(batch, port, None)

    def on_merged(self, batches: dict[int, Keyed], ports: Ports) -> None:
        batch = merged_keyed(list(batches.values()))
        if self.observer is None:
            self._take(batch, 0, ports)
        else:
            self.observer.on_batch(ports, batch, partial(self._take, batch, 0, ports))

    def _take(self, batch: Keyed, port: int, ports: Ports | None) -> None:
        """`ports`: by record, if they are of several inputs."""
        self.records_in += len(batch)
        slots = self.keyed.enter(batch.keys)
        calls = self._calls
        for start in range(0, len(batch), ROWS_AT_A_TIME):
            stop = start + ROWS_AT_A_TIME
            mine = [calls[port]] if ports is None else [calls[number] for number in ports[start:stop].tolist()]
            rows = map(slots.__getitem__, batch.codes[start:stop].tolist())
            self._run(mine, rows, batch.batch.slice(start, stop), slots, batch.keys)
            self.outputs.emit_sides(self.ctx.take_side())

    def _run(self, calls: list[Method], rows: Iterator[Slot], batch: Batch, slots: list[Slot], keys: list[bytes]) -> None:
        """The hot loop. With ticks time moves on from record to record: what timers emit is put among what records do. `calls`:
        what is called for each record, or for all of them."""
        keyed, sole, ctx, times = self.keyed, self.keyed.sole, self.ctx, self.keyed.times
        timers, waiting, committed = keyed.event_timers, keyed.event_timers.waiting, keyed.event_timers.next_committed
        out: list[Any] = []
        extend = out.extend
        usual: type | None = None
        ends: list[int] = []
        fired = _Fired()
        now, expires, several, tolerant = self.watermark, self._expires, len(calls) > 1, self.errors != "fail"
        timed = tolerant or batch.timestamps is not None or batch.ticks is not None
        moments = repeat(NO_TIMESTAMP) if batch.timestamps is None else batch.timestamps.tolist()
        ticks = repeat(now) if batch.ticks is None else batch.ticks.tolist()
        todo = zip(rows, batch.values(), moments, ticks, strict=False)
        process, record, time, kept, mark = calls[0], None, NO_TIMESTAMP, 0, ctx.side_mark()
        ctx.timestamp_ms, ctx._tick, times.record_time = NO_TIMESTAMP, None, None
        while True:
            try:
                for slot, record, time, tick in todo:
                    if timed:
                        if tick is not now and tick > now:
                            if tick >= committed or (waiting and waiting[0][0] <= tick):
                                times.watermark = now
                                self._fire_between(timers.due(tick), now, len(ends), out, fired)
                                if keyed.slots.get(slot.encoded) is not slot:  # what was known has been moved out of memory
                                    slots[:] = keyed.enter(keys)
                                    slot = keyed.slots[slot.encoded]
                                ctx._tick, committed = None, timers.next_committed
                            now = ctx.current_watermark = tick
                            if expires:
                                times.watermark = tick
                        if tolerant:
                            kept, mark = len(out), ctx.side_mark()
                        if expires:
                            times.record_time = None if time == NO_TIMESTAMP else time
                        if several:
                            process = calls[len(ends)]
                        ctx.timestamp_ms = time
                    keyed.slot = slot
                    ctx.key = slot.key
                    if sole is not None:
                        sole.slot = slot
                        sole.value = slot.cells[0]
                    result = process(record, ctx)
                    if result is not None:
                        if type(result) is not usual:
                            result = as_records(result, self.step, self.function, self._name_of(process))
                            usual = type(result)
                        extend(result)
                    if timed:
                        ends.append(len(out))
                break
            except Exception as error:
                if isinstance(error, PenstockError) and fired.failed:
                    raise
                if not tolerant:
                    raise self._error(error, record) from error
                del out[kept:]
                ends.append(len(out))
                ctx.side_back_to(mark)
                self.set_aside(error, self.function, record, time)
        if batch.ticks is not None:
            self.watermark = times.watermark = now
            if keyed.ttl_timers[0].has_due(now):
                keyed.purge_expired()
        self.outputs.emit(fired.among(out, ends, batch) if timed else Records(out))

    def _name_of(self, process: Method) -> str:
        return self._methods[self._calls.index(process)]

    def _fire_between(self, due: Iterator[Timer], now: Milliseconds, row: int, out: list[Any], fired: _Fired) -> None:
        """Fire timers before a row."""
        fired.failed = True
        self._fire_all(due, "event", now, out, fired.times, fired.ticks, flush=False)
        fired.failed = False
        new = len(fired.times) - len(fired.rows)
        fired.rows += [row] * new
        fired.ends += range(len(out) - new + 1, len(out) + 1)

    def _error(self, error: Exception, record: Any, doing: str = "") -> Exception:
        return self.user_error(error, self.function, record, doing=f"{doing}key {self.keyed.slot.key!r:.200}")

    def look_ahead(self, limit: Milliseconds) -> None:
        self.keyed.event_timers.ahead = limit

    def advance(self, watermark: Milliseconds) -> None:
        before, self.watermark = self.watermark, watermark
        self.keyed.times.ended = watermark == MAX_WATERMARK
        if self.keyed.event_timers.has_due(watermark):
            self._fire(self.keyed.event_timers, watermark, "event", before)
        self.keyed.times.watermark = watermark
        self.ctx.current_watermark = watermark
        if self.keyed.ttl_timers[0].has_due(watermark):
            self.keyed.purge_expired()

    def on_processing_time(self, now: Milliseconds) -> None:
        self.keyed.times.processing_time = now
        self.ctx.current_processing_time = now
        if self.keyed.processing_timers.has_due(now):
            self._fire(self.keyed.processing_timers, now, "processing", self.watermark)
        if self.keyed.ttl_timers[1].has_due(now):
            self.keyed.purge_expired()

    def on_end(self) -> None:
        """The end of time: each pending processing-time timer fires once, and event-time timers that were set after the last
        watermark fire too."""
        self.keyed.times.ended = True
        now = self.watermark
        self._fire(self.keyed.event_timers, MAX_WATERMARK, "event", now)
        self._fire_and_emit(self.keyed.processing_timers.pending(), "processing", now)
        self._fire(self.keyed.event_timers, MAX_WATERMARK, "event", now)

    def _fire(self, queue: TimerQueue, until: Milliseconds, domain: str, now: Milliseconds) -> None:
        self._fire_and_emit(queue.due(until), domain, now)

    def _fire_and_emit(self, timers: Iterator[Timer], domain: str, now: Milliseconds) -> None:
        out: list[Any] = []
        times: list[Milliseconds] = []
        ticks: list[Milliseconds] = []
        self._fire_all(timers, domain, now, out, times, ticks, flush=True)
        self._emit_fired(out, times, ticks, domain)

    def _fire_all(
        self,
        timers: Iterator[Timer],
        domain: str,
        now: Milliseconds,
        out: list[Any],
        times: list[Milliseconds],
        ticks: list[Milliseconds],
        *,
        flush: bool,
    ) -> None:
        """Call the function for each timer. What it emits has the tick before the timer's time, but none before `now`."""
        ctx, keyed = self.ctx, self.keyed
        on_timer = self._on_timer
        ctx.time_domain = domain
        ctx._tick = now
        for time, encoded in timers:
            if flush and len(out) >= EMIT_ABOVE:
                self._emit_fired(out, times, ticks, domain)
                for held in (out, times, ticks):
                    held.clear()
            ctx.key = keyed.enter_one(encoded).key
            if domain == "event":
                ctx.timestamp_ms = time
                if time > now:
                    now = ctx._tick = time - 1
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
            ticks.extend([now] * (len(out) - start))

    def _emit_fired(self, out: list[Any], times: list[Milliseconds], ticks: list[Milliseconds], domain: str) -> None:
        self.outputs.emit_sides(self.ctx.take_side())
        stamps = np.asarray(times, dtype=np.int64) if domain == "event" else None
        self.outputs.emit(Records(list(out), stamps, np.asarray(ticks, dtype=np.int64)))


class _Fired:
    """What timers emitted between the rows of a batch: before which row, and where it ends among all that was emitted."""

    __slots__ = ("ends", "failed", "rows", "ticks", "times")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.ends: list[int] = []
        self.times: list[Milliseconds] = []
        self.ticks: list[Milliseconds] = []
        self.failed = False
        """A timer is being fired: an error is of its function."""

    def among(self, out: list[Any], ends: list[int], batch: Batch) -> Records:
        """All that was emitted, with its timestamps and ticks."""
        times, ticks = batch.timestamps, batch.ticks
        if not self.rows or ticks is None:
            return Records(out, *repeated((times, ticks, None), ends))
        ticks = np.insert(ticks, self.rows, self.ticks)
        if times is None:
            times = np.full(len(ends), NO_TIMESTAMP, dtype=np.int64)
        times = np.insert(times, self.rows, self.times)
        return Records(out, *repeated((times, ticks, None), np.insert(np.asarray(ends, dtype=np.int64), self.rows, self.ends)))
