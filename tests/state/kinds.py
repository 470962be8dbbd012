"""The kinds of stores, for tests that run over all of them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.memory_store import MemoryStore
from penstock.state.stores.store import LocalStore, StoreKind

_ROCKSDB = find_spec("rocksdict") is not None
needs_rocksdb = pytest.mark.skipif(not _ROCKSDB, reason="the package rocksdict is not installed: pip install 'penstock[rocksdb]'")
KINDS = ["memory", "lmdb", pytest.param("rocksdb", marks=needs_rocksdb)]
INSTALLED = ["memory", "lmdb", *(["rocksdb"] if _ROCKSDB else [])]
"""For properties, which choose one."""


def open_store(kind: StoreKind, path: str) -> LocalStore:
    if kind == "memory":
        return MemoryStore.open(path)
    if kind == "lmdb":
        return LmdbStore.open(path)
    from penstock.state.stores.rocksdb_store import RocksdbStore

    return RocksdbStore.open(path)
