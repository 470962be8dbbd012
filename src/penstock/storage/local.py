"""Storage in a local folder (or one that all machines mount).

Links are not followed below the folders of the root, neither in listings nor when something is deleted: whoever could plant one
must not make a sweep remove what is elsewhere.

An object is written to a temporary file beside its place, synced, and given its name by `link()`, which the file system refuses
if the name is taken. Then the folder is synced, so that the name survives as well. This is on the path of every epoch: few system
calls, no pathlib.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import BinaryIO
from urllib.parse import quote

from penstock.errors import AlreadyExistsError, NotFoundError, StorageError
from penstock.failpoints import any_armed, fail_point
from penstock.storage.protocol import TEMPORARY_PREFIX, Listed, Storage, checked, is_plain_path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LocalStorage:
    """A folder as a storage."""

    def __init__(self, root: str | os.PathLike[str], private: bool = False) -> None:
        self.root = os.path.abspath(root)
        self._private = private
        self._base = self.root.rstrip("/") + "/"
        self._folders: dict[str, bool] = {}
        """Folders known to exist; true when their names are known to be durable."""

    @property
    def uri(self) -> str:
        return "file://" + quote(self.root, errors="surrogateescape")

    def __repr__(self) -> str:
        return f"LocalStorage({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStorage) and (other.root, other._private) == (self.root, self._private)

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStorage, (self.root, self._private))

    def private(self) -> LocalStorage:
        """The same storage; what is written through it only this user can read."""
        storage = LocalStorage(self.root, private=True)
        storage._folders = self._folders
        return storage

    def is_private(self, path: str) -> bool:
        """Can only its user read an object?"""
        try:
            return not os.stat(self._base + checked(path)).st_mode & 0o077
        except OSError as error:
            raise self._problem("read", path, error) from error

    def make_private(self) -> None:
        """Make the folder, if it is not there, for this user only.

        A umask that lets the group write says that others work with this user's files: then the folder is as the umask says."""
        parent = os.path.dirname(self.root)
        if not os.path.isdir(parent):
            self._make_folder(parent, durable=True)
        try:
            os.mkdir(self.root)
        except FileExistsError:
            return
        except OSError as error:
            raise self._problem("create", "", error) from error
        if not os.stat(self.root).st_mode & stat.S_IWGRP:
            os.chmod(self.root, 0o700)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        final = self._base + checked(path)
        try:
            temporary, fd = self._temporary(final, durable)
            try:
                try:
                    if any_armed():
                        half = len(data) // 2
                        _write_all(fd, data[:half])
                        fail_point(f"half-written:{path.rpartition('.')[2]}")
                        data = data[half:]
                    _write_all(fd, data)
                    if durable:
                        os.fsync(fd)
                finally:
                    os.close(fd)
                _link(temporary, final)
            finally:
                os.unlink(temporary)
            if durable:
                _sync_folder(os.path.dirname(final))
        except OSError as error:
            raise self._problem("create", path, error) from error

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        final = self._base + checked(path)
        try:
            temporary, fd = self._temporary(final, durable)
            try:
                try:
                    _write_all(fd, data)
                    if durable:
                        os.fsync(fd)
                finally:
                    os.close(fd)
                os.replace(temporary, final)
            except BaseException:
                _discard(temporary)
                raise
            if durable:
                _sync_folder(os.path.dirname(final))
        except OSError as error:
            raise self._problem("replace", path, error) from error

    @contextmanager
    def writer(self, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        final = self._base + checked(path)
        try:
            temporary, fd = self._temporary(final, durable)
        except OSError as error:
            raise self._problem("create", path, error) from error
        try:
            try:
                # The descriptor stays ours: Arrow's writers close the file they are given.
                with open(fd, "wb", buffering=1 << 18, closefd=False) as file:
                    yield file
                    try:
                        if not file.closed:
                            file.flush()
                    except OSError as error:
                        raise self._problem("create", path, error) from error
                try:
                    if durable:
                        os.fsync(fd)
                    _link(temporary, final)
                except OSError as error:
                    raise self._problem("create", path, error) from error
            finally:
                os.close(fd)
        finally:
            _discard(temporary)
        if durable:
            try:
                _sync_folder(os.path.dirname(final))
            except OSError as error:
                raise self._problem("create", path, error) from error

    def read(self, path: str) -> bytes:
        try:
            with open(self._base + checked(path), "rb", buffering=0) as file:
                return file.read()
        except OSError as error:
            raise self._problem("read", path, error) from error

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        try:
            fd = os.open(self._base + checked(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_exactly(fd, offset, length)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._problem("read", path, error) from error

    def open(self, path: str) -> BinaryIO:
        try:
            return open(self._base + checked(path), "rb")
        except OSError as error:
            raise self._problem("read", path, error) from error

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._base + checked(path))

    def size(self, path: str) -> int:
        try:
            return os.stat(self._base + checked(path)).st_size
        except OSError as error:
            raise self._problem("read", path, error) from error

    def list(self, prefix: str = "") -> Iterator[Listed]:
        prefix = prefix.rstrip("/")
        try:
            if prefix and self._leads_out(checked(prefix)):
                return iter(())
            found = sorted(self._walk(checked(prefix) + "/" if prefix else ""), key=lambda listed: listed.path)
        except OSError as error:
            raise self._problem("list", prefix, error) from error
        return iter(found)

    def delete(self, paths: Iterable[str]) -> None:
        inside: dict[str, bool] = {}
        for path in paths:
            folder = os.path.dirname(checked(path))
            try:
                if folder and folder not in inside:
                    inside[folder] = not self._leads_out(folder)
                if folder and not inside[folder]:
                    continue
                os.unlink(self._base + path)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                raise self._problem("delete", path, error) from error

    def child(self, path: str) -> LocalStorage:
        return LocalStorage(self._base + checked(path.rstrip("/")), self._private)

    def sweep_temporary(self, older_than: timedelta) -> int:
        limit_ms = time.time() * 1000 - older_than.total_seconds() * 1000
        swept = 0
        try:
            for listed in self._walk("", temporary=True):
                if listed.modified_ms <= limit_ms:
                    _discard(self._base + listed.path)
                    swept += 1
        except OSError as error:
            raise self._problem("list", "", error) from error
        return swept

    def _walk(self, folder: str, temporary: bool = False) -> Iterator[Listed]:
        """The objects (or the temporary files) below a folder, in no particular order."""
        try:
            entries = os.scandir(self._base + folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                is_temporary = entry.name.startswith(TEMPORARY_PREFIX)
                if not is_temporary and not is_plain_path(entry.name):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if not is_temporary:
                            yield from self._walk(f"{folder}{entry.name}/", temporary)
                        continue
                    if is_temporary != temporary or entry.is_dir():  # a link to a folder may lead out of the storage
                        continue
                    status = entry.stat()
                except OSError as error:
                    if isinstance(error, FileNotFoundError) or error.errno == errno.ELOOP:
                        continue  # deleted since, or a link to nowhere
                    raise
                yield Listed(folder + entry.name, status.st_size, status.st_mtime_ns // 1_000_000)

    def _leads_out(self, folder: str) -> bool:
        """Is a part of the path, below the first, a symbolic link? A folder in the root may be one: so is part of a
        storage put on another disk."""
        first, _, below = folder.partition("/")
        place = self._base + first
        for name in below.split("/") if below else ():
            place = f"{place}/{name}"
            if os.path.islink(place):
                return True
        return False

    def unlisted(self) -> Iterator[str]:
        """What is there under names that no path can have, for people."""
        for folder, below, files in os.walk(self.root):
            for name in (*below, *files):
                if not name.startswith(TEMPORARY_PREFIX) and not is_plain_path(name):
                    yield os.path.relpath(os.path.join(folder, name), self.root)

    def _temporary(self, final: str, durable: bool) -> tuple[str, int]:
        """A new temporary file in the folder of `final`, which is made if need be."""
        folder = os.path.dirname(final)
        name = f"{folder}/{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
        mode = 0o600 if self._private else 0o666
        known = self._folders.get(folder)
        if known or (known is False and not durable):
            try:
                return name, os.open(name, _CREATE, mode)
            except FileNotFoundError:  # somebody removed the folder
                self._folders.clear()
        self._make_folder(folder, durable)
        return name, os.open(name, _CREATE, mode)

    def _make_folder(self, folder: str, durable: bool) -> None:
        """Make a folder and those above it, and make their names durable.

        Inside the storage the parents are synced even where the folder was there: whoever made it may not have come to that yet.
        """
        known = self._folders.get(folder)
        if known or (known is False and not durable):
            return
        parent = os.path.dirname(folder)
        if len(folder) > len(self.root) or not os.path.isdir(parent):
            self._make_folder(parent, durable)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700 if self._private else 0o777)
        if durable:
            try:
                _sync_folder(parent)
            except PermissionError:  # a folder above the storage that may not be read, and so is not ours to make durable
                if len(folder) > len(self.root):
                    raise
        self._folders[folder] = durable

    def _problem(self, verb: str, path: str, error: OSError) -> StorageError:
        if isinstance(error, StorageError):
            return error
        place = self._base + path
        if isinstance(error, FileExistsError) and verb == "create":
            return AlreadyExistsError(f"{place} exists already")
        if isinstance(error, FileNotFoundError) and verb == "read":
            return NotFoundError(f"There is no {place}")
        if isinstance(error, IsADirectoryError | NotADirectoryError) and verb == "read":
            return NotFoundError(f"There is no object {place}", detail=str(error))
        hint = ""
        if isinstance(error, PermissionError):
            hint = "give this user the right to read and write there; the file system must also allow hard links"
        elif error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            hint = "the file system must support hard links: use a local disk or an object store"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "the disk is full: free some space, or use another storage"
        return StorageError(f"Could not {verb} {place}", detail=str(error), hint=hint)


def private(storage: Storage) -> Storage:
    """The same storage; what is written through it only this user can read. In an object store its own rules say who can."""
    return storage.private() if isinstance(storage, LocalStorage) else storage


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    if written < len(data):  # signals, and the 2 GiB limit of one write
        view = memoryview(data)
        while written < len(data):
            written += os.write(fd, view[written:])


def _read_exactly(fd: int, offset: int, length: int) -> bytes:
    data = os.pread(fd, length, offset)
    if len(data) in (length, 0):
        return data
    parts = [data]
    done = len(data)
    while done < length:
        part = os.pread(fd, length - done, offset + done)
        if not part:
            break
        parts.append(part)
        done += len(part)
    return b"".join(parts)


def _link(temporary: str, final: str) -> None:
    try:
        os.link(temporary, final)
    except FileExistsError:
        # A network file system that repeats a request may refuse what it has just done: two names are proof that it was ours.
        if os.stat(temporary).st_nlink != 2:
            raise


def _discard(file: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(file)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, _FOLDER)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
