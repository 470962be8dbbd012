"""Steps that are watched while they run.

Law: a watched step does exactly what it would do unwatched. Its batches are not cut differently (a `rebalance` behind it would
deal them out differently), its state is not read through its handles (that would be noted), and its functions see the same
objects. It is the operator's own calls of the user's functions that are watched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import Definition, StateDeclaration, Takes
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns
from penstock.runtime.frames import Keyed, Payload, unkeyed
from penstock.runtime.operators.keyed import KeyedProcessOperator
from penstock.runtime.operators.map_batches import MapBatchesOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.returned import as_records
from penstock.runtime.operators.source import SourceOperator
from penstock.runtime.operators.stateless import FilterOperator, FlatMapOperator, PerRecord, ProcessOperator
from penstock.runtime.services import Services
from penstock.snapshots.replay.result import Emitted, Event
from penstock.snapshots.replay.watching.calls import (
    NotedTimers,
    call_watched,
    original_method,
    replace_method,
    sides_since,
    yielding,
)
from penstock.snapshots.replay.watching.peeking import duplicate, peek
from penstock.snapshots.replay.watching.trace import StepTrace, TappedOutputs, TracedPart
from penstock.snapshots.replay.watching.window_calls import watch_windows, watch_windows_at_a_time
from penstock.state.encoding.keys import key_codec
from penstock.windows.columnar.measuring import measure_of
from penstock.windows.columnar.merge import MergeStep
from penstock.windows.declared import Declared
from penstock.windows.operators.aligned import AlignedOperator
from penstock.windows.operators.operator import WindowOperator
from penstock.windows.step import WindowStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced(Definition):
    """A step of the plan, watched."""

    inner: Definition
    trace: StepTrace

    @property
    def kind(self) -> str:
        return self.inner.kind

    def function(self) -> Any:
        return self.inner.function()

    def takes(self, given: int) -> tuple[Takes, ...]:
        return self.inner.takes(given)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return self.inner.states(step)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        trace, there = self.trace, len(services.keyed)
        operator = self._built(step, services, inputs)
        parts = services.keyed[there:]
        services.keyed[there:] = [TracedPart(part, trace, services) for part in parts]
        operator.outputs = TappedOutputs(trace, _reading(operator, services, trace))
        trace.entered(services)
        watch(operator, services, self.inner, trace, inputs)
        if trace.tape is not None:
            trace.tape.begin(operator, services)
        return operator

    def _built(self, step: StepId, services: Services, inputs: int) -> Operator:
        if isinstance(self.inner, WindowStep) and (self.trace.debugger is not None or self.trace.tape is not None):
            # It does the same as the one that takes a batch at a time, and can be watched record by record.
            return WindowOperator(step, services, self.inner)
        return self.inner.build(step, services, inputs)


def watch(operator: Operator, services: Services, definition: Definition, trace: StepTrace, inputs: int) -> None:
    """Note what an operator takes, does and emits."""
    trace.fires = isinstance(operator, KeyedProcessOperator | PerRecord | WindowOperator)
    trace.attributed = trace.fires and not isinstance(operator, AlignedOperator)
    if isinstance(operator, SourceOperator):
        return
    if isinstance(definition, MergeStep):
        trace.key_of_output = _key_of_row(definition)
    if isinstance(operator, KeyedProcessOperator):
        _watch_keyed(operator, services, definition, trace)
    elif isinstance(operator, PerRecord):
        _watch_stateless(operator, services, trace)
    elif isinstance(operator, AlignedOperator):
        watch_windows_at_a_time(operator, services, trace)
    elif isinstance(operator, WindowOperator):
        watch_windows(operator, services, trace)
    elif isinstance(operator, MapBatchesOperator) and trace.debugger is not None:
        _watch_batches(operator, trace)
    _watch_input(operator, services, definition, trace, inputs)


# --- what comes in -------------------------------------------------------------------------------------------------------------


def _watch_input(operator: Any, services: Services, definition: Definition, trace: StepTrace, inputs: int) -> None:
    """Batches, watermarks and the clock; the records of a batch, where the calls are not watched."""
    codec = key_codec(key_type_of(definition))
    whole = not trace.attributed

    def take(batch: Any, then: Callable[[], None], port: int = 0) -> None:
        trace.entered(services)
        if trace.tape is not None:
            trace.tape.batch(batch)
        if isinstance(batch, Keyed):
            trace.keys.update(batch.keys)
        if whole:
            keyed = isinstance(batch, Keyed)
            rows = [batch.keys[code] for code in batch.codes.tolist()] if keyed else None
            inner = batch.batch if keyed else batch
            named = _named(inner, definition) if isinstance(definition, MergeStep) and port == 0 else inner
            trace.records(named, operator.watermark, rows, codec.decode)
            trace.during("batch", operator.watermark, then)
        else:
            then()

    if inputs > 1:
        on_input = operator.on_input
        operator.on_input = lambda port, batch: take(batch, lambda: on_input(port, batch), port)
    else:
        on_batch = operator.on_batch
        operator.on_batch = lambda batch: take(batch, lambda: on_batch(batch))
    advance, clock, end = operator.on_watermark, operator.on_processing_time, operator.on_end

    def on_watermark(watermark: Milliseconds | None) -> None:
        trace.entered(services)
        if trace.tape is not None:
            trace.tape.watermark(watermark)
        trace.during("watermark", operator.watermark if watermark is None else watermark, lambda: advance(watermark))

    def on_processing_time(now: Milliseconds) -> None:
        trace.entered(services)
        if trace.tape is not None:
            trace.tape.clock(now)
        trace.during("clock", operator.watermark, lambda: clock(now))

    def on_end() -> None:
        trace.entered(services)
        if trace.tape is not None:
            trace.tape.end()
        trace.during("end", operator.watermark, end)

    operator.on_watermark, operator.on_processing_time, operator.on_end = on_watermark, on_processing_time, on_end


def _named(rows: Columns, definition: MergeStep) -> Columns:
    """What a partial aggregation sends, with names: times, and the parts of each aggregate."""
    parts = [(one.describe().rpartition(" = ")[2], measure_of(one).sent) for one in definition.shared]
    names = [name if width == 1 else f"{name} {part}" for name, width in parts for part in range(1, width + 1)]
    times = ("start", "end")[-(len(rows.data.columns) - len(names)) :]
    return Columns(pa.RecordBatch.from_arrays(rows.data.columns, names=[*times, *names]), DICT_ROW)


def _key_of_row(definition: MergeStep) -> Callable[[Any], bytes]:
    """Results of windows over columns are rows that begin with the parts of their key."""
    declared, encode = definition.window.body.incremental, key_codec(definition.window.key_type).encode
    assert isinstance(declared, Declared)
    names = declared.key_names
    return lambda row: encode(row[names[0]] if len(names) == 1 else tuple(row[name] for name in names) or None)


def key_type_of(definition: Definition) -> Any:
    window = getattr(definition, "window", None)
    return getattr(window if isinstance(window, WindowStep) else definition, "key_type", None)


def _reading(operator: Operator, services: Services, trace: StepTrace) -> Callable[[Batch], None] | None:
    """What a source reads is what it emits, with timestamps."""

    def read(batch: Batch) -> None:
        trace.entered(services)
        trace.records(batch, operator.watermark, None, repr)

    return read if isinstance(operator, SourceOperator) else None


# --- calls of functions --------------------------------------------------------------------------------------------------------


def _watch_batches(operator: MapBatchesOperator, trace: StepTrace) -> None:
    call = operator._call

    def called(batch: Any) -> Any:
        return call_watched(trace, trace.stops(None), call, trace.event("batch", operator.watermark), batch)

    operator._call = called


def _watch_keyed(operator: KeyedProcessOperator, services: Services, definition: Definition, trace: StepTrace) -> None:
    keyed, ctx, function = operator.keyed, operator.ctx, operator.function
    names = [declared.name for declared in definition.states(operator.step) if declared.state is not None]
    handles = {name: getattr(function, name) for name in names}
    ctx.timers = noted = NotedTimers(keyed, ctx)

    def watched(call: Callable[..., Any], what: Any, timer: bool) -> Any:
        trace.entered(services)
        trace.keys.add(keyed.slot.encoded)
        if timer:
            trace.fired(keyed.slot.encoded)
        kept, stop = trace.keeps(keyed.slot.encoded), trace.stops(keyed.slot.encoded)
        event: Event | None = None
        if kept or stop:
            event = _keyed_event(trace, operator, what, timer)
            event.before = peek(handles, keyed.slot)
        mark = ctx.side_mark()
        noted.changes = []

        def failed(error: Exception) -> None:
            trace.failed(event or _keyed_event(trace, operator, what, timer), error, keyed.slot.encoded)

        try:
            result = call_watched(trace, stop, call, event, what, ctx)
            if event is None or not kept:
                return yielding(result, failed)
            outputs = None if result is None else list(as_records(result, operator.step, function, "process"))
        except Exception as error:
            failed(error)
            raise
        time = event.timestamp_ms if not timer or event.domain == "event" else None
        event.outputs = [Emitted(duplicate(value), time) for value in outputs or ()]
        event.outputs += sides_since(ctx, mark)
        event.timers = noted.changes
        event.after = peek(handles, keyed.slot)
        trace.keep(event)
        return outputs

    process, on_timer = original_method(function, "process"), original_method(function, "on_timer")
    replace_method(function, "process", process, lambda record, _: watched(process, record, False))
    if on_timer is not None:
        replace_method(function, "on_timer", on_timer, lambda time, _: watched(on_timer, time, True))


def _keyed_event(trace: StepTrace, operator: KeyedProcessOperator, what: Any, timer: bool) -> Event:
    ctx = operator.ctx
    if timer:
        return trace.event("timer", ctx.current_watermark, key=ctx.key, value=what, time=what, domain=ctx.time_domain)
    return trace.event("record", ctx.current_watermark, key=ctx.key, value=what, time=ctx.timestamp_ms)


def _watch_stateless(operator: PerRecord, services: Services, trace: StepTrace) -> None:
    call = operator.call
    on_batch = operator.on_batch
    several = isinstance(operator, FlatMapOperator | ProcessOperator)
    times: list[int] = []
    row = 0

    def take(batch: Payload) -> None:
        nonlocal times, row
        batch = unkeyed(batch)
        times, row = [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist(), 0
        on_batch(batch)

    def called(record: Any, *context: Any) -> Any:
        nonlocal row
        trace.entered(services)
        time, row = times[row], row + 1
        kept, stop = trace.keeps(None), trace.stops(None)
        event = trace.event("record", operator.watermark, value=record, time=time) if kept or stop else None
        mark = context[0].side_mark() if context else {}

        def failed(error: Exception) -> None:
            trace.failed(event or trace.event("record", operator.watermark, value=record, time=time), error)

        try:
            result = call_watched(trace, stop, call, event, record, *context)
            if event is None or not kept:
                return yielding(result, failed) if several else result
            if several:
                result = None if result is None else list(as_records(result, operator.step, operator.function, operator.method))
        except Exception as error:
            failed(error)
            raise
        made = [record] if result else []
        if several:
            made = result or []
        elif not isinstance(operator, FilterOperator):
            made = [result]
        event.outputs = [Emitted(duplicate(value), event.timestamp_ms) for value in made]
        event.outputs += sides_since(context[0], mark) if context else []
        trace.keep(event)
        return result

    operator.call = called
    operator.on_batch = take  # type: ignore[method-assign]
