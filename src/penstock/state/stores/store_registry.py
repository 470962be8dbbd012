"""Where the stores of a partition stand, by kind: in directories on the host's disk, or in this process.

A shelf gives the current store of a partition, makes a fresh one to be filled, and puts it in the current one's place.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Protocol

from penstock.errors import ConfigError
from penstock.state.stores import memory_store
from penstock.state.stores.directories import current_directory, make_current, new_directory, remove_stale
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.memory_store import MemoryStore
from penstock.state.stores.store import LocalStore, StoreBrokenError, StoreKind, open_stores


class Shelf(Protocol):
    """The stores of one partition."""

    def current(self) -> LocalStore | None:
        """The store in use, if there is one that can be opened."""
        ...

    def fresh(self) -> LocalStore:
        """An empty store that nobody else has."""
        ...

    def use(self, store: LocalStore) -> None:
        """The current store is right: what this process still has open of former ones is closed."""
        ...

    def adopt(self, store: LocalStore) -> None:
        """From now on this one is current."""
        ...


class OnDisk(Protocol):
    """A kind of store that lives in a directory."""

    def open(self, path: str) -> LocalStore: ...

    def there(self, path: str) -> bool: ...


class DiskShelf:
    """Directories of which one is current."""

    def __init__(self, path: str, kind: OnDisk) -> None:
        self._path = path
        self._kind = kind

    def current(self) -> LocalStore | None:
        directory = current_directory(self._path)
        if directory is None or not self._kind.there(directory):
            return None
        try:
            return self._kind.open(directory)
        except (StoreBrokenError, FileNotFoundError):
            return None

    def fresh(self) -> LocalStore:
        return self._kind.open(new_directory(self._path))

    def use(self, store: LocalStore) -> None:
        folder = os.path.realpath(self._path)
        for other in open_stores():
            if other is not store and os.path.dirname(other.path) == folder and other.idle:
                other.close()

    def adopt(self, store: LocalStore) -> None:
        make_current(self._path, store.path)
        self.use(store)
        remove_stale(self._path)


class MemoryShelf:
    """One store, in this process."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    def current(self) -> LocalStore | None:
        return memory_store.current(self._path)

    def fresh(self) -> LocalStore:
        return MemoryStore(self._path)

    def use(self, store: LocalStore) -> None:
        """There is no other."""

    def adopt(self, store: LocalStore) -> None:
        assert isinstance(store, MemoryStore)
        memory_store.adopt(store)


def shelf(kind: StoreKind, path: str) -> Shelf:
    """The stores of the partition at a path."""
    if kind == "memory":
        return MemoryShelf(path)
    if kind == "lmdb":
        return DiskShelf(path, LmdbStore)
    check_installed(kind)
    from penstock.state.stores.rocksdb_store import RocksdbStore

    return DiskShelf(path, RocksdbStore)


def check_installed(kind: StoreKind) -> None:
    """Refuse a kind of store whose package is not there."""
    if kind == "rocksdb" and find_spec("rocksdict") is None:
        raise ConfigError(
            "state_store is 'rocksdb', and the package rocksdict is not installed",
            hint="pip install 'penstock[rocksdb]', on the workers too; or choose lmdb or memory",
        )
