"""Windows in a worker, record by record.

Laws:
- A window's *cleanup time* is its last moment plus the allowed lateness. A window whose cleanup time the watermark has reached
  gets no more records; a record that no window takes is late.
- Timers that are due fire in order of time, their results go out, and then the watermark is passed on.
- Nothing remains of a window after its cleanup time: contents, trigger state, state of its own, timers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from penstock.contexts import Timers
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.records import NO_TIMESTAMP, Records
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.keyed import EMIT_ABOVE
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.returned import as_records
from penstock.runtime.services import Services
from penstock.state.overlay.handles import bind_states
from penstock.state.overlay.keyed import KeyedState, Slot
from penstock.state.overlay.timers import Timer
from penstock.state.overlay.writes import StateLabel
from penstock.windows.assigners import TumblingWindows
from penstock.windows.functions import WindowContext, WindowFunction
from penstock.windows.operators.contents import Accumulated, Buffered
from penstock.windows.operators.merging import InFlight, Merge
from penstock.windows.operators.trigger_logic import PREFIX, TriggerLogic
from penstock.windows.step import CONTENTS, KEY_TIMERS, SESSIONS, STAGGER, WindowStep, no_timestamp
from penstock.windows.triggers import CONTINUE, FIRE, FIRE_AND_PURGE, PURGE, TriggerResult
from penstock.windows.window import WINDOW_SIZE, TimeWindow, decode_window, encode_window


class WindowOperator(Operator):
    """Any assigner, any trigger, any evictor."""

    def __init__(self, step: StepId, services: Services, definition: WindowStep) -> None:
        super().__init__(step, services)
        self.definition = definition
        self.spec = definition.spec
        self.errors = definition.errors
        self.event_time = self.spec.assigner.event_time
        self.body = services.opened(step, definition.body)
        self.counters = services.contexts[step]
        self.windows: KeyedState = services.keyed_state(step, definition.key_type, self.watermark, namespace=WINDOW_SIZE)
        self.keys: KeyedState | None = None
        key_states = definition.key_states()
        if key_states:
            self.keys = services.keyed_state(step, definition.key_type, self.watermark, timers=KEY_TIMERS)
            self.keys.times = self.windows.times
        ids, labels = partial(services.state_id, step), partial(_label, step, definition)
        self.handles: dict[str, Any] = {**bind_states(self.windows, definition.window_states(), ids, labels, sole=False)}
        if self.keys is not None:
            self.handles.update(bind_states(self.keys, key_states, ids, labels, sole=False))
        for name in definition.function_states():
            object.__setattr__(self.body.function, name, self.handles[name])
        self.contents: Accumulated | Buffered = (
            Accumulated(self.windows, self.handles[CONTENTS], self.body.incremental)
            if definition.incremental
            else Buffered(self.windows, self.handles[CONTENTS], self.body.incremental)
        )
        self.ctx: WindowContext[Any] = WindowContext(self.windows)
        self.ctx.current_watermark = self.watermark
        self.ctx.current_processing_time = services.processing_time
        self.trigger = TriggerLogic(self.spec.trigger, self.windows, self.handles, Timers(self.windows, self.ctx))
        self._process = None if self.body.function is None else method_of(self.body.function, "process")
        self._calling: Any = None
        self._out: list[Any] = []
        self._times: list[Milliseconds] = []
        self._ticks: list[Milliseconds] = []
        self._tick = self.watermark
        """Of what is emitted now."""

    # --- records -----------------------------------------------------------------------------------------------------------

    def on_batch(self, batch: Keyed) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        stamps = batch.batch.timestamps
        times = [NO_TIMESTAMP] * len(batch) if stamps is None else stamps.tolist()
        ticks = repeat(self.watermark, len(batch)) if batch.batch.ticks is None else batch.batch.ticks.tolist()
        rows = zip(map(batch.keys.__getitem__, batch.codes.tolist()), batch.batch.values(), times, ticks, strict=True)
        late: list[tuple[Any, Milliseconds, Milliseconds]] = []
        self._tick = self.ctx._tick = self.watermark
        record, time = None, NO_TIMESTAMP
        tolerant, mark = self.errors != "fail", (0, self.ctx.side_mark())
        while True:
            try:
                for key, record, time, tick in rows:
                    if tick > self.watermark:
                        self._move_on(tick)
                    if tolerant:
                        mark = (len(self._out), self.ctx.side_mark())
                    if not self._on_record(key, record, time):
                        late.append((record, time, self._tick))
                break
            except Exception as error:
                if not tolerant:
                    raise self._error(error, record) from error
                self._back_to(mark)
                self.set_aside(error, self._calling, record, time)
        self._emit_late(late)
        self._flush()

    def _move_on(self, tick: Milliseconds) -> None:
        """A record with a later tick comes: what is due before it fires."""
        self.advance(tick)
        self._tick = self.ctx._tick = tick

    def _on_record(self, key: bytes, record: Any, time: Milliseconds) -> bool:
        """Put a record into its windows. False: it is late."""
        spec, windows = self.spec, self.windows
        timestamp = None if time == NO_TIMESTAMP else time
        if timestamp is None and self.event_time:
            raise no_timestamp(self.step, record)
        windows.times.record_time = timestamp
        self._calling = spec.assigner
        taken = False
        watermark = self.watermark
        for window in self._assign(key, record, timestamp):
            if spec.assigner.merging:
                merge = self._merge(key, window)
                if merge is None:
                    continue
                window, home = merge.window, self._slot(key, merge.state_window)
                slot = self._slot(key, window)
            elif self.event_time and spec.cleanup_time(window) <= watermark:
                continue
            else:
                slot = home = self._slot(key, window)
            taken = True
            self._calling = self.body.incremental.function if self.body.incremental is not None else None
            self.contents.add(home, record, time)
            windows.slot = slot
            self._calling = spec.trigger
            result = self.trigger.on_record(record, timestamp, window)
            if result is not CONTINUE:
                self._act(result, slot, home, window, stays=True)
            self._register_cleanup(window, slot)
        if not taken and not (self.event_time and time + spec.allowed_lateness_ms <= watermark):
            self.counters.count("unassigned")
            return True
        return taken

    def _assign(self, key: bytes, record: Any, timestamp: Milliseconds | None) -> Iterable[TimeWindow]:
        assigner, now = self.spec.assigner, self.ctx.current_processing_time
        stagger = self.handles.get(STAGGER)
        if stagger is None:
            return assigner.assign(record, timestamp, now)
        assert isinstance(assigner, TumblingWindows)
        assert self.keys is not None
        self.keys.enter_one(key)
        if stagger.value is None:
            stagger.update(assigner.staggered(key, now))
        return assigner.assign_staggered(timestamp, now, stagger.value)

    def _slot(self, key: bytes, window: TimeWindow) -> Slot:
        return self.windows.enter_one(key + encode_window(window))

    def _register_cleanup(self, window: TimeWindow, slot: Slot) -> None:
        time = self.spec.cleanup_time(window)
        if time < MAX_WATERMARK:
            (self.windows.event_timers if self.event_time else self.windows.processing_timers).register(time, slot)

    def _emit_late(self, late: list[tuple[Any, Milliseconds, Milliseconds]]) -> None:
        """Late records, with their timestamps and ticks."""
        if not late:
            return
        self.counters.count("late", len(late))
        if self.spec.late is None:
            self.counters.count("late_dropped", len(late))
            return
        values, times, ticks = zip(*late, strict=True)
        late_records = Records(list(values), np.asarray(times, dtype=np.int64), np.asarray(ticks, dtype=np.int64))
        self.outputs.emit_side(self.spec.late, late_records)

    # --- windows that merge ------------------------------------------------------------------------------------------------

    def _merge(self, key: bytes, window: TimeWindow) -> Merge | None:
        """Make a record's window one of the key's in-flight windows; None if it is late even so."""
        assert self.keys is not None
        self.keys.enter_one(key)
        sessions = self.handles[SESSIONS]
        in_flight = InFlight(sessions.value)
        merge = in_flight.add(window)
        if self.event_time and self.spec.cleanup_time(merge.window) <= self.watermark:
            return None
        if merge.replaced or merge.state_window == window:
            sessions.update(in_flight.stored())
        if merge.replaced:
            self._calling = self.spec.trigger
            replaced = [(self._slot(key, other), other) for other in merge.replaced]
            self.trigger.merge(self._slot(key, merge.window), merge.window, replaced)
            for slot, other in replaced:
                self._delete_cleanup(other, slot)
            self.contents.move([self._slot(key, other) for other in merge.moved], self._slot(key, merge.state_window))
        return merge

    def _delete_cleanup(self, window: TimeWindow, slot: Slot) -> None:
        time = self.spec.cleanup_time(window)
        if time < MAX_WATERMARK:
            (self.windows.event_timers if self.event_time else self.windows.processing_timers).delete(time, slot)

    def _home(self, slot: Slot, window: TimeWindow) -> Slot | None:
        """Where the contents of a window are; None if the window is part of another now."""
        if not self.spec.assigner.merging:
            return slot
        assert self.keys is not None
        key = slot.encoded[:-WINDOW_SIZE]
        self.keys.enter_one(key)
        home = InFlight(self.handles[SESSIONS].value).windows.get(window)
        return None if home is None else self._slot(key, home)

    # --- firing ------------------------------------------------------------------------------------------------------------

    def _act(self, result: TriggerResult, slot: Slot, home: Slot, window: TimeWindow, *, stays: bool) -> None:
        if result is FIRE or result is FIRE_AND_PURGE:
            self._fire(slot, home, window, stays=stays)
        if result is PURGE or result is FIRE_AND_PURGE:
            self.contents.clear(home)

    def _fire(self, slot: Slot, home: Slot, window: TimeWindow, *, stays: bool) -> None:
        contents, evictor, ctx = self.contents, self.spec.evictor, self.ctx
        held = contents.held(home)
        if held is None:
            return
        ctx.window = window
        ctx.timestamp_ms = window.max_timestamp
        rest = held
        if evictor is not None:
            self._calling = evictor
            rest = evictor.evict_before(held, window)
        self.windows.slot = slot
        self._calling = self.body.incremental.function if self.body.incremental is not None else None
        values = contents.values(rest, ctx, stays=stays)
        if values:
            self._emit(values, slot, window)
        if evictor is not None:
            self._calling = evictor
            rest = evictor.evict_after(rest, window)
            if len(rest) < len(held):
                assert isinstance(contents, Buffered)
                contents.replace(home, rest)

    def _emit(self, values: list[Any], slot: Slot, window: TimeWindow) -> None:
        out = self._out
        start = len(out)
        if self._process is None:
            out += values
        else:
            self._calling = self.body.function
            self._enter_key(slot)
            result = self._process(values, self.ctx)
            if result is not None:
                out.extend(as_records(result, self.step, self.body.function, "process"))
        self._times += [window.max_timestamp] * (len(out) - start)
        self._ticks += [self._tick] * (len(out) - start)

    def _enter_key(self, slot: Slot) -> None:
        if self.keys is not None:
            self.keys.enter_one(slot.encoded[:-WINDOW_SIZE])

    def _close(self, slot: Slot, home: Slot, window: TimeWindow) -> None:
        """The window is over: nothing of it remains."""
        self._calling = self.spec.trigger
        self.windows.slot = slot
        self.trigger.clear(window)
        self._tell_function(slot, window)
        self._clear_slot(slot)
        if home is not slot:
            self._clear_slot(home)
        if self.spec.assigner.merging:
            self._enter_key(slot)
            sessions = self.handles[SESSIONS]
            in_flight = InFlight(sessions.value)
            in_flight.retire(window)
            if in_flight.windows:
                sessions.update(in_flight.stored())
            else:
                sessions.clear()

    def _tell_function(self, slot: Slot, window: TimeWindow) -> None:
        if isinstance(self.body.function, WindowFunction):
            self._calling = self.body.function
            self.windows.slot = slot
            self.ctx.window = window
            self.ctx.timestamp_ms = window.max_timestamp
            self._enter_key(slot)
            self.body.function.clear(self.ctx)

    def _clear_slot(self, slot: Slot) -> None:
        self.windows.slot = slot
        for handle in self.windows.handles:
            handle.clear()

    # --- time --------------------------------------------------------------------------------------------------------------

    def look_ahead(self, limit: Milliseconds) -> None:
        self.windows.event_timers.ahead = limit

    def advance(self, watermark: Milliseconds) -> None:
        self._tick, self.watermark = self.watermark, watermark
        times = self.windows.times
        times.ended = watermark == MAX_WATERMARK
        if self.windows.event_timers.has_due(watermark):
            self._fire_timers(self.windows.event_timers.due(watermark), "event")
        times.watermark = watermark
        self.ctx.current_watermark = watermark
        self._purge_expired()

    def on_processing_time(self, now: Milliseconds) -> None:
        self._tick = self.watermark
        self.windows.times.processing_time = now
        self.ctx.current_processing_time = now
        if self.windows.processing_timers.has_due(now):
            self._fire_timers(self.windows.processing_timers.due(now), "processing")
        self._purge_expired()

    def on_end(self) -> None:
        """The end of time: what waits for the clock fires too."""
        self._tick, self.windows.times.ended = self.watermark, True
        self._fire_timers(self.windows.event_timers.due(MAX_WATERMARK), "event")
        self._fire_timers(self.windows.processing_timers.pending(), "processing")
        self._fire_timers(self.windows.event_timers.due(MAX_WATERMARK), "event")

    def _purge_expired(self) -> None:
        for keyed in (self.windows, self.keys):
            if keyed is not None and (
                keyed.ttl_timers[0].has_due(keyed.times.watermark) or keyed.ttl_timers[1].has_due(keyed.times.processing_time)
            ):
                keyed.purge_expired()

    def _fire_timers(self, timers: Iterable[Timer], domain: str) -> None:
        times, ctx, tolerant = self.windows.times, self.ctx, self.errors != "fail"
        times.record_time = None
        for time, encoded in timers:
            if len(self._out) >= EMIT_ABOVE:
                self._flush()
            slot = self.windows.enter_one(encoded)
            window = decode_window(encoded)
            self._fires_at(time, domain)
            mark = (len(self._out), ctx.side_mark()) if tolerant else (0, {})
            try:
                self._on_timer(time, slot, window, domain)
            except Exception as error:
                about = {"window": tuple(window), "timer": time, "domain": domain}
                if not tolerant:
                    raise self._error(error, about) from error
                self._back_to(mark)
                self.set_aside(error, self._calling, about, window.max_timestamp)
        self._flush()

    def _fires_at(self, time: Milliseconds, domain: str) -> None:
        """A timer is about to fire: what it emits has the tick before its time, but none before the last."""
        times, ctx = self.windows.times, self.ctx
        if domain == "event":
            self._tick = max(self._tick, time - 1)
            if time > times.watermark:
                times.watermark = ctx.current_watermark = time
        ctx._tick = self._tick

    def _on_timer(self, time: Milliseconds, slot: Slot, window: TimeWindow, domain: str) -> None:
        home = self._home(slot, window)
        if home is None:
            return
        cleanup = self.spec.cleanup_time(window)
        over = time == cleanup < MAX_WATERMARK and (domain == "event") == self.event_time
        self.windows.slot = slot
        self._calling = self.spec.trigger
        result = self.trigger.on_timer(time, window, domain)
        if result is not CONTINUE:
            self._act(result, slot, home, window, stays=not over)
        if over:
            self._close(slot, home, window)

    # --- output and errors -------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self.outputs.emit_sides(self.ctx.take_side())
        if self._out:
            out, times, ticks = self._out, self._times, self._ticks
            self._out, self._times, self._ticks = [], [], []
            self.outputs.emit(Records(out, np.asarray(times, dtype=np.int64), np.asarray(ticks, dtype=np.int64)))

    def _back_to(self, mark: tuple[int, dict[str, int]]) -> None:
        del self._out[mark[0] :], self._times[mark[0] :], self._ticks[mark[0] :]
        self.ctx.side_back_to(mark[1])

    def _error(self, error: Exception, record: Any) -> Exception:
        slot = self.windows.slot
        key = f"key {self.windows.key_of(slot)!r:.200}" if slot.encoded else ""
        return self.user_error(error, self._calling, record, doing=key)


def _label(step: StepId, definition: WindowStep, name: str) -> StateLabel:
    """Whose state it is: the window function's own, the trigger's, or what the windows hold."""
    function: Any = definition.function()
    if name in definition.function_states():
        function = definition.body.function
    elif name.startswith(f"{PREFIX}."):
        function = definition.spec.trigger
    return StateLabel(step=step, state=name, function=function, tolerant=definition.errors != "fail")


def window_operator(step: StepId, services: Services, definition: WindowStep) -> Operator:
    """The operator for a window step."""
    from penstock.windows.operators.aligned import AlignedOperator, is_aligned
    from penstock.windows.operators.observed import ObservedAlignedOperator, ObservedWindowOperator

    aligned = is_aligned(definition)
    if services.observe is None:
        return (AlignedOperator if aligned else WindowOperator)(step, services, definition)
    return (ObservedAlignedOperator if aligned else ObservedWindowOperator)(step, services, definition)
