"""Committed files of state that are not in a local store yet, in memory: a bounded cache of what they hold.

Law: a file is immutable, so what is cached of it is right for ever; `Tail` is as if the files were applied, one after another.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any

from penstock.state.entries.store_keys import prefix_end
from penstock.state.files.durable import FileRef, read_entries
from penstock.state.stores.store import Entries, StoreView
from penstock.storage import Storage

_MISSING: Any = object()
CACHE_ENTRIES = 2_000_000


class FileEntries:
    """What one file holds: keys in order, and values by key (None: deleted)."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: list[bytes], values: list[bytes | None]) -> None:
        self.keys = keys
        self.values: dict[bytes, bytes | None] = dict(zip(keys, values, strict=True))

    def entries(self) -> Entries:
        return list(self.values.items())

    def between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        first = bisect_left(self.keys, start)
        last = len(self.keys) if stop is None else bisect_left(self.keys, stop, first)
        return ((key, self.values[key]) for key in self.keys[first:last])


class DeltaCache:
    """The files that were read last, by checksum and mark. May be used by several threads."""

    def __init__(self, storage: Storage, most: int = CACHE_ENTRIES) -> None:
        self._storage = storage
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], FileEntries] = OrderedDict()
        self._held = 0

    def read(self, ref: FileRef, keep: Callable[[int], bool] | None = None) -> FileEntries:
        name = ref.checksum, ref.mark
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for more_keys, more_values in read_entries(self._storage, ref, keep=keep):
            keys += more_keys
            values += more_values
        found = FileEntries(keys, values)
        with self._lock:
            if name not in self._kept:
                self._kept[name] = found
                self._held += len(keys)
            while self._held > self._most and len(self._kept) > 1:
                self._held -= len(self._kept.popitem(last=False)[1].keys)
        return found

    def known(self, ref: FileRef) -> FileEntries | None:
        with self._lock:
            return self._kept.get((ref.checksum, ref.mark))


class Tail:
    """A store's content (None: there is none) with files on top, the oldest first."""

    def __init__(self, below: StoreView | None, files: Sequence[FileEntries]) -> None:
        self.has_store = below is not None
        self._below = below
        self._files = list(files)
        self._newest_first = [file.values for file in reversed(files)]
        self._get_below: Callable[[bytes], bytes | None] = below.get if below is not None else lambda key: None
        self.get: Callable[[bytes], bytes | None] = self._get if files else self._get_below

    def _get(self, key: bytes) -> bytes | None:
        for values in self._newest_first:
            found = values.get(key, _MISSING)
            if found is not _MISSING:
                return found  # type: ignore[no-any-return]
        return self._get_below(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.range(prefix, prefix_end(prefix))

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        below: Iterator[tuple[bytes, bytes | None]] = iter(()) if self._below is None else self._below.range(start, stop)
        runs = [file.between(start, stop) for file in reversed(self._files)]
        if not runs:
            return below  # type: ignore[return-value]
        return _newest(merge(*runs, below, key=itemgetter(0)))


def _newest(entries: Iterator[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes]]:
    """Of entries with one key the first counts: `merge` is stable, and the newest run is the first."""
    before: bytes | None = None
    for key, value in entries:
        if key != before:
            before = key
            if value is not None:
                yield key, value
