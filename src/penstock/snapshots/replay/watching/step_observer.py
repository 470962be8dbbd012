"""The observer of a step that runs again: what happens becomes events, what changes of its state is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.observer import Invocation, Observer, StateChange, TimeKind
from penstock.runtime.operators.operator import DEAD_LETTERS, Operator, Ports
from penstock.runtime.operators.source import SourceOperator
from penstock.snapshots.replay.result import NO_KEY, Emitted, Event, EventKind, TimerChange
from penstock.snapshots.replay.watching.peeking import duplicate, outputs_of, peek
from penstock.snapshots.replay.watching.trace import StepTrace
from penstock.state.encoding.keys import key_codec
from penstock.windows.columnar.measuring import measure_of
from penstock.windows.columnar.merge import MergeStep
from penstock.windows.declared import Declared

R = TypeVar("R")


class StepObserver(Observer):
    """Watches a step in one task."""

    def __init__(self, trace: StepTrace, operator: Operator) -> None:
        self._trace = trace
        self._operator = operator
        self._services = operator.services
        self._tape = trace.tape
        self._is_shown = operator.services.order.epoch in trace.shown
        self.one_by_one = trace.debugger is not None
        self._reads = isinstance(operator, SourceOperator)
        """What it reads is what it emits, with timestamps."""
        self._attributed = trace.attributed = "record" in operator.observed
        self._fires = self._attributed or "window" in operator.observed
        """What goes out is noted with what made it; otherwise as it comes."""
        self._decode = trace.codec.decode
        self._merge = trace.definition if isinstance(trace.definition, MergeStep) else None
        self._current: Event | None = None
        self._timers: list[TimerChange] = []
        if self._tape is not None:
            self._tape.begin(operator)

    # --- what comes in, and what goes out of it as a whole --------------------------------------------------------------------

    def on_batch(self, port: int | Ports, batch: Any, proceed: Callable[[], None]) -> None:
        keyed = isinstance(batch, Keyed)
        if self._tape is not None:
            self._tape.batch(batch, port)
        if keyed:
            self._trace.keys.update(batch.keys)
        if not self._attributed:
            inner = batch.batch if keyed else batch
            if self._merge is not None and isinstance(port, int) and port == 0:
                inner = _named(inner, self._merge)
            self._records(inner, [batch.keys[code] for code in batch.codes.tolist()] if keyed else None)
        self._during("batch", self._operator.watermark, proceed)

    def on_time(self, kind: TimeKind, time: Milliseconds | None, proceed: Callable[[], None]) -> None:
        if self._tape is not None and not self._reads:
            self._tape.time(kind, time)
        self._during(kind, self._operator.watermark if kind != "watermark" or time is None else time, proceed)

    def _records(self, batch: Batch, keys: list[bytes] | None) -> None:
        """The records of a batch; `keys` of a keyed one, row by row."""
        values: list[Any] | None = None
        times = [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        for row, time in enumerate(times):
            encoded = None if keys is None else keys[row]
            if self._keeps(encoded):
                values = batch.values() if values is None else values
                key = NO_KEY if encoded is None else self._decode(encoded)
                self._keep(self._event("record", self._operator.watermark, key=key, value=values[row], time=time))

    def _during(self, kind: EventKind, watermark: Milliseconds, proceed: Callable[[], None]) -> None:
        """What is emitted meanwhile is one event."""
        if self._attributed or self._reads:
            proceed()
            return
        trace, self._current = self._trace, (event := self._event(kind, watermark))
        try:
            proceed()
        finally:
            self._current = None
            if event.outputs and self._is_shown:
                if trace.full:
                    trace.result.left_out += 1
                else:
                    trace.calls += 1
                    event.number = trace.calls
                    self._keep(event)

    def on_emit(self, tag: str | None, batch: Batch) -> None:
        trace, dead = self._trace, tag == DEAD_LETTERS
        if self._tape is not None and not self._fires:
            self._tape.emitted(tag, batch)
        if self._reads:
            if tag is None:
                self._records(batch, None)
            return
        into = trace.raised if dead and self._attributed else self._current
        if into is None or (self._fires and tag is None) or not self._is_shown:
            return
        if trace.full and not dead:
            trace.result.left_out += 1
            return
        made = outputs_of(batch, tag)
        if trace.wanted is not None and self._merge is not None and tag is None:
            key_of = _key_of_row(self._merge)
            made = [one for one in made if trace.wanted(key_of(one.value))]
        into.outputs += made

    # --- records, timers and windows one by one -------------------------------------------------------------------------------

    def on_call(self, invocation: Invocation, proceed: Callable[[], R]) -> R:
        if invocation.kind == "window":
            return self._fired(invocation, proceed)
        trace, encoded = self._trace, invocation.encoded
        if invocation.kind == "batch":
            return self._run(proceed, self._stops(None), self._about(invocation))
        if encoded is not None:
            trace.keys.add(encoded)
            if invocation.kind == "timer":
                self._count_timer(encoded)
        kept, stop = self._keeps(encoded), self._stops(encoded)
        event = self._about(invocation) if kept or stop else None
        if event is not None:
            event.before = _state(invocation)
        self._timers = []
        try:
            result = self._run(proceed, stop, event)
        except Exception as error:
            failed = trace.raised = event or self._about(invocation)
            failed.error = f"{type(error).__name__}: {error}"
            if self._is_shown and trace.matches(encoded):
                self._keep(failed)  # whatever the limit says
            raise
        if event is not None and kept:
            event.late, event.window = invocation.late, invocation.window
            event.outputs = _emitted(invocation)
            event.timers = self._timers
            event.after = _state(invocation)
            self._keep(event)
        return result

    def on_timer(self, time: Milliseconds, domain: str, deleted: bool) -> None:
        self._timers.append(TimerChange(time, domain, deleted))

    def _fired(self, invocation: Invocation, proceed: Callable[[], R]) -> R:
        """A window that emits nothing is no event."""
        encoded = invocation.encoded
        assert encoded is not None
        self._count_timer(encoded)
        result = proceed()
        emitted = [one for one in _emitted(invocation) if one.tag is None]
        if emitted and self._keeps(encoded):
            event = self._about(invocation)
            event.outputs = emitted
            self._keep(event)
        return result

    def _count_timer(self, encoded: bytes) -> None:
        self._trace.keys.add(encoded)
        self._trace.result.timers += 1
        if self._tape is not None:
            self._tape.fired(encoded)

    def _run(self, proceed: Callable[[], R], stop: bool, event: Event | None) -> R:
        trace = self._trace
        return trace.debugger.call(trace.result.step, proceed, event) if stop and trace.debugger is not None else proceed()

    # --- events ---------------------------------------------------------------------------------------------------------------

    def _keeps(self, encoded: bytes | None) -> bool:
        """Whether the next event, of this key, is to be kept. Counts it."""
        trace = self._trace
        trace.calls += 1
        if not self._is_shown or not trace.matches(encoded):
            return False
        trace.result.left_out += trace.full
        return not trace.full

    def _stops(self, encoded: bytes | None) -> bool:
        """Whether the debugger is to stop at the event that `_keeps` was asked about."""
        trace = self._trace
        return trace.debugger is not None and trace.debugger.wants(trace.calls) and trace.matches(encoded)

    def _about(self, invocation: Invocation) -> Event:
        """The event that `_keeps` was asked about."""
        event = self._event(
            invocation.kind,
            invocation.watermark,
            key=NO_KEY if invocation.encoded is None else invocation.key,
            value=invocation.value,
            time=invocation.time,
        )
        event.window, event.domain = invocation.window, invocation.domain
        return event

    def _event(
        self, kind: EventKind, watermark: Milliseconds, *, key: Any = NO_KEY, value: Any = None, time: Milliseconds = NO_TIMESTAMP
    ) -> Event:
        return Event(
            number=self._trace.calls,
            epoch=self._services.order.epoch,
            partition=self._services.partition,
            kind=kind,
            watermark_ms=None if watermark == MIN_WATERMARK else watermark,
            key=key,
            value=duplicate(value),
            timestamp_ms=None if time == NO_TIMESTAMP else time,
        )

    def _keep(self, event: Event) -> None:
        self._trace.result.events.append(event)
        if self._tape is not None and self._fires:
            self._tape.event(event)

    # --- state ---------------------------------------------------------------------------------------------------------------

    def on_changes(self, changes: list[StateChange]) -> None:
        trace, result, committed = self._trace, self._trace.result, self._services.committed
        entries = [(key, committed.get(key), after) for key, after in changes]
        if self._tape is not None:
            self._tape.changed(entries)
        real = [entry for entry in entries if entry[1] != entry[2]]
        result.changed += len(real)
        if not self._is_shown:
            return
        if trace.wanted is not None:
            real = [entry for entry in real if self._of_wanted_key(entry[0])]
        room = len(real) if trace.limit is None else max(0, trace.limit - len(result.changes))
        result.changes_left_out += max(0, len(real) - room)
        found = trace.forms.changes(self._services.order.epoch, real[:room], committed.scan)
        form = next((form for form in trace.forms.values() if form.step == result.step), None)
        if trace.wanted is not None and form is not None:
            encode = form.keys.encode
            found = [change for change in found if change.key is NO_KEY or trace.wanted(encode(change.key))]
        result.changes += found

    def _of_wanted_key(self, store_key: bytes) -> bool:
        form = self._trace.forms.of_entry(store_key)
        return form is not None and (form.kind.many_keys or self._trace.matches(form.place(store_key).key))

    def on_close(self) -> None:
        if self._tape is not None:
            self._tape.close(self._services)


def _state(invocation: Invocation) -> dict[str, Any] | None:
    return None if invocation.slot is None else peek(invocation.handles, invocation.slot)


def _emitted(invocation: Invocation) -> list[Emitted]:
    return [Emitted(duplicate(value), None if time == NO_TIMESTAMP else time, tag) for value, time, tag in invocation.emitted]


# --- windows over columns -------------------------------------------------------------------------------------------------------


def _named(rows: Columns, definition: MergeStep) -> Columns:
    """What a partial aggregation sends, with names: times, and the parts of each aggregate."""
    parts = [(one.describe().rpartition(" = ")[2], measure_of(one).sent) for one in definition.shared]
    names = [name if width == 1 else f"{name} {part}" for name, width in parts for part in range(1, width + 1)]
    times = ("start", "end")[-(len(rows.data.columns) - len(names)) :]
    return Columns(pa.RecordBatch.from_arrays(rows.data.columns, names=[*times, *names]), DICT_ROW)


def _key_of_row(definition: MergeStep) -> Callable[[Any], bytes]:
    """Results are rows that begin with the parts of their key."""
    declared, encode = definition.window.body.incremental, key_codec(definition.window.key_type).encode
    assert isinstance(declared, Declared)
    names = declared.key_names
    return lambda row: encode(row[names[0]] if len(names) == 1 else tuple(row[name] for name in names) or None)
