"""Stored values in their wrappings: with the time they expire, one after another in a list.

stamped   expires(8, signed) · value
framed    length(4) · item · length(4) · item · …
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.ids import Milliseconds

STAMP_SIZE: Final = 8
_LENGTH: Final = 4


def stamped(expires: Milliseconds, data: bytes) -> bytes:
    """A value with the time it expires."""
    return expires.to_bytes(STAMP_SIZE, "big", signed=True) + data


def stamp_of(data: bytes) -> Milliseconds:
    """When a stamped value expires."""
    return int.from_bytes(data[:STAMP_SIZE], "big", signed=True)


def framed(items: Iterable[bytes]) -> bytes:
    """Items as one value.

    >>> unframed(framed([b"a", b""]))
    [b'a', b'']
    """
    return b"".join([len(item).to_bytes(_LENGTH, "big") + item for item in items])


def unframed(data: bytes, before: list[bytes] | None = None) -> list[bytes]:
    """The inverse of `framed`; appended to the items before, if there are any."""
    items: list[bytes] = [] if before is None else before
    at, size = 0, len(data)
    while at < size:
        start = at + _LENGTH
        at = start + int.from_bytes(data[at:start], "big")
        items.append(data[start:at])
    return items
