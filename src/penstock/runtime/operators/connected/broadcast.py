"""Steps with a broadcast input: its records reach every partition, and change the step's broadcast state alike in all of them.

Laws:
- Broadcast state is changed by broadcast records only; everything else a function does just reads it.
- A broadcast record with a tick sees the tick as the watermark, as a keyed one does: timers that are due by then have fired.
- While there is no key, state of a key cannot be reached, except by going through all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, NoReturn

import numpy as np

from penstock.contexts import KeyedBroadcastContext, ProcessContext
from penstock.errors import StateError
from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import Scope, Takes
from penstock.records import NO_TIMESTAMP, Batch, Records
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.connected.co_stateless import CoProcess, CoProcessOperator
from penstock.runtime.operators.keyed import KeyedProcess, KeyedProcessOperator
from penstock.runtime.operators.observer import Invocation, Observer
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.operators.returned import as_records
from penstock.runtime.operators.scopes import bind_broadcast_states
from penstock.runtime.services import Services
from penstock.state.overlay.broadcast import BroadcastView
from penstock.state.overlay.keyed import Slot
from penstock.state.overlay.visiting import keys_with

METHODS = ("process", "process_broadcast")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedBroadcastProcess(KeyedProcess):
    """A `KeyedBroadcastProcessFunction` on a keyed stream and a broadcast one."""

    label: str = "broadcast process"
    made_for: ClassVar[str] = "KeyedBroadcastProcessFunction"
    methods: ClassVar[tuple[str, ...]] = METHODS
    scopes: ClassVar[tuple[Scope, ...]] = ("keyed", "broadcast", "operator")

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=True, key_type=self.key_type), Takes(broadcast=True)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return KeyedBroadcastOperator(step, services, inputs, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastProcess(CoProcess):
    """A `BroadcastProcessFunction` on a stream that is not keyed and a broadcast one."""

    made_for: ClassVar[str] = "BroadcastProcessFunction"
    methods: ClassVar[tuple[str, ...]] = METHODS
    scopes: ClassVar[tuple[Scope, ...]] = ("broadcast", "operator")

    @property
    def kind(self) -> str:
        return "broadcast process"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=False), Takes(broadcast=True)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return BroadcastOperator(step, services, self)


@contextmanager
def opened(views: Iterable[BroadcastView]) -> Iterator[None]:
    """Broadcast state may be changed meanwhile."""
    views = list(views)
    for view in views:
        view.open = True
    try:
        yield
    finally:
        for view in views:
            view.open = False


class BroadcastOperator(CoProcessOperator):
    """Not keyed: two methods of one function, and the state that one of them may change."""

    def __init__(self, step: StepId, services: Services, definition: BroadcastProcess) -> None:
        super().__init__(step, services, definition)
        self._views = bind_broadcast_states(services, step, self.function, definition.body, self.watermark)

    def on_input(self, port: int, batch: Payload) -> None:
        with opened(self._views.values() if port == 1 else ()):
            super().on_input(port, batch)


class _NoCells(list[Any]):
    """Of the slot that is current while there is no key."""

    def _refuse(self, *arguments: Any) -> NoReturn:
        raise StateError(
            "a broadcast record has no key: state that is kept by key cannot be used here",
            hint="ctx.apply_to_keyed_state(self.seen, function) goes through the keys that have something in it",
        )

    __getitem__ = __setitem__ = _refuse


NO_KEY = Slot(None, b"", 0, _NoCells())


class KeyedBroadcastOperator(KeyedProcessOperator):
    always_keyed = False

    def __init__(self, step: StepId, services: Services, inputs: int, definition: KeyedBroadcastProcess) -> None:
        super().__init__(step, services, inputs, definition)
        self._views = bind_broadcast_states(services, step, self.function, definition.body, self.watermark)
        self._groups = services.groups
        self._control = KeyedBroadcastContext[Any](self._visit)
        self._control.current_processing_time = services.processing_time
        self._process_broadcast: Callable[[Any, Any], Any] = getattr(self.function, METHODS[1])
        if self.observer is not None:
            self._process_broadcast = self._seen_by(self.observer, self._process_broadcast)

    def on_input(self, port: int, batch: Any) -> None:
        if port == 0:
            super().on_input(port, batch)
        else:
            with opened(self._views.values()):
                self._take_broadcast(unkeyed(batch))

    def on_merged(self, batches: dict[int, Any], ports: Ports) -> None:
        Operator.on_merged(self, batches, ports)  # run by run: they are of different kinds

    def _take_broadcast(self, batch: Batch) -> None:
        self.records_in += len(batch)
        ctx, keyed, times = self._control, self.keyed, self.keyed.times
        now, tolerant = self.watermark, self.errors != "fail"
        out: list[Any] = []
        stamps: list[Milliseconds] = []
        ticks: list[Milliseconds] = []
        moments = repeat(NO_TIMESTAMP) if batch.timestamps is None else batch.timestamps.tolist()
        known = repeat(now) if batch.ticks is None else batch.ticks.tolist()
        for record, time, tick in zip(batch.values(), moments, known, strict=False):
            if tick > now:
                if keyed.event_timers.has_due(tick):
                    times.watermark = now
                    with self._closed():
                        self._fire_all(keyed.event_timers.due(tick), "event", now, out, stamps, ticks, flush=False)
                now = times.watermark = self.ctx.current_watermark = tick
            ctx.timestamp_ms, ctx.current_watermark, ctx._tick = time, now, None
            times.record_time = None if time == NO_TIMESTAMP else time
            keyed.slot = NO_KEY
            kept, mark = len(out), ctx.side_mark()
            try:
                result = self._process_broadcast(record, ctx)
                if result is not None:
                    out.extend(as_records(result, self.step, self.function, METHODS[1]))
            except Exception as error:
                if not tolerant:
                    raise self.user_error(error, self.function, record, doing="a broadcast record") from error
                del out[kept:]
                ctx.side_back_to(mark)
                self.set_aside(error, self.function, record, time)
            stamps += [time] * (len(out) - kept)
            ticks += [tick] * (len(out) - kept)
        self.watermark = now
        if keyed.ttl_timers[0].has_due(now):
            keyed.purge_expired()
        self.outputs.emit_sides(self.ctx.take_side())
        self.outputs.emit_sides(ctx.take_side())
        timed = batch.timestamps is not None or any(stamp != NO_TIMESTAMP for stamp in stamps)
        self.outputs.emit(
            Records(
                out,
                np.asarray(stamps, dtype=np.int64) if timed else None,
                None if batch.ticks is None else np.asarray(ticks, dtype=np.int64),
            )
        )

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Timers that fire between broadcast records only read."""
        for view in self._views.values():
            view.open = False
        yield
        for view in self._views.values():
            view.open = True

    def _visit(self, state: Any, function: Callable[[Any, Any], None]) -> None:
        name = next((name for name, handle in self._handles.items() if handle is state), None)
        if name is None:
            raise StateError(
                f"step {self.step!r}: apply_to_keyed_state takes a keyed state of the function, not {state!r:.100}",
                hint="give it a state as it is declared: ctx.apply_to_keyed_state(self.seen, function)",
            )
        try:
            handle, number = self._handles[name], self.services.state_id(self.step, name)
            for slot in keys_with(self.keyed, handle, number, self._groups):
                function(slot.key, state)
        finally:
            self.keyed.slot = NO_KEY

    def _seen_by(self, observer: Observer, process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        handles: Mapping[str, Any] = {name: view.handle for name, view in self._views.items()}
        kept = self.services.copies.get(self.step)

        def invoked(value: Any, ctx: ProcessContext) -> Any:
            slot = None if kept is None else kept.slot
            one = Invocation("record", value, ctx.timestamp_ms, ctx.current_watermark, slot=slot, handles=handles)

            def proceed() -> list[Any]:
                mark = ctx.side_mark()
                result = process(value, ctx)
                records = [] if result is None else list(as_records(result, self.step, self.function, METHODS[1]))
                one.emits(((record, ctx.timestamp_ms) for record in records), ctx, mark)
                return records

            return observer.on_call(one, proceed)

        return invoked
