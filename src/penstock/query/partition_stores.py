"""Where the state of a stage partition is read: a local store, beside the job or of one's own, and files that it lacks.

    beside     the job's store in LMDB on this host; the job keeps it up to date
    own        a store that this process fills from the job's storage: what a replica has

Law: a store is used for an epoch if what it has applied last is in that epoch's chain of files; the rest of the chain is read on
top of it. A store that is ahead of the epoch is for a newer one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from penstock.query.deltas import DeltaCache, Tail
from penstock.state.files.durable import Block, FileRef, read_entries
from penstock.state.stores.holding import folder_name, job_folder
from penstock.state.stores.lmdb_reader import LmdbReader
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.local import boot_id, default_root, open_at, store_path
from penstock.state.stores.store import LocalStore, StoreBrokenError, StoreView
from penstock.state.stores.store_registry import shelf
from penstock.storage import Storage

LONGEST_TAIL = 400_000
"""Entries of files that are kept in memory on top of a store; beyond it a store of one's own is filled."""


@dataclass(frozen=True, slots=True)
class Place:
    """A stage partition in a layout."""

    stage: int
    partition: int
    parallelism: int
    fingerprint: str
    lo: int
    hi: int
    """Of its groups only these are wanted: `lo <= group < hi`."""


class Viewed(Protocol):
    """A store that can be looked at."""

    def view(self) -> StoreView | None: ...

    def close(self) -> None: ...


def beside(local_dir: str | None, job: str, place: Place) -> LmdbReader | None:
    """The job's store of a partition on this host, if there is one in LMDB."""
    root = job_folder(local_dir or default_root(), boot_id(), job)
    layout = folder_name(f"{place.fingerprint}-p{place.parallelism}-lmdb")
    folder = os.path.join(root, layout, folder_name(f"{place.stage}-{place.partition}"))
    return LmdbReader(folder) if os.path.exists(os.path.join(folder, "current")) else None


class OwnStore:
    """A store that this process fills, in a folder beside those of the jobs that run here."""

    def __init__(self, storage: Storage, local_dir: str | None, job: str, place: Place, states: frozenset[int]) -> None:
        name = f"replica-{place.fingerprint}-{place.lo}-{place.hi}"
        self._path = store_path(local_dir, job, name, place.parallelism, place.stage, place.partition, "lmdb")
        self._storage = storage
        self._states = states
        self._store: LocalStore | None = shelf("lmdb", self._path).current()

    def view(self) -> StoreView | None:
        try:
            return None if self._store is None else self._store.view()
        except StoreBrokenError:
            self._store = None
            return None

    def follow(self, chain: list[FileRef], cache: DeltaCache) -> None:
        """Bring it to the end of a chain."""
        if not chain:
            return

        def cached(ref: FileRef) -> list[tuple[bytes, bytes | None]] | None:
            found = cache.known(ref)
            return None if found is None else found.entries()

        self._store, _ = open_at(self._path, chain, self._read, cached, None, "lmdb")

    def _read(self, ref: FileRef) -> Iterator[Block]:
        return read_entries(self._storage, ref, keep=self._states.__contains__)

    def close(self) -> None:
        if isinstance(self._store, LmdbStore) and self._store.idle:
            self._store.close()
        self._store = None


def tail_of(view: StoreView | None, chain: list[FileRef], cache: DeltaCache, states: frozenset[int]) -> Tail | None:
    """A store's content and the files that it does not have; None if the store is of another chain, or too far behind."""
    applied = None if view is None else view.applied
    done = 0
    if applied is not None:
        done = next((number for number, ref in enumerate(chain, 1) if applied in (ref.mark, ref.covers)), -1)
    if done < 0 or sum(ref.entries for ref in chain[done:]) > LONGEST_TAIL:
        return None
    return Tail(view, [cache.read(ref, states.__contains__) for ref in chain[done:]])
