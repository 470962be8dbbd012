"""A store in the memory of this process: the fastest, for state that fits in it several times.

Laws:
- It lives as long as the process, and is seen by no other: a process that gets a partition for the first time, or after others
  had it, catches up from the files.
- Applying a file while views are open makes a new content beside theirs.
- Memory does not grow with epochs, nor with restarts: a process has the stores of few jobs, and of each job those of its newest
  layout.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from penstock.state.entries.store_keys import HEAD_SIZE
from penstock.state.stores.store import (
    Block,
    Entries,
    StoreView,
    behind,
    blocks_of,
    check_order,
    closed,
    forget,
    keep_open,
    of_closed_view,
    open_stores,
    opened,
)

LAYOUTS = 4
"""Of how many layouts (of different jobs) a process keeps stores."""


class SortedKeys:
    """Keys in order, kept by their heads (group and state): a change costs its own part, when that is looked at."""

    __slots__ = ("_heads", "_parts", "_removed", "_unsorted")

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._parts: dict[bytes, list[bytes]] = {}
        self._heads: list[bytes] | None = None
        self._unsorted: set[bytes] = set()
        self._removed: dict[bytes, set[bytes]] = {}
        self.add(keys)

    def add(self, keys: Iterable[bytes]) -> None:
        """Keys that are not there."""
        for key in keys:
            head = key[:HEAD_SIZE]
            removed = self._removed.get(head)
            if removed and key in removed:
                removed.discard(key)
                continue
            part = self._parts.get(head)
            if part is None:
                self._parts[head] = [key]
                self._heads = None
            else:
                part.append(key)
                self._unsorted.add(head)

    def remove(self, keys: Iterable[bytes]) -> None:
        """Keys that are there."""
        for key in keys:
            self._removed.setdefault(key[:HEAD_SIZE], set()).add(key)

    def between(self, start: bytes, stop: bytes | None) -> Iterator[list[bytes]]:
        """The keys with `start <= key < stop`, in order, a head at a time."""
        if self._heads is None:
            self._heads = sorted(self._parts)
        first, last = start[:HEAD_SIZE], None if stop is None else stop[:HEAD_SIZE]
        for head in self._heads[bisect_left(self._heads, first) :]:
            if stop is not None and head >= stop:
                return
            part = self._part(head)
            low = bisect_left(part, start) if head == first else 0
            yield part[low : bisect_left(part, stop) if stop is not None and head == last else len(part)]

    def _part(self, head: bytes) -> list[bytes]:
        part = self._parts[head]
        removed = self._removed.pop(head, None)
        if removed:
            part = self._parts[head] = [key for key in part if key not in removed]
        if head in self._unsorted:
            part.sort()  # mostly a sorted run and a short one: merged, not sorted anew
            self._unsorted.discard(head)
        return part


class _Content:
    """Entries, and their order once somebody has asked for it."""

    __slots__ = ("applied", "entries", "order", "readers")

    def __init__(self, applied: str | None, entries: dict[bytes, bytes]) -> None:
        self.applied = applied
        self.entries = entries
        self.order: SortedKeys | None = None
        self.readers = 0

    def in_order(self) -> SortedKeys:
        if self.order is None:
            self.order = SortedKeys(self.entries)
        return self.order

    def change(self, blocks: list[Block]) -> None:
        for keys, values in blocks:
            if None in values:
                self._remove([key for key, value in zip(keys, values, strict=True) if value is None])
            put = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            if self.order is not None:
                self.order.add([key for key in put if key not in self.entries])
            self.entries.update(put)

    def _remove(self, keys: list[bytes]) -> None:
        there = [key for key in keys if self.entries.pop(key, None) is not None]
        if self.order is not None:
            self.order.remove(there)


class MemoryStore:
    """The committed state of a stage partition, in this process. Made by `open`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._content: _Content | None = _Content(None, {})
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str) -> MemoryStore:
        """The store of a path; the same object each time in a process, empty at first."""
        path = os.path.realpath(path)
        return opened(path, cls, lambda: cls(path))

    def applied(self) -> str | None:
        return self._open_content().applied

    def apply(self, name: str, after: str | None, blocks: Iterable[Block]) -> bool:
        """Nothing is changed before all blocks are there."""
        with self._lock:
            content = self._open_content()
            if content.applied == name:
                return False
            if content.applied != after:
                raise behind(self.path, name, after, content.applied)
            whole = list(blocks)
            for keys, _ in whole:
                check_order(keys)
            if content.readers:
                content = self._content = _Content(after, dict(content.entries))
            content.change(whole)
            content.applied = name
            return True

    def apply_entries(self, name: str, after: str | None, entries: Entries) -> bool:
        return self.apply(name, after, blocks_of(entries))

    def view(self) -> MemoryView:
        with self._lock:
            content = self._open_content()
            content.readers += 1
            return MemoryView(content, self._lock)

    def entries(self) -> int:
        return len(self._open_content().entries)

    def bytes_used(self) -> int:
        """Keys and values, without what Python adds to them."""
        entries = self._open_content().entries
        return sum(map(len, entries)) + sum(map(len, entries.values()))

    @property
    def idle(self) -> bool:
        return self._content is None or self._content.readers == 0

    def rest(self) -> None:
        """Nobody is kept out."""

    def close(self) -> None:
        """The content goes."""
        forget(self, self.abandon)

    def abandon(self) -> None:
        self._content = None

    def _open_content(self) -> _Content:
        if self._content is None:
            raise closed(self.path)
        return self._content


class MemoryView(StoreView):
    """A content that is not changed any more as long as this is open."""

    __slots__ = ("_content", "_lock", "applied", "get")

    def __init__(self, content: _Content, lock: threading.RLock) -> None:
        self._content: _Content | None = content
        self._lock = lock
        self.applied = content.applied
        self.get: Callable[[bytes], bytes | None] = content.entries.get

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        get = self.get
        return {key: value for key in keys if (value := get(key)) is not None}

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        content = self._content
        if content is None:
            of_closed_view(start)
            return
        entries = content.entries
        for keys in content.in_order().between(start, stop):
            for key in keys:
                yield key, entries[key]

    def close(self) -> None:
        content, self._content, self.get = self._content, None, of_closed_view
        if content is not None:
            with self._lock:
                content.readers -= 1


# --- the stores of a process ---------------------------------------------------------------------------------------------------

_layouts: OrderedDict[str, None] = OrderedDict()
_dropping = threading.Lock()


def current(path: str) -> MemoryStore | None:
    """The store of a partition in this process, if it has one."""
    path = os.path.realpath(path)
    _used(os.path.dirname(path))
    return next((store for store in open_stores() if isinstance(store, MemoryStore) and store.path == path), None)


def adopt(store: MemoryStore) -> None:
    """This is the partition's store from now on; those of the job's former layouts, and of jobs not seen for long, go."""
    keep_open(store)
    layout = os.path.dirname(store.path)
    kept = _used(layout)
    for other in open_stores():
        if isinstance(other, MemoryStore):
            of = os.path.dirname(other.path)
            former = of != layout and os.path.dirname(of) == os.path.dirname(layout)
            if (former or of not in kept) and other.idle:
                other.close()


def _used(layout: str) -> set[str]:
    with _dropping:
        _layouts[layout] = None
        _layouts.move_to_end(layout)
        while len(_layouts) > LAYOUTS:
            _layouts.popitem(last=False)
        return set(_layouts)
