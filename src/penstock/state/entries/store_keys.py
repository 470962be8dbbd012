"""How state is ordered in a store.

    group(2) · state id(2) · raw key        what a raw key is made of depends on the kind of state: see `kinds`

Laws:
- Numbers are big endian, and a time has its sign bit flipped, so bytes sort as the numbers do: a group, a state of a group,
  and the timers due by some time are contiguous ranges.
- An encoded key is one MessagePack value: where it ends can be told without its type, and no key is the beginning of another.
"""

from __future__ import annotations

from struct import Struct

from penstock.errors import StateError

_HEAD = Struct(">HH")
_TIMER = Struct(">HHQ")
_SIGN = 1 << 63

HEAD_SIZE = _HEAD.size
TIMER_HEAD_SIZE = _TIMER.size

_FIXED = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9}
_FIXED.update({0xCC + n: 1 + (1 << n) for n in range(4)})  # uint
_FIXED.update({0xD0 + n: 1 + (1 << n) for n in range(4)})  # int
_FIXED.update({0xD4 + n: 2 + (1 << n) for n in range(5)})  # fixext
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin, str
_EXTENDED = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}  # array, map

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


def end_of_value(data: bytes, start: int = 0) -> int:
    """Where the MessagePack value that begins at `start` ends.

    >>> end_of_value(bytes.fromhex("92 01 a2 6f 6b") + b"more")
    5
    """
    at, left = start, 1
    try:
        while left:
            left -= 1
            head = data[at]
            if head < 0x80 or head >= 0xE0:
                at += 1
            elif head < 0xA0:
                left += (head & 0x0F) * (2 if head < 0x90 else 1)
                at += 1
            elif head < 0xC0:
                at += 1 + (head & 0x1F)
            elif head in _FIXED:
                at += _FIXED[head]
            elif head in _SIZED:
                at += 1 + _SIZED[head] + _number(data, at + 1, _SIZED[head])
            elif head in _EXTENDED:
                at += 2 + _EXTENDED[head] + _number(data, at + 1, _EXTENDED[head])
            else:
                size, values = _COUNTED[head]
                left += values * _number(data, at + 1, size)
                at += 1 + size
    except (IndexError, KeyError):
        at = len(data) + 1
    if at > len(data):
        raise StateError("a stored key cannot be parsed", detail=f"the bytes: {data[start : start + 40]!r}")
    return at


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def split_map_keys(raw_keys: list[bytes], namespace: int) -> tuple[list[bytes], list[bytes]]:
    """(key · window, map key) of each raw key of a map. Sorted, they come together by key."""
    before = None
    at = 0
    keys, subs = [], []
    for raw in raw_keys:
        if before is None or not raw.startswith(before):
            at = end_of_value(raw) + namespace
            before = raw[:at]
        keys.append(before)
        subs.append(raw[at:])
    return keys, subs
