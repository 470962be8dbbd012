"""Going through all keys of a partition that have something in one state.

Law: these are the keys that would be found if the epoch were committed now, in order of (group, encoded key): so they do not
depend on how the input is cut into epochs.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.state.entries.store_keys import HEAD_SIZE, end_of_value, value_prefix
from penstock.state.overlay.handles import Changes
from penstock.state.overlay.keyed import KeyedState, Slot, StateCell, store_key


def keys_with(keyed: KeyedState, handle: StateCell, state_id: int, groups: range) -> Iterator[Slot]:
    """Makes current, one after another, the keys that have something in a state of these groups."""
    known: dict[int, set[bytes]] = {}
    for encoded, slot in keyed.slots.items():
        known.setdefault(slot.group, set()).add(encoded)
    for group in groups:
        stored = {_key_of(full) for full, _ in keyed.committed.scan(value_prefix(group, state_id))}
        for encoded in sorted(stored | known.get(group, set())):
            slot = keyed.enter_one(encoded)
            handle.purge(slot)
            if _holds(keyed, handle, state_id, slot):
                yield slot


def _key_of(full: bytes) -> bytes:
    return full[HEAD_SIZE : end_of_value(full, HEAD_SIZE)]


def _holds(keyed: KeyedState, handle: StateCell, state_id: int, slot: Slot) -> bool:
    """Would anything of it be stored?"""
    changes: Changes = []
    if slot.cells[handle.cell + 1]:
        handle.changes(slot, changes)
    if any(data is not None for _, data in changes):
        return True
    gone = {key for key, _ in changes}
    return any(key not in gone for key, _ in keyed.committed.scan(store_key(slot, state_id)))
