"""Broadcast state: a map that is the same in all partitions of a step.

Every partition is given the same broadcast records in the same order, keeps a copy of its own in the shared group, and says by a
digest what it has changed. An epoch in which the digests differ is not committed, so copies that were equal stay equal.

Law: what is read is not noted, and so not written. A value that was changed in label is: in the copy of one partition it fails
the epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.errors import StateError
from penstock.state.encoding.keys import encode_key, key_codec
from penstock.state.key_groups import KeyGroups, SharedGroup
from penstock.state.overlay.collections import MISSING, MapHandle
from penstock.state.overlay.handles import Changes
from penstock.state.overlay.keyed import CLEAN, READ, Clocks, Committed, KeyedState, Slot, store_key
from penstock.state.overlay.timers import TimerQueue
from penstock.state.overlay.writes import StateLabel

WHOLE = encode_key(None)
"""The key that all of it is kept under."""


class BroadcastState(KeyedState):
    """The broadcast state of one step in one partition, for one epoch."""

    __slots__ = ("digest",)

    def __init__(self, committed: Committed, key_groups: KeyGroups, times: Clocks) -> None:
        none = TimerQueue(lambda: committed, state_id=0, groups=range(0), key_groups=key_groups, next_due=None)
        super().__init__(
            committed=committed,
            key_codec=key_codec(None),
            key_groups=SharedGroup(key_groups.count, key_groups.hash),
            times=times,
            event_timers=none,
            processing_timers=none,
            ttl_timers=(none, none),
        )
        self.digest = ""
        """Of the changes, once they have been asked for; none if there are none."""

    def enter_whole(self) -> None:
        """All of it is one slot, once the states are there."""
        self.enter_one(WHOLE)

    def changes(self) -> Changes:
        changes = list(super().changes())
        self.digest = hashlib.blake2b(msgspec.msgpack.encode(changes), digest_size=16).hexdigest() if changes else ""
        return changes


class BroadcastHandle(MapHandle):
    """A broadcast `MapState`, for those who may change it.

    It is read as a whole again and again: for each record, as long as no control record changes it. So what is there is put
    in order once.
    """

    _live: list[tuple[Any, Any]] | None = None
    """What is there, in order; None: not known."""

    def put(self, key: Any, value: Any) -> None:
        self._live = None
        super().put(key, value)

    __setitem__ = put

    def remove(self, key: Any) -> None:
        self._live = None
        super().remove(key)

    def clear(self) -> None:
        self._live = None
        super().clear()

    def items(self) -> Iterator[tuple[Any, Any]]:
        cells = self._keyed.slot.cells
        if self._codec.mutable and cells[self._flag] == CLEAN:
            cells[self._flag] = READ
        return iter(self._in_order())

    def keys(self) -> Iterator[Any]:
        return iter([key for key, _ in self._in_order()])

    __iter__ = keys

    def __len__(self) -> int:
        return len(self._in_order())

    def _in_order(self) -> list[tuple[Any, Any]]:
        if self._live is None:
            entries = self._load_all(self._keyed.slot).entries
            self._live = [(key, value) for _, (key, value, _) in sorted(entries.items()) if value is not MISSING]
        return self._live

    def _seen(self, entry: list[Any]) -> Any:
        cells = self._keyed.slot.cells
        if self._codec.mutable and cells[self._flag] == CLEAN:
            cells[self._flag] = READ
        return entry[1]

    def changes(self, slot: Slot, out: Changes) -> None:
        super().changes(slot, out)
        if not self._codec.mutable:
            return
        prefix = store_key(slot, self._state_id)
        read = [(prefix + encoded, sub, value) for encoded, (sub, value, put) in slot.cells[self.cell].entries.items() if not put]
        stored = self._keyed.committed.get_many([key for key, _, _ in read])
        for key, sub, value in read:
            if value is not MISSING:
                data = self._encode(value, slot, sub)
                if data != stored[key] and data != self._codec.encode(self._decode(stored[key])):
                    out.append((key, data))


class BroadcastView:
    """A broadcast `MapState`, for those who may only read it; while it is `open`, they may change it too."""

    __slots__ = ("_handle", "_label", "open")

    def __init__(self, handle: BroadcastHandle, label: StateLabel) -> None:
        self._handle = handle
        self._label = label
        self.open = False

    @property
    def handle(self) -> BroadcastHandle:
        return self._handle

    def get(self, key: Any, default: Any = None) -> Any:
        return self._handle.get(key, default)

    def __getitem__(self, key: Any) -> Any:
        return self._handle[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._handle

    def __iter__(self) -> Iterator[Any]:
        return iter(self._handle)

    def __len__(self) -> int:
        return len(self._handle)

    def keys(self) -> Iterator[Any]:
        return self._handle.keys()

    def values(self) -> Iterator[Any]:
        return self._handle.values()

    def items(self) -> Iterator[tuple[Any, Any]]:
        return self._handle.items()

    def put(self, key: Any, value: Any) -> None:
        self._changed().put(key, value)

    __setitem__ = put

    def remove(self, key: Any) -> None:
        self._changed().remove(key)

    def __delitem__(self, key: Any) -> None:
        del self._changed()[key]

    def clear(self) -> None:
        self._changed().clear()

    def _changed(self) -> BroadcastHandle:
        if not self.open:
            raise StateError(
                f"{self._label} is broadcast state, and can only be read here",
                hint="change it for a record of the broadcast input: only these are the same in all partitions",
            )
        return self._handle
