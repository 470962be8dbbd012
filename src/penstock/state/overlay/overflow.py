"""The overlay beyond memory: changes of an epoch that were moved to a temporary store, over the committed state.

Law: reading through `Overflow` gives what reading the overlay gave before it was moved. The files go when the task ends.
"""

from __future__ import annotations

import heapq
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.state.entries.store_keys import prefix_end
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.store import Entries

if TYPE_CHECKING:
    from penstock.state.overlay.keyed import Committed

_GONE, _THERE = b"\x00", b"\x01"


class Overflow:
    """Committed state with the moved changes on top of it."""

    def __init__(self, committed: Committed) -> None:
        self._committed = committed
        self._folder = tempfile.mkdtemp(prefix="penstock-spill-")
        self._store = LmdbStore.open(self._folder)
        self._view = self._store.view()
        self._moves = 0

    def move(self, changes: Entries) -> None:
        """Take changes in; later ones win."""
        self._view.close()
        before = None if self._moves == 0 else str(self._moves)
        self._moves += 1
        marked: Entries = [(key, _GONE if value is None else _THERE + value) for key, value in sorted(changes)]
        self._store.apply_entries(str(self._moves), before, marked)
        self._view = self._store.view()

    def get(self, key: bytes) -> bytes | None:
        found = self._view.get(key)
        if found is None:
            return self._committed.get(key)
        return None if found == _GONE else found[1:]

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        moved = self._view.get_many(keys)
        found = self._committed.get_many([key for key in keys if key not in moved])
        found.update({key: value[1:] for key, value in moved.items() if value != _GONE})
        return found

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        end = prefix_end(prefix)
        assert end is not None
        return self.range(prefix, end)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        committed = ((key, 1, _THERE + value) for key, value in self._committed.range(start, stop))
        moved = ((key, 0, value) for key, value in self._view.range(start, stop))
        for key, versions in groupby(heapq.merge(moved, committed), key=itemgetter(0)):
            value = next(versions)[2]
            if value != _GONE:
                yield key, value[1:]

    def with_rest(self, rest: Entries) -> Iterator[tuple[bytes, bytes | None]]:
        """All changes in order: the moved ones, and `rest`, which is newer."""
        moved = ((key, 1, None if value == _GONE else value[1:]) for key, value in self._view.range(b"", None))
        newer: Iterable[tuple[bytes, int, bytes | None]] = ((key, 0, value) for key, value in sorted(rest))
        for key, versions in groupby(heapq.merge(moved, newer, key=itemgetter(0, 1)), key=itemgetter(0)):
            value = next(versions)[2]
            if value is not None or self._committed.get(key) is not None:
                yield key, value

    def close(self) -> None:
        self._view.close()
        self._store.close()
        shutil.rmtree(self._folder, ignore_errors=True)
