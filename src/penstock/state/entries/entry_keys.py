"""The parts of a stored entry's key, from its bytes alone.

    head(4) · user key · namespace · sub-key        the sub-key of a list is the number of a chunk, of a map an encoded key

Law: an encoded key is one MessagePack value, so where it ends can be told without its type.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import StateError
from penstock.state.entries.layout import HEAD_SIZE

_CHUNK = 8
_FIXED = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9}
_FIXED.update({0xCC + n: 1 + (1 << n) for n in range(4)})  # uint
_FIXED.update({0xD0 + n: 1 + (1 << n) for n in range(4)})  # int
_FIXED.update({0xD4 + n: 2 + (1 << n) for n in range(5)})  # fixext
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin, str
_EXTENDED = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}  # array, map


class EntryKey(NamedTuple):
    """`encoded`: key and namespace, which timers are set for; `key`: the user's key alone."""

    encoded: bytes
    key: bytes
    sub_key: bytes


def split_entry_key(store_key: bytes, kind: str, namespace: int) -> EntryKey:
    """The parts of a store key of a state of this kind."""
    if kind == "list":
        end = len(store_key) - _CHUNK
    elif kind == "map":
        end = end_of_value(store_key, HEAD_SIZE) + namespace
    else:
        end = len(store_key)
    return EntryKey(store_key[HEAD_SIZE:end], store_key[HEAD_SIZE : end - namespace], store_key[end:])


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
        raise StateError("a stored key is not as keys are written", detail=f"the bytes: {data[start : start + 40]!r}")
    return at


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")
