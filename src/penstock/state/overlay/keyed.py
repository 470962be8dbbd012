"""The overlay: what an epoch's task has read and changed of one step's keyed state.

Laws:
- Committed state is only read; changes live here until the epoch is committed. `changes()` is all there is to write.
- A *slot* is what the task knows of one key: a cell and a flag for each state. The current slot decides what the handles see.
- A key may be followed by a *namespace*, a fixed number of bytes (a window): then state and timers are per (key, namespace), and
  the group is still the key's.
- Reading a cell of a mutable type marks it: at the end it is encoded and compared, so that a value changed in place is kept,
  however the input was cut into epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from penstock.ids import Milliseconds
from penstock.state.encoding.keys import KeyCodec
from penstock.state.entries.store_keys import value_prefix
from penstock.state.key_groups import KeyGroups
from penstock.state.overlay.overflow import Overflow
from penstock.state.overlay.timers import TimerQueue

UNLOADED: Any = type("Unloaded", (), {"__repr__": lambda self: "UNLOADED"})()
UNDECODED: Any = type("Undecoded", (), {"__repr__": lambda self: "UNDECODED"})()

SPILL_ABOVE = 500_000
"""How many keys an epoch may touch in a partition before what is known of them is moved to a temporary store."""

CLEAN, READ, CHANGED, DELETED = 0, 1, 2, 3
"""What a cell's flag says."""


class Committed(Protocol):
    """Committed state, as a task reads it."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]: ...


class Slot:
    """One key, its bytes, its group, and what is known of its state. `fresh`: nothing of it is committed."""

    __slots__ = ("cells", "encoded", "fresh", "group", "key")

    def __init__(self, key: Any, encoded: bytes, group: int, cells: list[Any]) -> None:
        self.key = key
        self.encoded = encoded
        self.group = group
        self.cells = cells
        self.fresh = False


class Clocks:
    """The clocks that state and timers look at."""

    __slots__ = ("ended", "processing_time", "record_time", "watermark")

    def __init__(self, watermark: Milliseconds, processing_time: Milliseconds) -> None:
        self.watermark = watermark
        self.processing_time = processing_time
        self.record_time: Milliseconds | None = None
        self.ended = False


class StateCell(Protocol):
    """A handle, as the overlay sees it: see `penstock.state.overlay.handles`."""

    cell: int

    def prefetch(self, slots: list[Slot]) -> None: ...

    def absent(self) -> Any: ...

    def changes(self, slot: Slot, out: list[tuple[bytes, bytes | None]]) -> None: ...

    def purge(self, slot: Slot) -> None: ...

    def clear(self) -> None: ...


class SoleCell(StateCell, Protocol):
    """See `penstock.state.overlay.handles.SoleValueHandle`."""

    slot: Slot
    value: Any

    def enter(self, slot: Slot) -> None: ...


class KeyedState:
    """The state of one step in one partition, for one epoch."""

    __slots__ = (
        "_empty",
        "_key_codec",
        "_key_groups",
        "_namespace",
        "_overflow",
        "committed",
        "event_timers",
        "handles",
        "processing_timers",
        "slot",
        "slots",
        "sole",
        "times",
        "ttl_timers",
    )

    def __init__(
        self,
        *,
        committed: Committed,
        key_codec: KeyCodec,
        key_groups: KeyGroups,
        times: Clocks,
        event_timers: TimerQueue,
        processing_timers: TimerQueue,
        ttl_timers: tuple[TimerQueue, TimerQueue],
        namespace: int = 0,
    ) -> None:
        self.committed = committed
        self.slots: dict[bytes, Slot] = {}
        self.slot: Slot = Slot(None, b"", 0, [])
        self.handles: list[StateCell] = []
        self.sole: SoleCell | None = None
        """The handle of the only state, if that keeps its value in an attribute: it is given the current key."""
        self.times = times
        self.event_timers = event_timers
        self.processing_timers = processing_timers
        self.ttl_timers = ttl_timers
        self._key_codec = key_codec
        self._key_groups = key_groups
        self._namespace = namespace
        self._empty: list[Any] = []
        self._overflow: Overflow | None = None

    def attach(self, make: Callable[[KeyedState, int], StateCell]) -> StateCell:
        """Give a state its cell in every slot."""
        handle = make(self, len(self._empty))
        self._empty += [UNLOADED, CLEAN]
        self.handles.append(handle)
        return handle

    def enter(self, encoded_keys: list[bytes]) -> list[Slot]:
        """The slots of a frame's distinct keys; the values of new ones are fetched together."""
        if len(self.slots) > SPILL_ABOVE:
            self._move_out()
        slots, empty, decode = self.slots, self._empty, self._key_codec.decode
        unknown = [encoded for encoded in encoded_keys if encoded not in slots]
        if not unknown:
            return [slots[encoded] for encoded in encoded_keys]
        new = []
        for encoded, group in zip(unknown, self._key_groups.of_many(unknown).tolist(), strict=True):
            slot = slots[encoded] = Slot(decode(encoded), encoded, group, empty[:])
            new.append(slot)
        if len(new) > 1 or self.sole is not None:
            for handle in self.handles:
                handle.prefetch(new)
        return [slots[encoded] for encoded in encoded_keys]

    def enter_one(self, encoded: bytes) -> Slot:
        """Make one key current."""
        slot = self.slots.get(encoded)
        if slot is None:
            if len(self.slots) > SPILL_ABOVE:
                self._move_out()
            key = self._key_codec.decode(encoded) if not self._namespace else UNDECODED
            group = self._key_groups.of(encoded, self._namespace)
            slot = self.slots[encoded] = Slot(key, encoded, group, self._empty[:])
        self.slot = slot
        if self.sole is not None:
            self.sole.enter(slot)
        return slot

    def enter_spaces(self, wanted: list[bytes], fresh: list[bool] | None = None) -> list[Slot]:
        """As `enter`, for distinct keys with a namespace. `fresh`: nothing is committed of that one, so nothing is read."""
        if len(self.slots) > SPILL_ABOVE:
            self._move_out()
        slots, empty = self.slots, self._empty
        unread = self._overflow is None and fresh is not None
        unknown = [number for number, encoded in enumerate(wanted) if encoded not in slots]
        groups = self._key_groups.of_many([wanted[number] for number in unknown], self._namespace).tolist()
        new = []
        for number, group in zip(unknown, groups, strict=True):
            encoded = wanted[number]
            slot = slots[encoded] = Slot(UNDECODED, encoded, group, empty[:])
            if unread and fresh is not None and fresh[number]:
                slot.fresh = True
                slot.cells = [one for handle in self.handles for one in (handle.absent(), CLEAN)]
            else:
                new.append(slot)
        if len(new) > 1:
            for handle in self.handles:
                handle.prefetch(new)
        return [slots[encoded] for encoded in wanted]

    def forget(self, slot: Slot) -> None:
        """Leave no trace of a fresh slot."""
        self.slots.pop(slot.encoded, None)

    def key_of(self, slot: Slot) -> Any:
        """The key of a slot with a namespace: decoded when somebody asks, for a key may have many."""
        if slot.key is UNDECODED:
            slot.key = self._key_codec.decode(slot.encoded[: len(slot.encoded) - self._namespace])
        return slot.key

    def purge_expired(self) -> None:
        """Remove entries whose time to live is over (see `Ttl`)."""
        for queue, now in zip(self.ttl_timers, (self.times.watermark, self.times.processing_time), strict=True):
            for _time, encoded in queue.due(now):
                slot = self.enter_one(encoded)
                for handle in self.handles:
                    handle.purge(slot)

    def changes(self) -> list[tuple[bytes, bytes | None]] | Iterator[tuple[bytes, bytes | None]]:
        """Every changed entry in order, with None for a removed one; an iterator if there are more than fit into memory."""
        out = self._state_changes()
        for queue in (self.event_timers, self.processing_timers, *self.ttl_timers):
            out += queue.changes()
        if self._overflow is not None:
            return self._overflow.with_rest(out)
        out.sort()
        return out

    def next_due(self) -> dict[int, Milliseconds]:
        """When the first timer of each queue is due, by its state id."""
        queues = (self.event_timers, self.processing_timers, *self.ttl_timers)
        return {queue.state_id: due for queue in queues if (due := queue.next_due()) is not None}

    def _state_changes(self) -> list[tuple[bytes, bytes | None]]:
        out: list[tuple[bytes, bytes | None]] = []
        for handle in self.handles:
            changes, flag = handle.changes, handle.cell + 1
            for slot in self.slots.values():
                if slot.cells[flag]:
                    changes(slot, out)
        return out

    def _move_out(self) -> None:
        """Move what is known of all keys out of memory."""
        if self._overflow is None:
            self._overflow = Overflow(self.committed)
        self._overflow.move(self._state_changes())
        self.committed = self._overflow
        self.slots.clear()

    def close(self) -> None:
        """Let go of everything: functions, which live on, still have their handles, and with them this."""
        if self._overflow is not None:
            self._overflow.close()
        self.slots.clear()
        self.handles.clear()
        for queue in (self.event_timers, self.processing_timers, *self.ttl_timers):
            queue.close()


def store_key(slot: Slot, state_id: int) -> bytes:
    return value_prefix(slot.group, state_id) + slot.encoded
