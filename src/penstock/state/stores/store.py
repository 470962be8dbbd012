"""What a local store is: the committed state of a stage partition on this host, a cache of the durable files.

Laws of every kind:
- A store is exactly what its chain of files up to `applied()` says. A file is applied as a whole or not at all, together with its
  name, and only on top of the file it follows.
- It can be thrown away at any time: what a crash destroys is rebuilt from the files.
- A store is open once in a process, and never used across a fork.
- A view sees one content until it is closed, whatever is applied meanwhile; a store that cannot keep two contents refuses to
  apply until its views are closed.

Kinds: `memory` in this process, `lmdb` shared by all processes of a host, `rocksdb` by one process at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from operator import lt
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar

from penstock.errors import StateError
from penstock.state.entries.store_keys import prefix_end
from penstock.state.files.durable import Block as Block

StoreKind = Literal["memory", "lmdb", "rocksdb"]
Entries = list[tuple[bytes, bytes | None]]


class StoreBehindError(StateError):
    """A file cannot be applied: the store is not at the file it follows."""


class StoreBrokenError(StateError):
    """A local store cannot be used any more: it has to be rebuilt."""


class StoreView(Protocol):
    """One committed content, until it is closed. Close it soon."""

    __slots__ = ()
    applied: str | None

    @property
    def get(self) -> Callable[[bytes], bytes | None]:
        """The value of a store key."""
        ...

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of those store keys that are there."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose store key begins with `prefix`, in order."""
        return self.range(prefix, prefix_end(prefix))

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `start <= key < stop` (None: to the end), in order."""
        ...

    def close(self) -> None:
        """Harmless when it is closed."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was never opened
            self.close()


def of_closed_view(key: bytes) -> bytes | None:
    """Instead of the `get` of a view that is closed."""
    raise StateError("a closed view of the local store was used")


class LocalStore(Protocol):
    """The committed state of a stage partition on this host."""

    path: str

    def applied(self) -> str | None:
        """The name of the last file applied."""
        ...

    def apply(self, name: str, after: str | None, blocks: Iterable[Block]) -> bool:
        """Apply a file on top of the file `after` (None: on nothing). False if it has been applied already."""
        ...

    def apply_entries(self, name: str, after: str | None, entries: Entries) -> bool:
        """`apply`, from a delta in memory."""
        ...

    def view(self) -> StoreView:
        """What is committed now."""
        ...

    def entries(self) -> int:
        """How many entries there are."""
        ...

    def bytes_used(self) -> int:
        """How much room the store takes."""
        ...

    @property
    def idle(self) -> bool:
        """No view of it is open in this process, and nothing is being applied."""
        ...

    def rest(self) -> None:
        """A task has ended: release what would keep other processes out."""
        ...

    def close(self) -> None:
        """Close it in this process. The next `open` opens it again."""
        ...

    def abandon(self) -> None:
        """In a forked process: give it up without disturbing the parent's."""
        ...


def blocks_of(entries: Entries) -> list[Block]:
    """Entries in memory as what `apply` takes."""
    return [([key for key, _ in entries], [value for _, value in entries])] if entries else []


def check_order(keys: list[bytes]) -> None:
    """Refuse a block whose keys do not ascend."""
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise StateError("entries to be applied are not sorted by key", detail=f"in a block of {len(keys)}")


def behind(path: str, name: str, after: str | None, applied: str | None) -> StoreBehindError:
    return StoreBehindError(f"{name} follows {after}, but the local store is at {applied}", detail=path)


def closed(path: str) -> StateError:
    return StateError(f"the local store in {path} is closed", hint="open it; a forked process opens its own")


# --- the stores of this process ------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=LocalStore)

_opening = threading.RLock()
_open_stores: dict[str, LocalStore] = {}


def open_stores() -> list[LocalStore]:
    """The stores this process has open."""
    with _opening:
        return list(_open_stores.values())


def opened(path: str, kind: type[S], make: Callable[[], S]) -> S:
    """The store of a path; the same object each time in a process."""
    with _opening:
        store = _open_stores.get(path)
        if store is None:
            made = _open_stores[path] = make()
            return made
        if not isinstance(store, kind):
            raise StoreBrokenError(f"{path} is open as another kind of store: {type(store).__name__}")
        return store


def keep_open(store: LocalStore) -> None:
    """From now on this is the store of its path."""
    with _opening:
        _open_stores[store.path] = store


def forget(store: LocalStore, close: Callable[[], None]) -> None:
    """Close a store, while no thread can open it."""
    with _opening:
        close()
        if _open_stores.get(store.path) is store:
            del _open_stores[store.path]


def _abandon_after_fork() -> None:
    global _opening
    _opening = threading.RLock()
    for store in _open_stores.values():
        store.abandon()
    _open_stores.clear()


os.register_at_fork(after_in_child=_abandon_after_fork)
