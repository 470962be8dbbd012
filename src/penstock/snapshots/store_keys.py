"""Store keys of a snapshot, taken apart. (Here without the head of group and state id: see `penstock.state.layout`.)

    value, reducing, aggregating   key · window
    list                           key · window · chunk(8)
    map                            key · window · map key
    timers                         time(8) · key · window
    slices, session runs           time(8) · level(1)

A window is 16 bytes, in states of windows only. Keys are MessagePack, which says by itself where it ends.
"""

from __future__ import annotations

_SIZES = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}
_SIZES |= {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
_LENGTHS = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_LENGTHS |= {0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
"""Bytes of the length, and of the type of an extension."""
_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the count, and values for each of it."""


def end_of_value(data: bytes, at: int = 0) -> int:
    """Where the MessagePack value that begins at `at` ends."""
    left = 1
    while left:
        left -= 1
        tag = data[at]
        if tag <= 0x7F or tag >= 0xE0:
            at += 1
        elif 0xA0 <= tag <= 0xBF:
            at += 1 + (tag & 0x1F)
        elif tag in _SIZES:
            at += _SIZES[tag]
        elif tag in _LENGTHS:
            size, extra = _LENGTHS[tag]
            at += 1 + size + extra + int.from_bytes(data[at + 1 : at + 1 + size], "big")
        elif tag <= 0x9F:
            left += (tag & 0x0F) * (2 if tag <= 0x8F else 1)
            at += 1
        else:
            size, each = _COUNTS[tag]
            left += each * int.from_bytes(data[at + 1 : at + 1 + size], "big")
            at += 1 + size
    return at


def split_map_keys(raw_keys: list[bytes], namespace: int) -> tuple[list[bytes], list[bytes]]:
    """(key · window, map key) of each. Sorted keys come together, and no key is the beginning of another."""
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
