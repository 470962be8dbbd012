"""Removing local stores that are no longer needed.

What goes, and when:
- those of a job that is finished, or whose storage was temporary: at its end, or once the last process that had them is gone;
- those of former boots, whose paths are never used again: at the next cleaning;
- those of jobs that no process has worked on for `keep_local`: likewise.

Laws:
- A folder that a process holds stays, and so does one with a store that a process has open.
- Only folders that look like those of a job, through and through, are removed, and links are never followed.
- Of cleaners that find the same folder at once one removes it. One that dies leaves a folder `gone-…`, which the next removes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote

from penstock.state.stores.directories import LEASE
from penstock.state.stores.holding import (
    ENDED,
    check_owner,
    has_ended,
    held_for_tasks,
    is_at,
    job_folder,
    mark_ended,
    release_for_tasks,
)
from penstock.state.stores.local import boot_id, default_root
from penstock.state.stores.store import open_stores

log = logging.getLogger("penstock")

SELDOM_S = 3600.0
"""Workers clean no more often than this."""
CLEANED = ".cleaned"
"""In the root: when a cleaning ended last."""

_GONE = re.compile(r"gone-[0-9a-f]{32}")
_LAYOUT = re.compile(r".+-p\d+(?:-(?:lmdb|memory|rocksdb))?")
_PARTITION = re.compile(r".+-\d+")
_CONTENT = re.compile(r"current|\.current-[0-9a-f]+|data-[0-9a-f]+|gone-[0-9a-f]+|layers")

Why = Literal["finished", "former boot", "unused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The local stores of a job on this host."""

    path: str
    job: str
    name: str
    bytes: int
    last_used: float
    why: Why
    removed: bool = False


def clean(root: str | None = None, *, older_than: float, dry_run: bool = False) -> list[Stores]:
    """Remove what is not needed, and say what it was; `dry_run`: only say it. What is in use is not named. In seconds."""
    top = root or default_root()
    check_owner(top)
    found = [stores for stores in stores_below(top) if _may_go(stores, older_than)]
    if dry_run:
        return [stores for stores in found if not _in_use(stores.path)]
    cleaned = [replace(stores, removed=True) for stores in found if remove_folder(stores.path)]
    left = [gone for boot in _folders(top) for gone in _folders(boot) if _is_left_over(gone)]
    for gone in left:
        shutil.rmtree(gone, ignore_errors=True)
    for boot in {os.path.dirname(folder) for folder in (*left, *(stores.path for stores in cleaned))}:
        _remove_if_empty(boot)
    return cleaned


def stores_below(root: str) -> Iterator[Stores]:
    """The stores of all jobs."""
    for boot in _folders(root):
        former = unquote(os.path.basename(boot)) != boot_id()
        for job in _folders(boot):
            if _GONE.fullmatch(os.path.basename(job)) or not is_of_a_job(job):
                continue
            size, used = _size_and_use(job)
            ended = former and used < _booted()
            yield Stores(
                path=job,
                job=unquote(os.path.basename(job)),
                name=_name(job),
                bytes=size,
                last_used=used,
                why="finished" if has_ended(job) else "former boot" if ended else "unused",
            )


def is_of_a_job(folder: str) -> bool:
    """Does everything in it look like local stores, as far down as they are ours?"""
    layouts = _entries(folder)
    if not layouts:
        return False
    for layout in layouts:
        if layout.name in (LEASE, ENDED) and layout.is_file(follow_symlinks=False):
            continue
        if not _LAYOUT.fullmatch(layout.name) or not layout.is_dir(follow_symlinks=False):
            return False
        for partition in _entries(layout.path):
            if not _PARTITION.fullmatch(partition.name) or not partition.is_dir(follow_symlinks=False):
                return False
            if not all(_CONTENT.fullmatch(entry.name) and not entry.is_symlink() for entry in _entries(partition.path)):
                return False
    return True


def remove_folder(folder: str) -> bool:
    """Remove the stores of a job unless a process uses them."""
    with ExitStack() as leases:
        try:
            if not _taken_alone(os.path.join(folder, LEASE), leases):
                return False
            if not all(_taken_alone(path, leases) for path in _store_leases(folder)):
                return False
            gone = os.path.join(os.path.dirname(folder), f"gone-{uuid.uuid4().hex}")
            os.rename(folder, gone)
            os.unlink(os.path.join(gone, LEASE))  # a process that waits for it sees that
        except OSError as error:  # another cleaner was first, or a lease is a link
            log.debug("local stores stay: %s", error)
            return False
        shutil.rmtree(gone, ignore_errors=True)
        return True


def leave(root: str | None, job: str, *, for_good: bool) -> None:
    """This process runs no more tasks of a job. `for_good`: no process does. Its stores are closed, and removed if this was
    the last process here."""
    folder = job_folder(root or default_root(), boot_id(), job)
    if for_good:
        inside = os.path.join(os.path.realpath(folder), "")
        for store in open_stores():
            if store.path.startswith(inside) and store.idle:
                store.close()
    release_for_tasks(folder)
    if for_good:
        remove_finished(root, job)


def leave_others(root: str | None, job: str) -> None:
    """This process begins to run tasks of a job: those of jobs that have ended meanwhile it gives up."""
    top = root or default_root()
    for folder in held_for_tasks():
        other = unquote(os.path.basename(folder))
        if other != job and folder == job_folder(top, boot_id(), other):
            leave(root, other, for_good=has_ended(folder))


def remove_finished(root: str | None, job: str, *, patience: float = 0.0) -> bool:
    """Remove the stores of a job that has ended for good; `patience`: seconds that processes may take to end."""
    folder = job_folder(root or default_root(), boot_id(), job)
    until = time.monotonic() + patience
    while os.path.isdir(folder) and is_of_a_job(folder):
        if remove_folder(folder):
            _remove_if_empty(os.path.dirname(folder))
            return True
        if time.monotonic() >= until:
            mark_ended(folder)  # the process that still uses it, or the next cleaning, removes it
            return False
        time.sleep(0.02)
    return False


def clean_beside(root: str | None, older_than: float, *, seldom: bool = False) -> threading.Thread | None:
    """Clean in the background; `seldom`: unless it was done not long ago."""
    top = root or default_root()
    marker = os.path.join(top, CLEANED)
    if seldom:
        with suppress(OSError):
            if 0 <= time.time() - os.stat(marker).st_mtime < SELDOM_S:
                return None

    def work() -> None:
        try:
            for stores in clean(top, older_than=older_than):
                log.info("removed local stores of %s (%s): %s", stores.name or stores.job, stores.why, stores.path)
            if os.path.isdir(top):
                os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                os.utime(marker)
        except Exception as error:
            log.debug("local stores could not be cleaned: %s", error)

    thread = threading.Thread(target=work, name="penstock-clean", daemon=True)
    thread.start()
    return thread


# --- looking -------------------------------------------------------------------------------------------------------------------


def _may_go(stores: Stores, older_than: float) -> bool:
    return stores.why != "unused" or time.time() - stores.last_used >= older_than


def _booted() -> float:
    """When this machine was started. What was used before by another boot was its own; what was used since is another machine's,
    which has the same directory mounted."""
    try:
        with open("/proc/uptime") as file:
            return time.time() - float(file.read().split()[0])
    except (OSError, ValueError):
        return 0.0


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _folders(path: str) -> list[str]:
    return sorted(entry.path for entry in _entries(path) if entry.is_dir(follow_symlinks=False))


def _size_and_use(folder: str) -> tuple[int, float]:
    """The room that a tree takes on the disk, and when something in it was changed last."""
    size, used = 0, 0.0
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):
            with suppress(FileNotFoundError):
                status = os.lstat(path)
                size += status.st_blocks * 512
                used = max(used, status.st_mtime)
    return size, used


def _name(folder: str) -> str:
    """What the driver has called the job."""
    try:
        file = os.open(os.path.join(folder, LEASE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(file, "rb") as lease:
        return lease.read(200).decode(errors="replace")


def _is_left_over(folder: str) -> bool:
    """Is it what a cleaner that died has left?"""
    return _GONE.fullmatch(os.path.basename(folder)) is not None and (is_of_a_job(folder) or not _entries(folder))


def _store_leases(folder: str) -> Iterator[str]:
    for layout in _folders(folder):
        for partition in _folders(layout):
            for store in _folders(partition):
                path = os.path.join(store, LEASE)
                if os.path.lexists(path):
                    yield path


def _in_use(folder: str) -> bool:
    with ExitStack() as leases:
        paths = (os.path.join(folder, LEASE), *_store_leases(folder))
        try:
            return not all(_taken_alone(path, leases) for path in paths if os.path.lexists(path))
        except OSError:
            return True


def _taken_alone(path: str, leases: ExitStack) -> bool:
    """Lock a lease for this process alone, if it is free."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    leases.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return is_at(file, path)


def _remove_if_empty(folder: str) -> None:
    with suppress(OSError):
        os.rmdir(folder)
