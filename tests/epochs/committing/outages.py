"""A storage that fails at a given call, for a while: before the call takes effect, or after, so that only the reply is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from penstock.errors import StorageError
from penstock.storage import LocalStorage

METHODS = ("create", "replace", "read", "read_range", "open", "exists", "size", "list", "delete", "sweep_temporary")
WRITES = ("create", "replace", "writer", "delete")


class Outage:
    """Breaks every `LocalStorage` below a folder, at calls `first` to `last` (from 1) of all threads but the lease's."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, first: int = 0, last: int = 0, *, lost: bool = False) -> None:
        self._root = str(root)
        self._first, self._last, self._lost = first, last, lost
        self._asleep = False
        self._lock = threading.Lock()
        self.calls: list[str] = []
        self.failed = 0
        for name in METHODS:
            patch.setattr(LocalStorage, name, self._broken(name, getattr(LocalStorage, name)))
        patch.setattr(LocalStorage, "writer", self._broken_writer(LocalStorage.writer))

    @contextmanager
    def over(self) -> Iterator[None]:
        """Somebody else uses the storage, for whom it works."""
        self._asleep = True
        try:
            yield
        finally:
            self._asleep = False

    def begin(self) -> None:
        """From now on nothing works."""
        self._first, self._last = 0, 10**9

    def _fails(self, storage: LocalStorage, call: str) -> bool:
        if self._asleep or not storage.root.startswith(self._root):
            return False
        with self._lock:
            if threading.current_thread().name != "penstock-lease":
                self.calls.append(call)
            fails = self._first <= len(self.calls) <= self._last
            self.failed += fails
            return fails

    def _broken(self, name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def broken(storage: LocalStorage, *args: Any, **options: Any) -> Any:
            if not self._fails(storage, f"{name} {args[:1]}"):
                return whole(storage, *args, **options)
            if self._lost and name in WRITES:
                whole(storage, *args, **options)
            raise StorageError(f"the storage gave no answer to {name}")

        return broken

    def _broken_writer(self, whole: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def broken(storage: LocalStorage, path: str, **options: Any) -> Iterator[BinaryIO]:
            fails = self._fails(storage, f"writer {path}")
            if fails and not self._lost:
                raise StorageError("the storage gave no answer to writer")
            with whole(storage, path, **options) as file:
                yield file
            if fails:
                raise StorageError("the storage gave no answer to writer")

        return broken
