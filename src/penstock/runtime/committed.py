"""Committed state of a stage partition, as a task reads it: opened when first asked for, closed with the task."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial

from penstock.errors import CorruptFileError
from penstock.runtime.job import CompiledJob, Stage
from penstock.runtime.manifest import load_manifest
from penstock.runtime.orders import EpochOrder, PartitionState
from penstock.state.files import Block, FileRef, read_entries
from penstock.state.key_groups import groups_of
from penstock.state.local import open_at, store_path
from penstock.state.store import Entries, LocalStore, StoreSnapshot

_recent: OrderedDict[str, Entries] = OrderedDict()
"""The last deltas this process wrote: the next epoch applies them without reading them back."""

_RECENT = 8


def remember_delta(name: str, entries: Entries) -> None:
    _recent[name] = entries
    while len(_recent) > _RECENT:
        _recent.popitem(last=False)


class CommittedState:
    """The committed state below the order's epoch."""

    def __init__(self, job: CompiledJob, stage: Stage, partition: int, order: EpochOrder) -> None:
        self._job = job
        self._stage = stage
        self._partition = partition
        self._order = order
        self.partition_state: PartitionState = (
            order.states[stage.index][partition] if stage.index < len(order.states) else PartitionState()
        )
        self.origin = "untouched"
        self.store: LocalStore | None = None
        self._snapshot: StoreSnapshot | None = None

    def snapshot(self) -> StoreSnapshot | None:
        """The store's snapshot; None as long as nothing was ever committed."""
        if self._snapshot is None and self.origin == "untouched":
            self._open()
        return self._snapshot

    def _open(self) -> None:
        state = self.partition_state
        if not state.tail:
            self.origin = "empty"
            return
        job = self._job
        kind = job.state_store
        path = store_path(job.local_dir, job.job, job.fingerprint, job.parallelism, self._stage.index, self._partition, kind)
        whole = None if state.whole else self._whole_chain
        self.store, self.origin = open_at(path, state.tail, self._read, partial(_recent.get), whole, kind)
        self._snapshot = self.store.snapshot()

    def _whole_chain(self) -> list[FileRef]:
        manifest = load_manifest(self._job.storage, self._order.head)
        chain = manifest.state.chains[self._stage.index][self._partition]
        if not chain or chain[-1].name != self.partition_state.tail[-1].name:
            raise CorruptFileError(
                f"the manifest of epoch {self._order.head} does not name the state of stage {self._stage.index}, "
                f"partition {self._partition}",
                hint="the job's storage was changed by something else than Penstock",
            )
        return chain

    def _read(self, ref: FileRef) -> Iterator[Block]:
        groups = groups_of(self._partition, self._job.parallelism, self._job.max_parallelism)
        wanted = range(max(groups.start, ref.lo), min(groups.stop, ref.hi))
        ids = frozenset(self._stage.state_ids)
        return read_entries(self._job.storage, ref, groups=wanted, keep=ids.__contains__)

    def get(self, key: bytes) -> bytes | None:
        snapshot = self._snapshot or self.snapshot()
        return None if snapshot is None else snapshot.get(key)

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        snapshot = self.snapshot()
        return {} if snapshot is None else snapshot.get_many(keys)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        snapshot = self.snapshot()
        return iter(()) if snapshot is None else snapshot.scan(prefix)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        snapshot = self.snapshot()
        return iter(()) if snapshot is None else snapshot.range(start, stop)

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        if self.store is not None:
            self.store.rest()
