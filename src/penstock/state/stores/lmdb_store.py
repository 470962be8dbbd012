"""A store in LMDB: one environment per stage partition, shared by the processes of a host.

Laws, beside those of every store:
- A file is applied in one transaction: a crash leaves the old content or the new, and of two processes that apply the same file
  one does.
- Nothing is synced: what a power cut destroys is rebuilt from the files (the path of a store holds the boot id).
- As long as an environment is open its directory is leased.
- Readers do not block the writer.
- The map (address space) grows by itself; that needs a moment without views in this process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

import lmdb
import msgspec

from penstock.errors import StateError
from penstock.state.stores import long_keys
from penstock.state.stores.directories import take_lease
from penstock.state.stores.lmdb_view import META_KEY, LmdbView, encode_meta, read_meta
from penstock.state.stores.store import Block, Entries, StoreBrokenError, behind, blocks_of, closed, forget, opened

T = TypeVar("T")

DEFAULT_MAP_SIZE = 16 << 30


class LmdbStore:
    """The committed state of a stage partition on this host. Made by `open`."""

    patience_s = 30.0

    def __init__(self, path: str, map_size: int) -> None:
        self.path = path
        self._lease = take_lease(path)
        try:
            self._env: lmdb.Environment | None = lmdb.open(
                path,
                map_size=map_size,
                sync=False,
                metasync=False,
                writemap=False,
                readahead=False,
                max_readers=512,
                mode=0o600,
                max_spare_txns=0,
            )
        except lmdb.Error as error:
            os.close(self._lease)
            raise StoreBrokenError(f"the local store in {path} cannot be opened", detail=str(error)) from error
        self._gate = threading.Condition()
        self._transactions = 0

    @classmethod
    def open(cls, path: str, *, map_size: int = DEFAULT_MAP_SIZE) -> LmdbStore:
        """The store in a directory; the same object each time in a process."""
        path = os.path.realpath(path)

        def make() -> LmdbStore:
            os.makedirs(path, mode=0o700, exist_ok=True)
            return cls(path, map_size)

        return opened(path, cls, make)

    @staticmethod
    def there(path: str) -> bool:
        """Is there such a store in a directory?"""
        return os.path.exists(os.path.join(path, "data.mdb"))

    def applied(self) -> str | None:
        with self.view() as view:
            return view.applied

    def apply(self, name: str, after: str | None, blocks: Iterable[Block]) -> bool:
        """Should the map have to grow, `blocks` is iterated again: what can be iterated once only is kept in memory meanwhile."""
        again = _Kept(blocks) if isinstance(blocks, Iterator) else blocks
        return self._attempt(lambda env: self._write(env, name, after, again))

    def apply_entries(self, name: str, after: str | None, entries: Entries) -> bool:
        return self.apply(name, after, blocks_of(entries))

    def view(self) -> LmdbView:
        return self._attempt(self._begin_view)

    def entries(self) -> int:
        return self._attempt(lambda env: max(0, int(env.stat()["entries"]) - 1))

    def bytes_used(self) -> int:
        """How far the file is in use, pages free for use again included."""
        return self._attempt(lambda env: (int(env.info()["last_pgno"]) + 1) * int(env.stat()["psize"]))

    def map_size(self) -> int:
        """The address space that the store may fill before it grows."""
        return self._attempt(lambda env: int(env.info()["map_size"]))

    @property
    def idle(self) -> bool:
        return self._transactions == 0

    def rest(self) -> None:
        """Nobody is kept out."""

    def close(self) -> None:
        forget(self, self._close)

    def abandon(self) -> None:
        """To close an environment ends its transactions, the parent's too: where there are any it is left as it is, and cannot be
        opened in the child. No transaction is kept for later use (`max_spare_txns=0`), for the same reason."""
        env, self._env = self._env, None
        if env is not None and self.idle:
            env.close()
        elif env is not None:
            _inherited.append(env)
        os.close(self._lease)

    def _close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
            os.close(self._lease)

    def _begin_view(self, env: lmdb.Environment) -> LmdbView:
        with self._gate:
            transaction = env.begin()
            try:
                view = LmdbView(transaction, self._ended)
            except BaseException:
                transaction.abort()
                raise
            self._transactions += 1
            return view

    def _write(self, env: lmdb.Environment, name: str, after: str | None, blocks: Iterable[Block]) -> bool:
        with self._gate:
            self._transactions += 1
        try:
            return _apply(env, name, after, blocks)
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._gate:
            self._transactions -= 1
            self._gate.notify_all()

    def _attempt(self, action: Callable[[lmdb.Environment], T]) -> T:
        """Do something with the environment; again, if the map had to grow."""
        while True:
            env = self._env
            if env is None:
                raise closed(self.path)
            try:
                return action(env)
            except lmdb.MapFullError:
                self._resize(env, 2 * int(env.info()["map_size"]))
            except lmdb.MapResizedError:
                self._resize(env, 0)
            except lmdb.Error as error:
                detail = f"{type(error).__name__}: {error}"
                raise StoreBrokenError(f"the local store in {self.path} failed", detail=detail) from error

    def _resize(self, env: lmdb.Environment, size: int) -> None:
        with self._gate:
            if not self._gate.wait_for(lambda: self._transactions == 0, self.patience_s):
                raise StateError(
                    f"the local store in {self.path} must grow, but {self._transactions} transactions are open on it here",
                    hint="close views before applying a file",
                )
            env.set_mapsize(size)


class _Kept:
    """Blocks that come once, remembered."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._seen: list[Block] = []
        self._rest = iter(blocks)

    def __iter__(self) -> Iterator[Block]:
        yield from self._seen
        for block in self._rest:
            self._seen.append(block)
            yield block


def _apply(env: lmdb.Environment, name: str, after: str | None, blocks: Iterable[Block]) -> bool:
    env.reader_check()  # a killed reader would keep pages from being used again
    with env.begin(write=True) as transaction:
        meta = read_meta(transaction)
        if meta.applied == name:
            return False
        if meta.applied != after:
            raise behind(str(env.path()), name, after, meta.applied)
        long = meta.long
        for keys, values in blocks:
            long = _put(transaction, keys, values) or long
        transaction.put(META_KEY, encode_meta(msgspec.structs.replace(meta, applied=name, long=long)))
        return True


def _put(transaction: lmdb.Transaction, keys: list[bytes], values: list[bytes | None]) -> bool:
    """Write a block; True if it has keys above 470 bytes."""
    if not keys:
        return False
    long = max(map(len, keys)) > long_keys.KEPT
    puts, put_values = keys, cast(list[bytes], values)
    if None in values:
        for key, value in zip(keys, values, strict=True):
            if value is None:
                transaction.delete(long_keys.stored_key(key) if long and long_keys.is_long(key) else key)
        puts = [key for key, value in zip(keys, values, strict=True) if value is not None]
        put_values = [value for value in values if value is not None]
    if not puts:
        return long
    if long:
        puts, put_values = long_keys.shortened(puts, put_values)
    with transaction.cursor() as cursor:
        append = not long and (not cursor.last() or cast(bytes, cursor.key()) < puts[0])
        _, added = cursor.putmulti(zip(puts, put_values, strict=True), append=append)
    if added != len(puts):
        raise StateError("entries to be applied are not sorted by key", detail=f"{added} of {len(puts)} were put")
    return long


_inherited: list[lmdb.Environment] = []
