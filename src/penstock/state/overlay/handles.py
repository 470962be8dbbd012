"""What a declared state is bound to in a worker: the same methods, on the current key.

This is the hot path of every stateful function. `ValueHandle.value` and `update` touch one list cell, and `SoleValueHandle.value`
is an attribute; everything else is in the slower classes beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState, State, Ttl, ValueState
from penstock.state.encoding.codecs import Codec, codec_for
from penstock.state.encoding.stored_values import stamped
from penstock.state.encoding.untyped import decode_untyped, encode_untyped
from penstock.state.overlay.keyed import CHANGED, DELETED, READ, UNLOADED, KeyedState, Slot, StateCell, store_key
from penstock.state.overlay.writes import StateLabel, Writes, check_default

Changes = list[tuple[bytes, bytes | None]]

UNTYPED = Codec(None, encode=encode_untyped, decode=decode_untyped, mutable=True, schema="any")


def state_codec(state: State) -> Codec:
    """The codec of a declared state."""
    if state.codec is not None:
        codec: Codec = state.codec
        return codec
    return UNTYPED if state.value_type in (None, object, Any) else codec_for(state.value_type)


class Handle:
    """What the handles share: a cell in every slot, and a name for errors."""

    def __init__(self, keyed: KeyedState, cell: int, state: State, state_id: int, label: StateLabel) -> None:
        self._keyed = keyed
        self.cell = cell
        self._flag = cell + 1
        self._state_id = state_id
        self._label = label
        self._codec = state_codec(state)
        self._writes = Writes(self._codec, label, keyed.key_of)
        self._outer = self._writes.outer
        self._admit = self._writes.admit
        self._encode = self._writes.encode

    def prefetch(self, slots: list[Slot]) -> None:
        """Nothing is worth fetching before it is asked for."""

    def absent(self) -> Any:
        """The cell of a key of which nothing is stored."""
        return None

    def purge(self, slot: Slot) -> None:
        """Nothing here expires."""

    def _remove(self, key: bytes, out: Changes) -> None:
        """What was never committed leaves no trace."""
        if self._keyed.committed.get(key) is not None:
            out.append((key, None))

    def _decode(self, data: bytes) -> Any:
        try:
            return self._codec.decode(data)
        except Exception as error:
            raise self._codec.failure(error, where=str(self._label)) from error


class StoredValue(Handle):
    """How a `ValueState` without a time to live is loaded and stored."""

    def __init__(self, keyed: KeyedState, cell: int, state: ValueState[Any], state_id: int, label: StateLabel) -> None:
        super().__init__(keyed, cell, state, state_id, label)
        self._default = state.default

    def _fresh(self) -> Any:
        return self._default

    def absent(self) -> Any:
        return self._fresh()

    def load(self, slot: Slot) -> Any:
        """Read what is committed."""
        data = self._keyed.committed.get(store_key(slot, self._state_id))
        value = slot.cells[self.cell] = self._fresh() if data is None else self._decode(data)
        return value

    def prefetch(self, slots: list[Slot]) -> None:
        keys = [store_key(slot, self._state_id) for slot in slots]
        found = self._keyed.committed.get_many(keys)
        if not found:
            for slot in slots:
                slot.cells[self.cell] = self._fresh()
            return
        cell, get, decode = self.cell, found.get, self._codec.decode
        try:
            for slot, key in zip(slots, keys, strict=True):
                data = get(key)
                slot.cells[cell] = self._fresh() if data is None else decode(data)
        except Exception as error:
            raise self._codec.failure(error, where=str(self._label)) from error

    def changes(self, slot: Slot, out: Changes) -> None:
        key = store_key(slot, self._state_id)
        if slot.cells[self._flag] == DELETED:
            self._remove(key, out)
        else:
            out.append((key, self._encode(slot.cells[self.cell], slot)))

    def admit(self, slot: Slot) -> None:
        """Check what was put into the cell without `update`, and mark it as changed."""
        cells, cell = slot.cells, self.cell
        if self._outer is not None and type(cells[cell]) is not self._outer:
            cells[cell] = self._admit(cells[cell], slot)
        cells[cell + 1] = CHANGED


class ValueHandle(StoredValue):
    """`ValueState` of an immutable type."""

    @property
    def value(self) -> Any:
        slot = self._keyed.slot
        value = slot.cells[self.cell]
        if value is UNLOADED:
            return self.load(slot)
        return value

    def update(self, value: Any) -> None:
        slot = self._keyed.slot
        if type(value) is not self._outer:
            value = self._admit(value, slot)
        cells = slot.cells
        cells[self.cell] = value
        cells[self._flag] = CHANGED

    def clear(self) -> None:
        cells = self._keyed.slot.cells
        cells[self.cell] = self._fresh()
        cells[self._flag] = DELETED


class SoleValueHandle(StoredValue):
    """The only state of a function: the current key's value is an attribute, set whenever a key becomes current."""

    __slots__ = ("_outer", "slot", "value")

    slot: Slot
    value: Any

    def enter(self, slot: Slot) -> None:
        """Make a key current. Loops over many records do this themselves; their keys have been prefetched."""
        self.slot = slot
        value = slot.cells[0]
        self.value = self.load(slot) if value is UNLOADED else value

    def update(self, value: Any) -> None:
        if type(value) is not self._outer:
            value = self._admit(value, self.slot)
        self.value = value
        cells = self.slot.cells
        cells[0] = value
        cells[1] = CHANGED

    def clear(self) -> None:
        cells = self.slot.cells
        self.value = cells[0] = self._fresh()
        cells[1] = DELETED


class MutableValueHandle(ValueHandle):
    """`ValueState` of a type that can be changed in place: what was read is compared with what was stored."""

    def __init__(self, keyed: KeyedState, cell: int, state: ValueState[Any], state_id: int, label: StateLabel) -> None:
        super().__init__(keyed, cell, state, state_id, label)
        self._fresh = state.fresh_default  # type: ignore[method-assign]
        self._stored: dict[bytes, bytes] = {}

    @property
    def value(self) -> Any:
        slot = self._keyed.slot
        cells = slot.cells
        value = cells[self.cell]
        if value is UNLOADED:
            value = self.load(slot)
        if value is not None and not cells[self._flag]:
            cells[self._flag] = READ
        return value

    def update(self, value: Any) -> None:
        slot = self._keyed.slot
        if self._outer is not None and type(value) is not self._outer:
            value = self._admit(value, slot)
        slot.cells[self.cell] = value
        slot.cells[self._flag] = CHANGED

    def changes(self, slot: Slot, out: Changes) -> None:
        flag, value = slot.cells[self._flag], slot.cells[self.cell]
        key = store_key(slot, self._state_id)
        if flag in (READ, DELETED):
            stored = self._keyed.committed.get(key)
            data = self._as_read(value, slot)
            if data != (stored if stored is not None and flag == READ else self._as_read(self._fresh(), slot)):
                self._writes.verify(value, data, slot)
                out.append((key, data))
            elif flag == DELETED and stored is not None:
                out.append((key, None))
        else:
            out.append((key, self._encode(value, slot)))

    def _as_read(self, value: Any, slot: Slot) -> bytes:
        """To be compared with what is stored: it may be the default, None, which no declared type has."""
        try:
            return self._codec.encode(value)
        except Exception as error:
            raise self._writes.unencodable(error, value, slot) from error


class Expiry:
    """The clock of a time to live, and the purge timers that come with it."""

    def __init__(self, keyed: KeyedState, ttl: Ttl) -> None:
        self._times = keyed.times
        self._event = ttl.time == "event"
        self._ms = ttl.ms
        self._granule = max(1, ttl.ms // 10)
        self._queue = keyed.ttl_timers[0 if self._event else 1]
        self.on_read = ttl.refresh == "read"

    def now(self) -> Milliseconds:
        """At the end of time everything has expired but what is written then."""
        return min(self._times.watermark, MAX_WATERMARK - 1) if self._event else self._times.processing_time

    def stamp(self, slot: Slot) -> Milliseconds:
        """When an entry written now expires; its removal is scheduled."""
        now = self.now()
        if self._event and self._times.record_time is not None:
            now = max(now, self._times.record_time)
        expires = now + self._ms
        if expires >= MAX_WATERMARK:
            return MAX_WATERMARK
        self._queue.register(-(-expires // self._granule) * self._granule, slot)
        return expires


class ExpiringValueHandle(Handle):
    """`ValueState` with a time to live: the cell is (expiry, value) or None."""

    def __init__(self, keyed: KeyedState, cell: int, state: ValueState[Any], state_id: int, label: StateLabel) -> None:
        super().__init__(keyed, cell, state, state_id, label)
        assert state.ttl is not None
        self._expiry = Expiry(keyed, state.ttl)
        self._fresh = state.fresh_default

    @property
    def value(self) -> Any:
        slot = self._keyed.slot
        held = self._held(slot)
        if held is None:
            return self._fresh()
        if self._expiry.on_read or self._codec.mutable:
            expires = self._expiry.stamp(slot) if self._expiry.on_read else held[0]
            slot.cells[self.cell] = (expires, held[1])
            slot.cells[self._flag] = CHANGED
        return held[1]

    def update(self, value: Any) -> None:
        slot = self._keyed.slot
        if self._outer is not None and type(value) is not self._outer:
            value = self._admit(value, slot)
        slot.cells[self.cell] = (self._expiry.stamp(slot), value)
        slot.cells[self._flag] = CHANGED

    def clear(self) -> None:
        cells = self._keyed.slot.cells
        cells[self.cell] = None
        cells[self._flag] = CHANGED

    def purge(self, slot: Slot) -> None:
        self._held(slot)

    def _held(self, slot: Slot) -> tuple[Milliseconds, Any] | None:
        held = slot.cells[self.cell]
        if held is UNLOADED:
            data = self._keyed.committed.get(store_key(slot, self._state_id))
            held = slot.cells[self.cell] = None if data is None else _read_stamped(data, self._decode)
        if held is not None and held[0] <= self._expiry.now():
            held = slot.cells[self.cell] = None
            slot.cells[self._flag] = CHANGED
        return held  # type: ignore[no-any-return]

    def changes(self, slot: Slot, out: Changes) -> None:
        held = slot.cells[self.cell]
        key = store_key(slot, self._state_id)
        if held is None:
            self._remove(key, out)
        else:
            out.append((key, stamped(held[0], self._encode(held[1], slot))))


def _read_stamped(data: bytes, decode: Callable[[bytes], Any]) -> tuple[Milliseconds, Any]:
    return int.from_bytes(data[:8], "big", signed=True), decode(data[8:])


def bind_states(
    keyed: KeyedState,
    states: Mapping[str, State],
    ids: Callable[[str], int],
    labels: Callable[[str], StateLabel],
    *,
    sole: bool = True,
) -> dict[str, StateCell]:
    """The handles for declared states, by name.

    `ids` gives the id of a state, `labels` what messages call it. `sole`: an only one may be a `SoleValueHandle`.
    """
    alone = sole and len(states) == 1
    handles = {name: _bind(keyed, state, ids(name), labels(name), alone) for name, state in states.items()}
    keyed.sole = next((handle for handle in handles.values() if isinstance(handle, SoleValueHandle)), None)
    return handles


def check_defaults(states: Mapping[str, State]) -> None:
    """Refuse defaults that are not of the declared types."""
    for name, state in states.items():
        if getattr(state, "default", None) is None:
            continue
        try:
            codec = state_codec(state)
        except StateError:
            continue  # said when the job starts; a codec may be registered until then
        check_default(state, name, codec)


def _bind(keyed: KeyedState, state: State, state_id: int, label: StateLabel, alone: bool) -> StateCell:
    from penstock.state.overlay.collections import ListHandle, MapHandle

    def make(keyed: KeyedState, cell: int) -> StateCell:
        if isinstance(state, MapState):
            return MapHandle(keyed, cell, state, state_id, label)
        if isinstance(state, ListState):
            return ListHandle(keyed, cell, state, state_id, label)
        if isinstance(state, ReducingState):
            return ReducingHandle(_value_handle(keyed, cell, _accumulator(state), state_id, label), state.function)
        if isinstance(state, AggregatingState):
            return AggregatingHandle(_value_handle(keyed, cell, _accumulator(state), state_id, label), state.aggregate)
        if isinstance(state, ValueState):
            handle = _value_handle(keyed, cell, state, state_id, label)
            if alone and type(handle) is ValueHandle:
                return SoleValueHandle(keyed, cell, state, state_id, label)
            return handle
        raise StateError(f"{label} is of a kind that is not known: {type(state).__name__}")

    return keyed.attach(make)


def _accumulator(state: State) -> ValueState[Any]:
    return ValueState(state.value_type, None, ttl=state.ttl, codec=state.codec)


def _value_handle(
    keyed: KeyedState, cell: int, state: ValueState[Any], state_id: int, label: StateLabel
) -> ValueHandle | ExpiringValueHandle:
    if state.ttl is not None:
        return ExpiringValueHandle(keyed, cell, state, state_id, label)
    mutable = state_codec(state).mutable
    return (MutableValueHandle if mutable else ValueHandle)(keyed, cell, state, state_id, label)


class Accumulating:
    """`ReducingState` and `AggregatingState`: a value handle that is added to."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator
        self.cell = accumulator.cell
        self.prefetch = accumulator.prefetch
        self.absent = accumulator.absent
        self.changes = accumulator.changes
        self.purge = accumulator.purge
        self.clear = accumulator.clear

    def held(self) -> Any:
        """The accumulator; None if there is none."""
        return self._accumulator.value


class ReducingHandle(Accumulating):
    def __init__(self, accumulator: Any, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(accumulator)
        self._function = function

    @property
    def value(self) -> Any:
        return self._accumulator.value

    def add(self, value: Any) -> None:
        held = self._accumulator.value
        self._accumulator.update(value if held is None else self._function(held, value))

    def merge(self, held: Any) -> None:
        """Take in the accumulator of another key or window."""
        if held is not None:
            self.add(held)


class AggregatingHandle(Accumulating):
    def __init__(self, accumulator: Any, aggregate: Any) -> None:
        super().__init__(accumulator)
        self._aggregate = aggregate

    @property
    def value(self) -> Any:
        held = self._accumulator.value
        return None if held is None else self._aggregate.result(held)

    def add(self, value: Any) -> None:
        held = self._accumulator.value
        self._accumulator.update(self._aggregate.add(value, self._aggregate.create_accumulator() if held is None else held))

    def merge(self, held: Any) -> None:
        """Take in the accumulator of another key or window."""
        if held is not None:
            here = self._accumulator.value
            self._accumulator.update(held if here is None else self._aggregate.merge(here, held))
