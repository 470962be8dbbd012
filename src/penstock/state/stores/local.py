"""Where local stores are, and how one is brought to a given file.

    <root>/<boot id>/<job>/<fingerprint>-p<parallelism>-<kind>/<stage>-<partition>/

Laws:
- After rescaling the files of a partition are others, so its path is another too (`fingerprint`, with the term of the layout). So
  is it with another kind of store: nothing is converted, every kind is built from the same files.
- A store is usable for a chain of files if what it has applied last is in the chain, or it is empty. It is then caught up in
  place; otherwise a new one is filled and made current.
- Of processes that do this at once each ends with a store that is right for its own chain; which one is current does not matter.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Literal

from penstock.state.files.durable import FileRef
from penstock.state.stores.holding import Hold, checked_root, folder_name, hold_for_tasks, job_folder
from penstock.state.stores.store import Block, Entries, LocalStore, StoreBehindError, StoreBrokenError, StoreKind
from penstock.state.stores.store_registry import shelf

Origin = Literal["local", "rebuilt"]
ReadBlocks = Callable[[FileRef], Iterable[Block]]
CachedEntries = Callable[[FileRef], "Entries | None"]

_ATTEMPTS = 20


def store_path(
    root: str | None,
    job_uuid: str,
    fingerprint: str,
    parallelism: int,
    stage: str | int,
    partition: int,
    kind: StoreKind = "lmdb",
) -> str:
    """The path of a stage partition's store on this host, since it was started; made if need be, for this user only.

    From now on this process holds the job's folder: see `holding`."""
    path = job_folder(checked_root(root or default_root()), boot_id(), job_uuid)
    hold_for_tasks(path)
    for name in (f"{fingerprint}-p{parallelism}-{kind}", f"{stage}-{partition}"):
        path = os.path.join(path, folder_name(name))
        os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def hold_job(root: str | None, job_uuid: str, name: str) -> Hold:
    """For a job's driver: its stores on this host stay until this is released."""
    return Hold(job_folder(checked_root(root or default_root()), boot_id(), job_uuid), name)


def default_root() -> str:
    """`$PENSTOCK_LOCAL_DIR`, or `penstock-<uid>` in the directory for temporary files."""
    return os.environ.get("PENSTOCK_LOCAL_DIR") or os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}")


@lru_cache(maxsize=1)
def boot_id() -> str:
    """What distinguishes this run of the machine. Where that cannot be told, this process: then nothing is shared."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        pass
    try:
        found = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, timeout=5, check=True)
        if found.stdout.strip():
            return found.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return f"process-{os.getpid()}-{uuid.uuid4().hex}"


def open_at(
    path: str,
    chain: list[FileRef],
    read: ReadBlocks,
    cached: CachedEntries = lambda ref: None,
    whole: Callable[[], list[FileRef]] | None = None,
    kind: StoreKind = "lmdb",
) -> tuple[LocalStore, Origin]:
    """The store in `path`, at the last file of `chain`. `cached` may know a delta's entries without reading.

    `whole`: `chain` is only the end of the chain that this gives; a store that is further behind, or new, needs all of it.
    """
    stores = shelf(kind, path)
    for _ in range(_ATTEMPTS):
        store = stores.current()
        if store is None:
            break
        try:
            applied = store.applied()
            done = _position(applied, chain) if applied is not None or whole is None else None
            if done is None and whole is not None:
                chain, whole = whole(), None
                done = _position(applied, chain)
            if done is None:
                break
            _catch_up(store, applied, chain[done:], read, cached)
        except StoreBehindError:
            continue  # another process is applying too: look again
        except StoreBrokenError:
            break
        stores.use(store)
        return store, "local"
    if whole is not None:
        chain = whole()
    store = stores.fresh()
    _catch_up(store, None, chain, read, cached)
    stores.adopt(store)
    return store, "rebuilt" if chain else "local"


def _position(applied: str | None, chain: list[FileRef]) -> int | None:
    """How many files of the chain a store has; None if it belongs to another chain."""
    if applied is None:
        return 0
    for number, ref in enumerate(chain, 1):
        if applied in (ref.mark, ref.covers):
            return number
    return None


def _catch_up(store: LocalStore, after: str | None, files: list[FileRef], read: ReadBlocks, cached: CachedEntries) -> None:
    for ref in files:
        entries = cached(ref) if ref.whole and ref.kind == "delta" else None
        if entries is not None:
            store.apply_entries(ref.mark, after, entries)
        else:
            store.apply(ref.mark, after, _Reread(read, ref))
        after = ref.mark


class _Reread:
    """A file's blocks, read anew each time they are iterated."""

    def __init__(self, read: ReadBlocks, ref: FileRef) -> None:
        self._read = read
        self._ref = ref

    def __iter__(self) -> Iterator[Block]:
        return iter(self._read(self._ref))
