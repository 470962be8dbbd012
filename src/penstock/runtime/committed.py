"""State of a stage partition below an epoch, as a task reads it: opened when first asked for, closed with the task.

It is the committed state in the local store and, while commits are under way, the layers of epochs that have run since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from penstock.errors import CorruptFileError, LayersLostError
from penstock.jobs.manifest import load_manifest
from penstock.runtime.frames import LapChanges
from penstock.runtime.job import CompiledJob, Stage
from penstock.runtime.layer_cache import Entries, LayerCache
from penstock.runtime.messages import EpochOrder, PartitionState
from penstock.state.files.durable import Block, FileRef, read_entries
from penstock.state.overlay.layers import Layered, Layers, Reads
from penstock.state.stores.local import open_at, store_path
from penstock.state.stores.store import LocalStore, StoreView

_recent: OrderedDict[tuple[str, str], Entries] = OrderedDict()
"""The last deltas this process wrote: the next epoch applies them without reading them back. By name and checksum, which has the
job in it: jobs in one process have files of the same names."""

_RECENT = 8

_layers: OrderedDict[str, Layers] = OrderedDict()
"""By store path: the layers that the last task of the partition saw, merged. The next one mostly needs one more."""

_LAYERS = 64


def remember_delta(ref: FileRef, entries: Entries) -> None:
    _recent[ref.name, ref.checksum] = entries
    while len(_recent) > _RECENT:
        _recent.popitem(last=False)


class CommittedState:
    """The committed state below the order's epoch."""

    def __init__(
        self, job: CompiledJob, stage: Stage, partition: int, order: EpochOrder, on_top: LapChanges | None = None
    ) -> None:
        """`on_top`: what earlier laps of the epoch have changed."""
        self._on_top = on_top.entries if on_top is not None else []
        self._job = job
        self._stage = stage
        self._partition = partition
        self._order = order
        self.partition_state: PartitionState = (
            order.states[stage.index][partition] if stage.index < len(order.states) else PartitionState()
        )
        if on_top is not None:
            self.partition_state = msgspec.structs.replace(self.partition_state, next_due=on_top.next_due)
        self.origin = "untouched"
        self.store: LocalStore | None = None
        self._view: StoreView | None = None
        self._reads: Reads | None = None
        self._path: str | None = None

    def reads(self) -> Reads | None:
        """What is to be read; None as long as there is nothing."""
        if self._reads is None and self.origin == "untouched":
            self._open()
        return self._reads

    def layers(self) -> Layers | None:
        """The layers on top of committed state, if there are any."""
        return self._merged_layers() if self.partition_state.layers else None

    @property
    def spool(self) -> LayerCache:
        """The layers of this partition on this host."""
        return LayerCache(self._store_path())

    def _open(self) -> None:
        state = self.partition_state
        if not state.tail and not state.layers:
            self.origin = "empty"
            self._put_on_top()
            return
        self.origin = "local"
        if state.tail:
            whole = None if state.whole else self._whole_chain
            kind = self._job.state_store
            self.store, self.origin = open_at(self._store_path(), state.tail, self._read, self._cached, whole, kind)
            self._reads = self._view = self.store.view()
        if state.layers:
            self._reads = Layered(self._view, self._merged_layers())
        self._put_on_top()
        self.spool.forget(self._order.term, self._order.settled)

    def _put_on_top(self) -> None:
        if self._on_top:
            lap = Layers()
            lap.add("laps", self._on_top)
            self._reads = Layered(self._reads, lap)

    def _store_path(self) -> str:
        if self._path is None:
            job = self._job
            place = (self._stage.index, self._partition)
            self._path = store_path(job.local_dir, job.job, job.fingerprint, job.parallelism, *place, job.state_store)
        return self._path

    def _cached(self, ref: FileRef) -> Entries | None:
        """The entries of a delta that was written on this host not long ago. Who opens state to check it reads the file."""
        if self._order.opens:
            return None
        found = _recent.get((ref.name, ref.checksum))
        return self.spool.read(ref) if found is None else found

    def _merged_layers(self) -> Layers:
        wanted = self.partition_state.layers
        names = tuple(ref.name for ref in wanted)
        path = self._store_path()
        found = _layers.pop(path, None)
        if found is None or found.names != names[: len(found.names)]:
            found = Layers()
        for ref in wanted[len(found.names) :]:
            entries = _recent.get((ref.name, ref.checksum)) or self.spool.read(ref)
            if entries is None:
                raise LayersLostError(
                    f"changes of an epoch that is not committed yet are not on this host: {ref.name}",
                    detail=f"stage {self._stage.index}, partition {self._partition} was run elsewhere before",
                    hint="the epoch is run again once the one before it is committed",
                )
            found.add(ref.name, entries)
        _layers[path] = found
        while len(_layers) > _LAYERS:
            _layers.popitem(last=False)
        return found

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
        return read_entries(self._job.storage, ref, keep=frozenset(self._stage.state_ids).__contains__)

    def get(self, key: bytes) -> bytes | None:
        reads = self._reads or self.reads()
        return None if reads is None else reads.get(key)

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        reads = self.reads()
        return {} if reads is None else reads.get_many(keys)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        reads = self.reads()
        return iter(()) if reads is None else reads.scan(prefix)

    def range(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        reads = self.reads()
        return iter(()) if reads is None else reads.range(start, stop)

    def close(self) -> None:
        self._reads = None
        if self._view is not None:
            self._view.close()
            self._view = None
        if self.store is not None:
            self.store.rest()
