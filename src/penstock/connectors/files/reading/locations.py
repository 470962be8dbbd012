"""Where files are: a local path or glob, or a prefix of an object store, behind the same few verbs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import NotFoundError, SourceError
from penstock.storage import Storage, open_storage

_WILD = re.compile(r"[*?\[]")


class Found(msgspec.Struct, frozen=True):
    """A file that a listing shows."""

    path: str
    size: int
    mtime_ns: int


class Location(Protocol):
    """Files by path, as a source needs them."""

    @property
    def folder(self) -> str | None:
        """The folder meant, or None when the path is a glob."""

    def find(self) -> list[Found] | None:
        """The files there, in no particular order and without hidden ones; None when there is no such location."""

    def log(self) -> list[str] | None:
        """The names in `_log/`; None when the folder has none."""

    def join(self, relative: str) -> str: ...

    def open(self, path: str) -> BinaryIO: ...

    def size(self, path: str) -> int: ...

    def read(self, path: str) -> bytes: ...


def location_of(path: str) -> Location:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", path)
    if scheme is None:
        return LocalLocation(os.path.abspath(os.path.expanduser(path)))
    if scheme[1].lower() == "file":
        return LocalLocation(unquote(urlsplit(path.replace("?", "%3F")).path))
    return RemoteLocation(path)


def hidden(names: Iterable[str]) -> bool:
    """Is a file of this name, or under these folder names, to be ignored?"""
    return any(name.startswith((".", "_")) or name.endswith(".tmp") for name in names)


class LocalLocation:
    """A file, a folder with all below it, or a glob on this machine."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/") or "/"

    @property
    def folder(self) -> str | None:
        return self._path if os.path.isdir(self._path) or not _WILD.search(self._path) else None

    def find(self) -> list[Found] | None:
        if os.path.isdir(self._path):
            return list(self._walk(self._path))
        if os.path.exists(self._path):
            return list(self._stat(self._path))
        if not _WILD.search(self._path):
            return None
        found: list[Found] = []
        for path in glob.iglob(self._path, recursive=True):
            if hidden(self._below(path)):
                continue
            found.extend(self._walk(path) if os.path.isdir(path) and "**" not in self._path else self._stat(path))
        return found or None

    def _below(self, path: str) -> list[str]:
        """The part of a path that the wildcards matched: folders that the user wrote out may be called anything."""
        fixed = 0
        for part in self._path.split("/"):
            if _WILD.search(part):
                break
            fixed += 1
        return path.split("/")[fixed:]

    def _walk(self, folder: str) -> Iterator[Found]:
        try:
            entries = os.scandir(folder)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if hidden([entry.name]):
                    continue
                if entry.is_dir():
                    yield from self._walk(entry.path)
                else:
                    yield from self._stat(entry.path)

    def _stat(self, path: str) -> Iterator[Found]:
        try:
            status = os.stat(path)
        except FileNotFoundError:  # gone since it was listed
            return
        if os.path.isfile(path):
            yield Found(path, status.st_size, status.st_mtime_ns)

    def log(self) -> list[str] | None:
        try:
            return os.listdir(f"{self._path}/_log")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def join(self, relative: str) -> str:
        return f"{self._path}/{relative}"

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()


class RemoteLocation:
    """A prefix of an object store, or a glob below one. Paths are relative to the part before the first wildcard."""

    def __init__(self, uri: str) -> None:
        location, question, query = uri.partition("?")
        parts = location.rstrip("/").split("/")
        fixed = next((i for i, part in enumerate(parts) if i > 2 and _WILD.search(part)), len(parts))
        pattern = "/".join(parts[fixed:])
        self._pattern = re.compile(_as_regex(pattern)) if pattern else None
        self._storage: Storage = open_storage("/".join(parts[:fixed]) + question + query)
        # A single object is seen as the one object of its folder.
        self._single: tuple[Storage, str] | None = None
        if not pattern and len(parts) > 3:
            self._single = (open_storage("/".join(parts[:-1]) + question + query), parts[-1])

    @property
    def folder(self) -> str | None:
        return None if self._pattern else self._storage.uri

    def find(self) -> list[Found] | None:
        found = []
        for listed in self._storage.list():
            names = listed.path.split("/")
            if not hidden(names) and (self._pattern is None or self._pattern.fullmatch(listed.path)):
                found.append(Found(listed.path, listed.size, listed.modified_ms * 1_000_000))
        return found or self._one()

    def _one(self) -> list[Found] | None:
        if self._single is None:
            return None
        storage, name = self._single
        for listed in storage.list():
            if listed.path == name:
                return [Found(f"../{name}", listed.size, listed.modified_ms * 1_000_000)]
        return None

    def _locate(self, path: str) -> tuple[Storage, str]:
        if path.startswith("../") and self._single is not None:
            return self._single[0], path[3:]
        return self._storage, path

    def log(self) -> list[str] | None:
        if self._pattern is not None:
            return None
        return [listed.path.rpartition("/")[2] for listed in self._storage.list("_log")] or None

    def join(self, relative: str) -> str:
        return relative

    def open(self, path: str) -> BinaryIO:
        storage, name = self._locate(path)
        return storage.open(name)

    def size(self, path: str) -> int:
        storage, name = self._locate(path)
        return storage.size(name)

    def read(self, path: str) -> bytes:
        storage, name = self._locate(path)
        return storage.read(name)


def _as_regex(pattern: str) -> str:
    """A glob as a regular expression: `*` stays within a folder, `**/` is any number of folders."""
    out = ""
    i = 0
    while i < len(pattern):
        if pattern.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif pattern.startswith("**", i):
            out, i = out + ".*", i + 2
        elif pattern[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif pattern[i] == "[" and "]" in pattern[i + 2 :]:
            end = pattern.index("]", i + 2)
            inside = pattern[i + 1 : end].replace("\\", "\\\\")
            out, i = out + ("[^" + inside[1:] if inside.startswith("!") else "[" + inside) + "]", end + 1
        else:
            out, i = out + re.escape(pattern[i]), i + 1
    return out


def checked_size(location: Location, path: str, size: int, *, exactly: bool = False) -> None:
    """Make sure that a file still has what was seen of it when it was assigned."""
    try:
        now = location.size(path)
    except (FileNotFoundError, NotFoundError) as error:
        raise vanished(path) from error
    if now < size or (exactly and now != size):
        raise SourceError(
            f"{path} has {'shrunk' if now < size else 'changed'} since it was listed",
            detail=f"it had {size} bytes and now has {now}",
            hint="files must not be changed once they are there: write them elsewhere and move them in whole",
        )


def vanished(path: str) -> SourceError:
    return SourceError(
        f"{path} has vanished since it was listed",
        hint="files must stay until the job has read them; put it back, and the job resumes where it was",
        nature="transient",
    )
