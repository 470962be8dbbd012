"""What is noted of one step while it runs again, and of which keys."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError
from penstock.ids import MIN_WATERMARK, Epoch, Milliseconds
from penstock.records import NO_TIMESTAMP, Batch
from penstock.runtime.operators.operator import DEAD_LETTERS, Outputs
from penstock.runtime.services import Services, StatePart
from penstock.snapshots.replay.entries import Entry, StateForms
from penstock.snapshots.replay.result import NO_KEY, Emitted, Event, EventKind, StepReplay, Window
from penstock.snapshots.replay.watching.peeking import duplicate
from penstock.state.encoding.keys import KeyCodec

if TYPE_CHECKING:
    from penstock.snapshots.replay.recording import Recording
    from penstock.snapshots.replay.watching.debugger import Debugger

KeyFilter = Callable[[bytes], bool]


def key_filter(text: Any, codec: KeyCodec) -> KeyFilter:
    """Whether an encoded key is the one that was asked for: a key, or text that is a Python literal or the key itself."""
    wanted: set[bytes] = set()
    for candidate in _candidates(text, codec.key_type):
        try:
            wanted.add(codec.encode(candidate))
        except (PenstockError, TypeError):
            continue
    return wanted.__contains__


def _candidates(text: Any, key_type: Any) -> Iterator[Any]:
    yield text
    values = [text]
    if isinstance(text, str):
        try:
            values.append(ast.literal_eval(text))
            yield values[-1]
        except (ValueError, SyntaxError):
            pass
    if key_type is not None:
        for value in values:
            try:
                yield msgspec.convert(value, key_type, strict=False)
            except (msgspec.MsgspecError, TypeError):
                continue


class StepTrace:
    """Collects the events of a step. `wanted`: of which keys (None: of all); `limit`: how many."""

    def __init__(
        self,
        result: StepReplay,
        *,
        forms: StateForms,
        shown: frozenset[Epoch],
        wanted: KeyFilter | None = None,
        limit: int | None = None,
        debugger: Debugger | None = None,
        tape: Recording | None = None,
    ) -> None:
        self.result = result
        self.wanted = wanted
        self.debugger = debugger
        self.tape = tape
        self.keys: set[bytes] = set()
        self.raised: Event | None = None
        """The last event whose function raised."""
        self.attributed = False
        """What comes in is noted call by call; otherwise by the batch."""
        self.fires = False
        """What goes out is noted with what made it; otherwise as it comes."""
        self.key_of_output: Callable[[Any], bytes] | None = None
        """The key that an output is of, encoded, where outputs say that themselves."""
        self.calls = 0
        self._forms = forms
        self._shown = shown
        self._limit = limit
        self._current: Event | None = None
        self._services: Services

    def entered(self, services: Services) -> None:
        """A task begins."""
        self._services = services

    # --- events --------------------------------------------------------------------------------------------------------------

    def keeps(self, encoded: bytes | None) -> bool:
        """Whether the next event, of this key, is to be kept. Counts it."""
        self.calls += 1
        if self._services.order.epoch not in self._shown or not self._matches(encoded):
            return False
        if self._limit is not None and len(self.result.events) >= self._limit:
            self.result.left_out += 1
            return False
        return True

    def _matches(self, encoded: bytes | None) -> bool:
        return self.wanted is None or (encoded is not None and self.wanted(encoded))

    def event(
        self,
        kind: EventKind,
        watermark: Milliseconds,
        *,
        key: Any = NO_KEY,
        value: Any = None,
        time: Milliseconds = NO_TIMESTAMP,
        window: Window | None = None,
        domain: str | None = None,
    ) -> Event:
        """The event that `keeps` was asked about."""
        return Event(
            number=self.calls,
            epoch=self._services.order.epoch,
            partition=self._services.partition,
            kind=kind,
            watermark_ms=None if watermark == MIN_WATERMARK else watermark,
            key=key,
            value=duplicate(value),
            timestamp_ms=None if time == NO_TIMESTAMP else time,
            window=window,
            domain=domain,
        )

    def keep(self, event: Event) -> None:
        self.result.events.append(event)
        if self.tape is not None and self.fires:
            self.tape.event(event)

    def fired(self, encoded: bytes) -> None:
        """A timer of a key fires."""
        self.keys.add(encoded)
        self.result.timers += 1
        if self.tape is not None:
            self.tape.fired(encoded)

    def stops(self, encoded: bytes | None) -> bool:
        """Whether the debugger is to stop in the call that `keeps` was asked about."""
        return self.debugger is not None and self.debugger.wants(self.calls) and self._matches(encoded)

    def failed(self, event: Event, error: Exception, encoded: bytes | None = None) -> None:
        """A function raised; the event is kept whatever the limit says."""
        event.error = f"{type(error).__name__}: {error}"
        self.raised = event
        if event.epoch in self._shown and self._matches(encoded):
            self.keep(event)

    # --- steps of which only batches are known -----------------------------------------------------------------------------

    def records(self, batch: Batch, watermark: Milliseconds, keys: list[bytes] | None, decode: Callable[[bytes], Any]) -> None:
        """The records of a batch, as they come in; `keys` of a keyed one, row by row."""
        times = [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        rows: Iterable[Any] | None = None
        for row in range(len(batch)):
            encoded = None if keys is None else keys[row]
            if not self.keeps(encoded):
                continue
            if rows is None:
                rows = values = batch.values()
            key = NO_KEY if encoded is None else decode(encoded)
            self.keep(self.event("record", watermark, key=key, value=values[row], time=times[row]))

    def during(self, kind: EventKind, watermark: Milliseconds, action: Callable[[], None]) -> None:
        """Do something; what is emitted meanwhile is one event."""
        if self.attributed or self._current is not None:
            action()
            return
        self._current = event = self.event(kind, watermark)
        try:
            action()
        finally:
            self._current = None
            if event.outputs and self._services.order.epoch in self._shown:
                if self._limit is None or len(self.result.events) < self._limit:
                    self.calls += 1
                    event.number = self.calls
                    self.keep(event)
                else:
                    self.result.left_out += 1

    def emitted(self, tag: str | None, batch: Batch, *, dead: bool = False) -> None:
        """The step emits a batch."""
        if self.tape is not None and not self.fires:
            self.tape.emitted(tag, batch)
        into = self.raised if dead and self.attributed else self._current
        if into is None or (self.fires and tag is None) or self._services.order.epoch not in self._shown:
            return
        if self._limit is not None and len(self.result.events) >= self._limit and not dead:
            self.result.left_out += 1
            return
        made = outputs_of(batch, tag)
        if self.wanted is not None and self.key_of_output is not None and tag is None:
            made = [one for one in made if self.wanted(self.key_of_output(one.value))]
        into.outputs += made

    # --- state ---------------------------------------------------------------------------------------------------------------

    def changed(self, entries: list[Entry]) -> None:
        """Entries of the step's state that an epoch changes."""
        result, services = self.result, self._services
        if self.tape is not None:
            self.tape.changed(entries)
        real = [entry for entry in entries if entry[1] != entry[2]]
        result.changed += len(real)
        if services.order.epoch not in self._shown:
            return
        if self.wanted is not None:
            real = [entry for entry in real if self._of_wanted_key(entry[0])]
        room = len(real) if self._limit is None else max(0, self._limit - len(result.changes))
        result.changes_left_out += max(0, len(real) - room)
        found = self._forms.changes(services.order.epoch, real[:room], services.committed.scan)
        if self.wanted is not None:
            encode = self._codec_of_changes()
            found = [change for change in found if change.key is NO_KEY or encode is None or self.wanted(encode(change.key))]
        result.changes += found

    def _of_wanted_key(self, store_key: bytes) -> bool:
        form = self._forms.of_entry(store_key)
        return form is not None and (form.kind.many_keys or self.wanted is None or self.wanted(form.place(store_key).key))

    def _codec_of_changes(self) -> Callable[[Any], bytes] | None:
        form = next((form for form in self._forms.values() if form.step == self.result.step), None)
        return None if form is None else form.keys.encode


class TappedOutputs(Outputs):
    """Outputs that are noted as they pass. `read`: told first of what goes to the main output."""

    __slots__ = ("_read", "_trace")

    def __init__(self, trace: StepTrace, read: Callable[[Batch], None] | None = None) -> None:
        super().__init__()
        self._trace = trace
        self._read = read

    def emit(self, batch: Batch) -> None:
        if len(batch):
            self._trace.emitted(None, batch)
            if self._read is not None:
                self._read(batch)
        super().emit(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if len(batch):
            self._trace.emitted(tag, batch, dead=tag == DEAD_LETTERS)
        super().emit_side(tag, batch)


class TracedPart:
    """A part of a task's state whose changes are noted when the task collects them."""

    def __init__(self, part: StatePart, trace: StepTrace, services: Services) -> None:
        self._part = part
        self._trace = trace
        self._services = services

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        entries = list(self._part.changes())
        get = self._services.committed.get
        self._trace.entered(self._services)
        self._trace.changed([(key, get(key), after) for key, after in entries])
        return entries

    def next_due(self) -> dict[int, Milliseconds]:
        return self._part.next_due()

    def close(self) -> None:
        if self._trace.tape is not None:
            self._trace.tape.close(self._services)
        self._part.close()


def outputs_of(batch: Any, tag: str | None = None) -> list[Emitted]:
    """The rows of a batch as what was emitted; of one on its way through `key_by`, its rows."""
    inner = getattr(batch, "batch", batch)
    times = [NO_TIMESTAMP] * len(inner) if inner.timestamps is None else inner.timestamps.tolist()
    return [
        Emitted(duplicate(value), None if time == NO_TIMESTAMP else time, tag)
        for value, time in zip(inner.values(), times, strict=True)
    ]
