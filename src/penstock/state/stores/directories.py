"""Directories of local stores: which one of a partition is in use, and which may go.

    <partition>/
        current          the name of the directory in use; replaced atomically
        data-<uuid>/     a store; leased by whoever has it open

Laws:
- A directory is never emptied and filled again.
- A directory is removed only under an exclusive lease: when no process has it open.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid

from penstock.state.stores.store import StoreBrokenError

LEASE = "in-use"


def take_lease(path: str) -> int:
    """A shared lock on the directory for as long as the descriptor is open; `remove_unused` takes an exclusive one."""
    lease = os.open(os.path.join(path, LEASE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lease, fcntl.LOCK_SH)
    if os.fstat(lease).st_nlink == 0:
        os.close(lease)
        raise StoreBrokenError(f"the local store in {path} was removed while it was being opened")
    return lease


def current_directory(path: str) -> str | None:
    """What `current` names."""
    try:
        with open(os.path.join(path, "current")) as file:
            name = file.read()
    except FileNotFoundError:
        return None
    return os.path.join(os.path.realpath(path), name) if name.startswith("data-") and os.sep not in name else None


def new_directory(path: str) -> str:
    """The name of a directory that nobody has had before."""
    return os.path.join(path, f"data-{uuid.uuid4().hex}")


def make_current(path: str, directory: str) -> None:
    temporary = os.path.join(path, f".current-{uuid.uuid4().hex}")
    with open(temporary, "w") as file:
        file.write(os.path.basename(directory))
    os.replace(temporary, os.path.join(path, "current"))


def remove_stale(path: str) -> int:
    """Remove directories of a partition that are not current and that no process has open; how many."""
    current = current_directory(path)
    folder = os.path.realpath(path)
    stale = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(("data-", "gone-"))]
    return sum(remove_unused(directory) for directory in stale if directory != current)


def remove_unused(directory: str) -> bool:
    """Remove the directory of a store unless a process has it open."""
    try:
        lease = os.open(os.path.join(directory, LEASE), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # being made, or being removed
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = os.path.join(os.path.dirname(directory), f"gone-{uuid.uuid4().hex}")
        os.rename(directory, gone)  # first: nobody can open what is half removed
        os.unlink(os.path.join(gone, LEASE))  # who waits for the lease then knows
        shutil.rmtree(gone, ignore_errors=True)
        return True
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(lease)
