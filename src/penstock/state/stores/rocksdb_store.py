"""A store in RocksDB: for state so large that a memory-mapped file is not comfortable. Needs the package `rocksdict`.

Laws, beside those of every store:
- One process has it open at a time, from the first use in a task to the task's end (`rest`). Who finds it open waits a little;
  a task that was given up and still runs then keeps its directory, and another one is filled.
- There is no write-ahead log. What is written becomes durable in the order of writing when the store rests; a kill in between
  takes it back to an earlier file of its chain.
- A file is one write. One too large for that is announced (`filling`) with its first part: a store found so is broken.
- One content: nothing is applied as long as views are open (the iterators of `rocksdict` do not respect its views).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from penstock.errors import PenstockError, StateError
from penstock.state.stores.directories import take_lease
from penstock.state.stores.store import (
    Block,
    Entries,
    StoreBrokenError,
    StoreView,
    behind,
    blocks_of,
    check_order,
    closed,
    forget,
    of_closed_view,
    opened,
)

T = TypeVar("T")

rocks: Any = import_module("rocksdict")
"""Optional, and typed where it is installed only: so it is taken as it is."""

FORMAT = 1
META_KEY = b"\x00"
"""Below every data key, which begin with a group of two bytes."""
FIRST_KEY = b"\x00\x00"
LARGEST_WRITE = 64 << 20
TIDY_ABOVE = 8
"""With more flushed files than this on the first level a store is compacted before it is closed: reads look into each."""
_CACHE = 64 << 20


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """What a store says of itself. `filling`: a file has been applied in part."""

    format: int = FORMAT
    applied: str | None = None
    entries: int = 0
    filling: bool = False


_decode_meta = msgspec.msgpack.Decoder(Meta).decode
_encode_meta = msgspec.msgpack.Encoder().encode


class RocksdbStore:
    """The committed state of a stage partition on this host. Made by `open`."""

    patience_s = 1.0
    """How long another process may have the store open, and how long views here, before one goes on without."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lease = take_lease(path)
        try:
            self._db: Any = _open(path, self.patience_s)
        except BaseException:
            os.close(self._lease)
            raise
        self._gate = threading.Condition()
        self._readers = 0

    @classmethod
    def open(cls, path: str) -> RocksdbStore:
        """The store in a directory; the same object each time in a process as long as it is open."""
        path = os.path.realpath(path)

        def make() -> RocksdbStore:
            os.makedirs(path, mode=0o700, exist_ok=True)
            return cls(path)

        return opened(path, cls, make)

    @staticmethod
    def there(path: str) -> bool:
        """Is there such a store in a directory?"""
        return os.path.exists(os.path.join(path, "CURRENT"))

    def applied(self) -> str | None:
        return self._meta().applied

    def apply(self, name: str, after: str | None, blocks: Iterable[Block]) -> bool:
        with self._gate:
            meta = self._meta()
            if meta.applied == name:
                return False
            if meta.applied != after:
                raise behind(self.path, name, after, meta.applied)
            if not self._gate.wait_for(lambda: self._readers == 0, self.patience_s):
                raise StateError(
                    f"the local store in {self.path} cannot take {name}: {self._readers} views are open on it here",
                    hint="close views before applying a file",
                )
            self._write(_Filling(self._open_db(), meta), name, blocks)
            return True

    def apply_entries(self, name: str, after: str | None, entries: Entries) -> bool:
        return self.apply(name, after, blocks_of(entries))

    def view(self) -> RocksdbView:
        with self._gate:
            meta = self._meta()
            self._readers += 1
            return RocksdbView(self._open_db(), meta.applied, self._ended)

    def entries(self) -> int:
        return self._meta().entries

    def bytes_used(self) -> int:
        """The size of its files."""
        return sum(entry.stat().st_size for entry in os.scandir(self.path))

    @property
    def idle(self) -> bool:
        return self._readers == 0

    def rest(self) -> None:
        if self.idle:
            self.close()

    def close(self) -> None:
        forget(self, self._close)

    def abandon(self) -> None:
        """Its threads did not survive the fork: it is neither used nor closed here."""
        if self._db is not None:
            _inherited.append(self._db)
            self._db = None
            os.close(self._lease)

    def _close(self) -> None:
        if self._db is not None:
            db, self._db = self._db, None
            _attempt(self.path, lambda: _tidy(db))
            _attempt(self.path, db.close)
            os.close(self._lease)

    def _write(self, filling: _Filling, name: str, blocks: Iterable[Block]) -> None:
        for keys, values in blocks:
            check_order(keys)
            _attempt(self.path, partial(filling.take, keys, values))
        _attempt(self.path, partial(filling.finish, name))

    def _meta(self) -> Meta:
        db = self._open_db()
        data = _attempt(self.path, lambda: db.get(META_KEY))
        try:
            meta = Meta() if data is None else _decode_meta(data)
        except msgspec.MsgspecError as error:
            raise StoreBrokenError("the local store's own record cannot be read", detail=str(error)) from None
        if meta.format != FORMAT or meta.filling:
            raise StoreBrokenError(f"the local store in {self.path} is of format {meta.format}, or was left half filled")
        return meta

    def _open_db(self) -> Any:
        if self._db is None:
            raise closed(self.path)
        return self._db

    def _ended(self) -> None:
        with self._gate:
            self._readers -= 1
            self._gate.notify_all()


class _Filling:
    """A file on its way into the store: one write, or several if it is large."""

    def __init__(self, db: Any, meta: Meta) -> None:
        self._db = db
        self._meta = meta
        self._entries = meta.entries
        self._batch = rocks.WriteBatch(raw_mode=True)

    def take(self, keys: list[bytes], values: list[bytes | None]) -> None:
        if self._batch.size_in_bytes() > LARGEST_WRITE:
            self._flush(msgspec.structs.replace(self._meta, filling=True))
        there = self._db.get(keys) if self._meta.entries else [None] * len(keys)
        batch = self._batch
        for key, value, before in zip(keys, values, there, strict=True):
            if value is None:
                batch.delete(key)
                self._entries -= before is not None
            else:
                batch.put(key, value)
                self._entries += before is None

    def finish(self, name: str) -> None:
        self._flush(Meta(applied=name, entries=self._entries))

    def _flush(self, meta: Meta) -> None:
        self._batch.put(META_KEY, _encode_meta(meta))
        self._db.write(self._batch, _unlogged())
        self._batch = rocks.WriteBatch(raw_mode=True)


class RocksdbView(StoreView):
    """The store's content, which does not change as long as this is open."""

    __slots__ = ("_db", "_release", "applied", "get")

    def __init__(self, db: Any, applied: str | None, release: Callable[[], None]) -> None:
        self._db: Any = db
        self._release: Callable[[], None] | None = release
        self.applied = applied
        self.get: Callable[[bytes], bytes | None] = db.get

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """In sorted order a look-up costs less."""
        if not keys:
            return {}
        ordered = sorted(keys)
        found: list[bytes | None] = self._db.get(ordered) if self._db is not None else [of_closed_view(keys[0])]
        return {key: value for key, value in zip(ordered, found, strict=True) if value is not None}

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._db is None:
            of_closed_view(start)
            return
        start = max(start, FIRST_KEY)
        if stop is not None and stop <= start:
            return
        bounds = rocks.ReadOptions()
        if stop is not None:
            bounds.set_iterate_upper_bound(stop)
        yield from self._db.items(from_key=start, read_opt=bounds)

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            self._db, self.get = None, of_closed_view
            release()


def _open(path: str, patience_s: float) -> Any:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return rocks.Rdict(path, _options())
        except Exception as error:
            if "LOCK" not in str(error) or time.monotonic() > deadline:
                raise StoreBrokenError(f"the local store in {path} cannot be opened", detail=str(error)) from error
        time.sleep(0.02)


def _options() -> Any:
    """Small and quick to open: it is opened for every task, and one process of a host may have several."""
    options = rocks.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    options.set_max_file_opening_threads(1)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    options.set_manifest_preallocation_size(64 << 10)
    options.set_write_buffer_size(64 << 20)
    options.set_compression_type(rocks.DBCompressionType.lz4())
    table = rocks.BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(_cache())
    options.set_block_based_table_factory(table)
    return options


@lru_cache(maxsize=1)
def _cache() -> Any:
    """One for all stores of the process; blocks stay in it when a store is closed and opened again."""
    return rocks.Cache(_CACHE)


@lru_cache(maxsize=1)
def _unlogged() -> Any:
    options = rocks.WriteOptions()
    options.disable_wal = True
    return options


def _tidy(db: Any) -> None:
    """Closing ends compactions half-way: now and then they are waited for."""
    if int(db.property_int_value("rocksdb.num-files-at-level0") or 0) > TIDY_ABOVE:
        while db.property_int_value("rocksdb.num-running-compactions") or db.property_int_value("rocksdb.compaction-pending"):
            time.sleep(0.001)


def _attempt(path: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except PenstockError:
        raise
    except Exception as error:
        raise StoreBrokenError(f"the local store in {path} failed", detail=f"{type(error).__name__}: {error}") from error


_inherited: list[Any] = []
