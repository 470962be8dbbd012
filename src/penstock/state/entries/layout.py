"""How state is ordered in a store.

    value   group(2) · state id(2) · namespace · user key · sub-key
    timer   group(2) · state id(2) · time(8) · user key

Law: numbers are big endian, and a time has its sign bit flipped, so bytes sort as the numbers do: a group, a state of a group,
and the timers due by some time are contiguous ranges. Encoded keys are prefix-free, so no two (key, sub-key) share a store key.
"""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">HH")
_TIMER = Struct(">HHQ")
_SIGN = 1 << 63

HEAD_SIZE = _HEAD.size
TIMER_HEAD_SIZE = _TIMER.size

value_prefix = _HEAD.pack
"""`value_prefix(group, state_id) -> bytes`: the head of every store key of that state in that group."""


def group_prefix(group: int) -> bytes:
    """The head of every store key of a group; of `group + 1`, the end of them."""
    return group.to_bytes(2, "big")


def sortable_time(time_ms: int) -> bytes:
    """A signed 64-bit time as eight bytes that sort as it does."""
    return (time_ms + _SIGN).to_bytes(8, "big")


def time_from_sortable(data: bytes) -> int:
    """The inverse of `sortable_time`."""
    return int.from_bytes(data, "big") - _SIGN


def timer_key(group: int, state_id: int, time_ms: int, encoded_key: bytes) -> bytes:
    """The store key of a timer."""
    return _TIMER.pack(group, state_id, time_ms + _SIGN) + encoded_key


def split_timer_key(store_key: bytes) -> tuple[int, int, int, bytes]:
    """`(group, state id, time, encoded key)` of a timer's store key."""
    group, state_id, time = _TIMER.unpack_from(store_key)
    return group, state_id, time - _SIGN, store_key[TIMER_HEAD_SIZE:]


def group_of_store_key(store_key: bytes) -> int:
    return store_key[0] << 8 | store_key[1]


def state_id_of_store_key(store_key: bytes) -> int:
    return store_key[2] << 8 | store_key[3]


def prefix_end(prefix: bytes) -> bytes | None:
    """The least bytes above everything that starts with `prefix`; None if there is nothing above."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
