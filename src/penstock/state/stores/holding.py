"""Who works on a job on this host: its folder of local stores stays as long as a process holds it.

    <root>/<boot id>/<job>/in-use      locked, shared, by the job's driver and by each process that runs its tasks
                           ended       the job has ended for good: the folder goes when nobody holds it any more

Laws:
- A process holds the folder before it makes anything in it. Only a process that has the lock alone removes the folder, by giving
  it another name first: one that waited for the lock meanwhile finds that the file is gone, and makes the folder anew.
- A lock ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from urllib.parse import quote

from penstock.errors import StateError
from penstock.state.stores.directories import LEASE

ENDED = "ended"

_lock = threading.Lock()
_held: dict[str, Hold] = {}
"""By folder: what this process holds for its tasks."""


class Hold:
    """A folder that is held, until `release`."""

    def __init__(self, folder: str, name: str = "") -> None:
        self.folder = folder
        self.pid = os.getpid()
        self._file = _take(folder)
        os.utime(self._file)  # last used now
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, ENDED))
        if name and not os.fstat(self._file).st_size:
            os.write(self._file, name.encode()[:200])

    def release(self) -> None:
        """Harmless when it is released. What a forked process has inherited it lets go without disturbing its parent."""
        file, self._file = self._file, -1
        if file < 0:
            return
        try:
            if self.pid == os.getpid():
                os.utime(file)
                fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.close(file)


def job_folder(root: str, boot: str, job: str) -> str:
    return os.path.join(root, folder_name(boot), folder_name(job))


def folder_name(name: str) -> str:
    """As the name of one folder: it leads nowhere else."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def hold_for_tasks(folder: str) -> None:
    """This process runs tasks of the job from now on."""
    held = _held.get(folder)
    if held is not None and held.pid == os.getpid():
        return
    with _lock:
        held = _held.get(folder)
        if held is None or held.pid != os.getpid():
            _held[folder] = Hold(folder)
            if held is not None:
                held.release()


def held_for_tasks() -> list[str]:
    """The folders of the jobs whose tasks this process runs, or ran last."""
    with _lock:
        return [folder for folder, held in _held.items() if held.pid == os.getpid()]


def mark_ended(folder: str) -> None:
    with suppress(OSError):
        os.close(os.open(os.path.join(folder, ENDED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


def has_ended(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ENDED))


def release_for_tasks(folder: str) -> None:
    """It does so no more."""
    with _lock:
        held = _held.pop(folder, None)
    if held is not None:
        held.release()


def checked_root(root: str) -> str:
    """The directory for local state, made if need be, for this user only."""
    os.makedirs(root, mode=0o700, exist_ok=True)
    check_owner(root)
    return root


def check_owner(root: str) -> None:
    """Refuse a directory for local state that belongs to another user."""
    try:
        owner = os.stat(root).st_uid
    except FileNotFoundError:
        return
    if owner != os.getuid():
        raise StateError(
            f"the directory {root} for local state belongs to another user",
            hint="set PENSTOCK_LOCAL_DIR to a directory of your own",
        )


def _take(folder: str) -> int:
    path = os.path.join(folder, LEASE)
    while True:
        _make(folder)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # the folder has just been removed
            continue
        fcntl.flock(file, fcntl.LOCK_SH)
        if is_at(file, path):
            return file
        os.close(file)


def is_at(file: int, path: str) -> bool:
    """Is the open file still the one at the path?"""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _make(folder: str) -> None:
    boot = os.path.dirname(folder)
    for path in (boot, folder):
        try:
            os.mkdir(path, 0o700)
        except (FileExistsError, FileNotFoundError):  # not found: the one above has just been removed; the caller tries again
            pass


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
