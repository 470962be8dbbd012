"""Store keys longer than LMDB can hold (511 bytes).

    stored key    key[:470] · 0xC1 · sha256(key)      503 bytes
    stored value  length of key(4) · key · value

Laws:
- A stored key of 503 bytes with 0xC1 at 470 is always a long one: a short key that looks like it is stored as a long one.
- The first 470 bytes are kept, so ranges over bounds up to that length are exact; keys that share their first 470 bytes are put
  in order when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

KEPT = 470
STORED = KEPT + 1 + 32
_LIMIT = 511
_MARK = 0xC1


def is_long(key: bytes) -> bool:
    """Must this key be stored under another name?"""
    return len(key) > _LIMIT or (len(key) == STORED and key[KEPT] == _MARK)


def stored_key(key: bytes) -> bytes:
    """The name a long key is stored under."""
    return key[:KEPT] + b"\xc1" + sha256(key).digest()


def stored_value(key: bytes, value: bytes) -> bytes:
    """A value that carries its long key."""
    return len(key).to_bytes(4, "big") + key + value


def restored(stored: bytes) -> tuple[bytes, bytes]:
    """The key and the value of a long entry."""
    end = 4 + int.from_bytes(stored[:4], "big")
    return stored[4:end], stored[end:]


def shortened(keys: list[bytes], values: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Entries as they are to be stored, for lists that hold a long key."""
    pairs = [(stored_key(k), stored_value(k, v)) if is_long(k) else (k, v) for k, v in zip(keys, values, strict=True)]
    pairs.sort()
    return [key for key, _ in pairs], [value for _, value in pairs]


def in_order(stored: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Entries with their full keys, in the order of these. Only keys that share their first 470 bytes are collected."""
    together: list[tuple[bytes, bytes]] = []
    prefix = b""
    for key, value in stored:
        if len(key) <= KEPT:
            if together:
                yield from sorted(together)
                together = []
            yield key, value
            continue
        if key[:KEPT] != prefix:
            yield from sorted(together)
            together = []
            prefix = key[:KEPT]
        together.append(restored(value) if is_long(key) else (key, value))
    yield from sorted(together)
