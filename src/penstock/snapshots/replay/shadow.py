"""A storage that reads what is there and writes beside it.

Law: whatever is written, replaced or deleted through it, the storage behind it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import BinaryIO

from penstock.errors import AlreadyExistsError, NotFoundError
from penstock.storage import Listed, LocalStorage, Storage


class ShadowStorage:
    """Reads from `behind`, unless it was written here; writes into the folder `beside`."""

    def __init__(self, behind: Storage, beside: str, prefix: str = "", gone: set[str] | None = None) -> None:
        self._behind = behind
        self._folder = beside
        self._beside: Storage = LocalStorage(beside)
        self._prefix = prefix
        self._gone: set[str] = set() if gone is None else gone

    @property
    def uri(self) -> str:
        """That of the storage behind: whoever opens it only reads there."""
        return self._behind.uri

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._check_new(path)
        self._beside.create(path, data, durable=False)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._beside.replace(path, data, durable=False)

    def writer(self, path: str, *, durable: bool = True) -> AbstractContextManager[BinaryIO]:
        self._check_new(path)
        return self._beside.writer(path, durable=False)

    def read(self, path: str) -> bytes:
        return self._where(path).read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._where(path).read_range(path, offset, length)

    def open(self, path: str) -> BinaryIO:
        return self._where(path).open(path)

    def exists(self, path: str) -> bool:
        return self._beside.exists(path) or (self._prefix + path not in self._gone and self._behind.exists(path))

    def size(self, path: str) -> int:
        return self._where(path).size(path)

    def list(self, prefix: str = "") -> Iterator[Listed]:
        behind = {one.path: one for one in self._behind.list(prefix) if self._prefix + one.path not in self._gone}
        beside = {one.path: one for one in self._beside.list(prefix)}
        return iter([one for _, one in sorted({**behind, **beside}.items())])

    def delete(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        self._beside.delete(wanted)
        self._gone.update(self._prefix + path for path in wanted)

    def child(self, path: str) -> ShadowStorage:
        return ShadowStorage(self._behind.child(path), f"{self._folder}/{path}", f"{self._prefix}{path}/", self._gone)

    def sweep_temporary(self, older_than: timedelta) -> int:
        return self._beside.sweep_temporary(older_than)

    def _where(self, path: str) -> Storage:
        if self._beside.exists(path):
            return self._beside
        if self._prefix + path in self._gone:
            raise NotFoundError(f"there is no {path} in {self.uri}")
        return self._behind

    def _check_new(self, path: str) -> None:
        if self.exists(path):
            raise AlreadyExistsError(f"there is {path} in {self.uri} already")
