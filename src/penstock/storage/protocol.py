"""What every storage promises.

- **Exclusive.** `create` and `writer` never overwrite; of many that race for one path exactly one wins, the others get
  `AlreadyExistsError`.
- **Whole.** A reader sees all of an object or none of it; what a failed write leaves behind is never listed.
- **Durable.** When `create` returns, the object survives a power cut (unless `durable=False` was asked for).
- **Unknown is an error.** A storage whose replies may be lost looks whether an object is its own before it says that there is
  one. When it cannot be known whether a write took effect (the storage does not answer any more), `StorageError` is raised: if it
  matters, read the path back.

Paths are relative to the root, separated by `/`, without empty, `.` and `..` segments. Names that begin with `.tmp-`
are reserved. What somebody else has put there under a name that no path can have (no UTF-8, a backslash, a line break) is not
listed: whatever is listed can be read and deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO, Protocol
from urllib.parse import quote

from penstock.errors import StorageError

TEMPORARY_PREFIX = ".tmp-"

_REFUSED = re.compile(r"(?:^|/)(?:\.{0,2}(?:/|$)|\.tmp-)|[\0\n\\]")
_SURROGATES = re.compile("[\ud800-\udfff]")
"""How Python writes bytes of a file name that are no UTF-8."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it."""

    path: str
    size: int
    modified_ms: int


class Storage(Protocol):
    """Objects by path. Picklable: workers receive it."""

    @property
    def uri(self) -> str:
        """Opens the same storage again with `open_storage`."""
        ...

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a new object; `AlreadyExistsError` when there is one."""
        ...

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write an object, over an old one if need be. For status pages and hints: never a commit point."""
        ...

    def writer(self, path: str, *, durable: bool = True) -> AbstractContextManager[BinaryIO]:
        """Write a new object piece by piece: it appears when the block ends, and not at all when the block raises."""
        ...

    def read(self, path: str) -> bytes:
        """All of an object; `NotFoundError` when there is none."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """A part of an object: shorter than asked for where the object ends."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A seekable reader."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, prefix: str = "") -> Iterator[Listed]:
        """Every object below a folder (`""`: everything), sorted by path; paths are relative to the root, not to the folder."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects; those already gone are fine."""
        ...

    def child(self, path: str) -> Storage:
        """The same storage, below a folder."""
        ...

    def sweep_temporary(self, older_than: timedelta) -> int:
        """Remove what writers that died left behind; returns how many there were."""
        ...


def is_plain_path(path: str) -> bool:
    """Does it stay below the folder that it is relative to, and can every storage hold it?"""
    return _REFUSED.search(path) is None and not _SURROGATES.search(path)


def segment(name: str) -> str:
    """A name as one segment of a path, whatever is in it.

    >>> segment("rooms/hot v1.2")
    'rooms%2Fhot%20v1%2E2'
    """
    return quote(name, safe="").replace(".", "%2E")


def checked(path: str) -> str:
    """The path, if it is one that every storage can hold."""
    if not is_plain_path(path):
        raise StorageError(
            f"The storage path {path!r} is refused",
            hint="use a relative path such as 'epochs/7.json', without '..', '.', empty and '.tmp-' segments",
        )
    return path
