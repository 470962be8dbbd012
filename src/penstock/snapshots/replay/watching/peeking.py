"""The state of the current key, looked at without leaving a trace.

The handles that functions use note what was read: a value of a mutable type is compared at the end, and reading may prolong a
time to live. A debugger must not do that.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import islice
from typing import Any

from penstock.records import NO_TIMESTAMP
from penstock.snapshots.replay.result import Emitted, hashable
from penstock.state.overlay.collections import MISSING, ListHandle, MapHandle
from penstock.state.overlay.handles import (
    Accumulating,
    ExpiringValueHandle,
    Handle,
    MutableValueHandle,
    StoredValue,
    _read_stamped,
)
from penstock.state.overlay.keyed import CHANGED, DELETED, UNLOADED, Slot, store_key

MOST = 100
"""How many entries of a map or a list are shown at most."""


class More:
    """There is more than was looked at."""

    def __repr__(self) -> str:
        return "…"


def peek(handles: Mapping[str, Any], slot: Slot) -> dict[str, Any]:
    """What a key has in each of some states, by name; states it has nothing in are left out."""
    found = {}
    for name, handle in handles.items():
        there, value = _peek(handle, slot)
        if there:
            found[name] = value
    return found


def _peek(handle: Any, slot: Slot) -> tuple[bool, Any]:
    if isinstance(handle, Accumulating):
        return _peek(handle._accumulator, slot)
    if isinstance(handle, StoredValue):
        return _value(handle, slot)
    if isinstance(handle, ExpiringValueHandle):
        return _expiring(handle, slot)
    if isinstance(handle, ListHandle):
        return _list(handle, slot)
    if isinstance(handle, MapHandle):
        return _map(handle, slot)
    return False, None


def _value(handle: StoredValue, slot: Slot) -> tuple[bool, Any]:
    value, flag = slot.cells[handle.cell], slot.cells[handle._flag]
    if flag != CHANGED:
        stored = handle._keyed.committed.get(store_key(slot, handle._state_id))
        if value is UNLOADED:
            return (False, None) if stored is None else (True, handle._decode(stored))
        if flag == DELETED or stored is None:
            fresh = handle._fresh()
            if value is fresh or (isinstance(handle, MutableValueHandle) and value == fresh):
                return False, None
    return True, copied(handle, value)


def _expiring(handle: ExpiringValueHandle, slot: Slot) -> tuple[bool, Any]:
    held = slot.cells[handle.cell]
    if held is UNLOADED:
        data = handle._keyed.committed.get(store_key(slot, handle._state_id))
        held = None if data is None else _read_stamped(data, handle._decode)
    if held is None or held[0] <= handle._expiry.now():
        return False, None
    return True, copied(handle, held[1])


def _list(handle: ListHandle, slot: Slot) -> tuple[bool, Any]:
    cell = slot.cells[handle.cell]
    loaded = None if cell is UNLOADED else cell.loaded
    if loaded is None:
        loaded = []
        for _, data in handle._keyed.committed.scan(store_key(slot, handle._state_id)):
            loaded += handle._read_chunk(data)
            if len(loaded) > MOST:
                break
    elements = [*loaded, *(() if cell is UNLOADED else cell.added)]
    if handle._expiry is not None:
        now = handle._expiry.now()
        elements = [element for expires, element in elements if expires > now]
    shown = [copied(handle, element) for element in elements[:MOST]]
    return bool(elements), [*shown, More()] if len(elements) > MOST else shown


def _map(handle: MapHandle, slot: Slot) -> tuple[bool, Any]:
    cell = slot.cells[handle.cell]
    known = {} if cell is UNLOADED else {encoded: (entry[0], entry[1]) for encoded, entry in cell.entries.items()}
    if cell is UNLOADED or not cell.complete:
        prefix = store_key(slot, handle._state_id)
        for full, data in islice(handle._keyed.committed.scan(prefix), MOST + 1):
            encoded = full[len(prefix) :]
            if encoded not in known:
                known[encoded] = (handle._keys.decode(encoded), handle._read(data))
    found: dict[Any, Any] = {}
    now = None if handle._expiry is None else handle._expiry.now()
    for _, (key, value) in sorted(known.items()):
        if value is MISSING or (now is not None and value[0] <= now):
            continue
        if len(found) == MOST:
            found[More()] = More()
            break
        found[hashable(key)] = copied(handle, value if now is None else value[1])
    return bool(found), found


def copied(handle: Handle, value: Any) -> Any:
    """A copy that later changes do not reach."""
    if not handle._codec.mutable:
        return value
    try:
        return handle._codec.decode(handle._codec.encode(value))
    except Exception:
        return duplicate(value)


def duplicate(value: Any) -> Any:
    """A deep copy, if there can be one."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def outputs_of(batch: Any, tag: str | None = None) -> list[Emitted]:
    """The rows of a batch as what was emitted; of one on its way through `key_by`, its rows."""
    inner = getattr(batch, "batch", batch)
    times = [NO_TIMESTAMP] * len(inner) if inner.timestamps is None else inner.timestamps.tolist()
    return [
        Emitted(duplicate(value), None if time == NO_TIMESTAMP else time, tag)
        for value, time in zip(inner.values(), times, strict=True)
    ]
