"""Ranges and prefixes of keys, as ranges of encoded keys.

In a key group entries are in order of encoded keys, which is not that of keys: in MessagePack the size of a text, or of a number,
comes first. So a range of keys is several ranges of bytes, one for each size; who skips from one to the next touches little else.

Law: `Spans` hold every encoded key that is wanted; `wanted` says of a decoded key in them whether it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.query.errors import BadRequestError
from penstock.state.entries.store_keys import prefix_end

Span = tuple[bytes, bytes | None]
_pack = msgspec.msgpack.Encoder().encode

_LONGEST_SHORT_TEXT = 255
_INTEGERS: tuple[tuple[int, int], ...] = (
    (-(2**63), -(2**31) - 1),
    (-(2**31), -(2**15) - 1),
    (-(2**15), -(2**7) - 1),
    (-(2**7), -33),
    (-32, -1),
    (0, 127),
    (128, 2**8 - 1),
    (2**8, 2**16 - 1),
    (2**16, 2**32 - 1),
    (2**32, 2**64 - 1),
)
"""Of each size of an encoded integer, the least and the greatest: within one, bytes sort as numbers do."""


class Spans:
    """Ranges of encoded keys, in order, that do not overlap; and what says of a decoded key whether it is wanted."""

    def __init__(self, spans: list[Span], wanted: Callable[[Any], bool]) -> None:
        self.spans = sorted(spans)
        self._starts = [start for start, _ in self.spans]
        self.wanted = wanted

    def next_start(self, encoded: bytes) -> bytes | None:
        """Where the next wanted key may be, at or after this one: itself, if it is in a span."""
        at = bisect_right(self._starts, encoded)
        if at:
            stop = self.spans[at - 1][1]
            if stop is None or encoded < stop:
                return encoded
        return self._starts[at] if at < len(self._starts) else None


def everything() -> Spans:
    return Spans([(b"", None)], lambda key: True)


def between(low: Any, high: Any) -> Spans:
    """Keys with `low <= key < high`; None: no bound."""
    kinds = {type(bound) for bound in (low, high) if bound is not None}
    if kinds == {int}:
        first, last = (-(2**63) if low is None else low), (2**64 - 1 if high is None else high - 1)
        return Spans(list(_integers(first, last)), lambda key: type(key) is int and first <= key <= last)
    if kinds == {str}:

        def wanted(key: Any) -> bool:
            return type(key) is str and (low is None or key >= low) and (high is None or key < high)

        return Spans(list(_texts((low or "").encode(), None if high is None else high.encode())), wanted)
    raise BadRequestError("a range of keys has bounds that are both integers, or both texts")


def beginning(prefix: Any) -> Spans:
    """Texts that begin so; or tuples with these first parts."""
    if isinstance(prefix, str):
        start = prefix.encode()
        return Spans(list(_texts(start, prefix_end(start))), lambda key: type(key) is str and key.startswith(prefix))
    if isinstance(prefix, (list, tuple)):
        parts = list(prefix)

        def wanted(key: Any) -> bool:
            return isinstance(key, list) and key[: len(parts)] == parts

        return Spans([_sized_array(parts, size) for size in range(len(parts), 16)], wanted)
    raise BadRequestError("a prefix is a text, or the first parts of a tuple")


def _integers(first: int, last: int) -> Iterator[Span]:
    for least, greatest in _INTEGERS:
        low, high = max(first, least), min(last, greatest)
        if low <= high:
            yield _pack(low), prefix_end(_pack(high))


def _texts(start: bytes, stop: bytes | None) -> Iterator[Span]:
    """By the length of the text, which stands first. A bound is cut off at that length, so a span may hold a little more."""
    for length in range(_LONGEST_SHORT_TEXT + 1):
        head = bytes((0xA0 | length,)) if length < 32 else bytes((0xD9, length))
        yield head + start[:length], prefix_end(head if stop is None else head + stop[:length])
    yield b"\xda", b"\xdc"  # longer ones: all of them are looked at


def _sized_array(parts: list[Any], size: int) -> Span:
    start = bytes((0x90 | size,)) + b"".join(map(_pack, parts))
    return start, prefix_end(start)
