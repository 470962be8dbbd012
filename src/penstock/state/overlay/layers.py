"""Changes of epochs that have run but are not committed: layers over the committed state.

Law: layers are never written to a store. A reader sees the newest layer that has a key, and committed state where none has it; a
key that a layer removed is not there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from penstock.state.entries.store_keys import prefix_end

Entry = tuple[bytes, bytes | None]

_UNKNOWN: Any = object()


class Reads(Protocol):
    """Committed state, or what looks like it."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]: ...


class Layers:
    """Several layers as one; `names` are the files they are from, oldest first."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.newest: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] | None = None

    def add(self, name: str, entries: Iterable[Entry]) -> None:
        """Put a layer on top."""
        self.newest.update(entries)
        self.names += (name,)
        self._sorted = None

    def between(self, start: bytes, stop: bytes | None) -> list[Entry]:
        """Entries with `start <= key < stop`, in order."""
        keys = self._keys()
        first = bisect_left(keys, start)
        last = len(keys) if stop is None else bisect_left(keys, stop, first)
        newest = self.newest
        return [(key, newest[key]) for key in keys[first:last]]

    def entries(self) -> list[Entry]:
        """All of them, in order."""
        newest = self.newest
        return [(key, newest[key]) for key in self._keys()]

    def _keys(self) -> list[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self.newest)
        return self._sorted


class Layered:
    """Committed state (None: there is none) with layers on top."""

    def __init__(self, below: Reads | None, layers: Layers) -> None:
        self._below = below
        self._layers = layers

    def get(self, key: bytes) -> bytes | None:
        found = self._layers.newest.get(key, _UNKNOWN)
        if found is not _UNKNOWN:
            return found  # type: ignore[no-any-return]
        return None if self._below is None else self._below.get(key)

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        newest = self._layers.newest
        rest = [key for key in keys if key not in newest]
        found = self._below.get_many(rest) if self._below is not None and rest else {}
        if len(rest) < len(keys):
            found.update({key: value for key in keys if (value := newest.get(key)) is not None})
        return found

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.range(prefix, prefix_end(prefix))

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        on_top = self._layers.between(start, stop)
        below = iter(()) if self._below is None else self._below.range(start, stop)
        if not on_top:
            return below
        return _merged(on_top, below)


def _merged(on_top: list[Entry], below: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    lower = next(below, None)
    for key, value in on_top:
        while lower is not None and lower[0] < key:
            yield lower
            lower = next(below, None)
        if lower is not None and lower[0] == key:
            lower = next(below, None)
        if value is not None:
            yield key, value
    if lower is not None:
        yield lower
        yield from below
