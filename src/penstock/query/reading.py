"""The committed state of a job at one epoch: all partitions together.

Law: a reading is of one manifest. Every partition is that manifest's chain of files, be they in a store or on top of one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Epoch, Milliseconds
from penstock.jobs.manifest import Manifest
from penstock.query.errors import EpochGoneError, NotHereError
from penstock.state.entries.store_keys import value_prefix
from penstock.state.files.durable import FileRef
from penstock.state.files.merging import read_live
from penstock.state.key_groups import SHARED_GROUP, KeyGroups, partition_of
from penstock.state.stores.store import StoreView
from penstock.storage import Storage

Entry = tuple[bytes, bytes]


class Reads(Protocol):
    """Entries by store key."""

    def get(self, key: bytes) -> bytes | None: ...

    def range(self, start: bytes, stop: bytes | None) -> Iterator[Entry]: ...

    def scan(self, prefix: bytes) -> Iterator[Entry]: ...


class Reading:
    """State at an epoch, until it is closed: by its maker, and by all who have taken it. Of one thread at a time: see `lock`."""

    def __init__(
        self, manifest: Manifest, groups: range, parts: dict[tuple[int, int], Reads], views: Sequence[StoreView] = ()
    ) -> None:
        self.manifest = manifest
        self.groups = groups
        """The key groups that are here."""
        self.key_groups: KeyGroups = manifest.state.key_groups
        self.lock = threading.RLock()
        self.found: dict[tuple[str, str], Any] = {}
        """For who looks states up by name: what was found."""
        self.parts = parts
        self._views = views
        self._users = 1
        layout = manifest.state
        self._stage_of = {number: stage for stage, numbers in enumerate(layout.stages) for number in numbers}
        self._by_group: dict[int, list[Reads | None]] = {}

    @property
    def epoch(self) -> Epoch:
        return self.manifest.epoch

    def watermark(self, step: str) -> Milliseconds | None:
        return self.manifest.watermarks.get(step)

    def by_group(self, number: int) -> list[Reads | None]:
        """For a state: where each key group is read."""
        found = self._by_group.get(number)
        if found is None:
            layout, stage = self.manifest.state, self._stage_of[number]
            count, parallelism = layout.max_parallelism, layout.parallelism
            parts = [self.parts.get((stage, partition_of(group, parallelism, count))) for group in range(count)]
            found = self._by_group[number] = [part if group in self.groups else None for group, part in enumerate(parts)]
        return found

    def part(self, number: int, group: int) -> Reads:
        """Where a group of a state is read."""
        layout = self.manifest.state
        if group == SHARED_GROUP:
            part = self.parts.get((self._stage_of[number], layout.parallelism - 1))
            here = self.groups.stop == layout.max_parallelism
        else:
            part = self.by_group(number)[group]
            here = group in self.groups
        if part is None or not here:
            raise NotHereError(
                f"key group {group} is not here",
                detail=f"this replica has the key groups {self.groups.start}-{self.groups.stop - 1}",
                hint="ask the replica that has it, or let the client route by key",
            )
        return part

    def get(self, number: int, group: int, raw_key: bytes) -> bytes | None:
        return self.part(number, group).get(value_prefix(group, number) + raw_key)

    def scan(self, number: int, group: int, raw_prefix: bytes = b"") -> Iterator[Entry]:
        """Raw keys and values of a group that begin so, in order."""
        for key, value in self.part(number, group).scan(value_prefix(group, number) + raw_prefix):
            yield key[4:], value

    def take(self) -> Reading:
        with self.lock:
            self._users += 1
        return self

    def close(self) -> None:
        """Let go of it; the last who does closes what is open."""
        with self.lock:
            self._users -= 1
            if self._users:
                return
            for view in self._views:
                view.close()

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FilesOfPartition:
    """A partition's chain, read from the storage each time: of an epoch that was kept."""

    def __init__(self, storage: Storage, manifest: Manifest, chain: list[FileRef]) -> None:
        self._storage = storage
        self._manifest = manifest
        self._chain = chain
        self._last: tuple[bytes, list[Entry]] | None = None

    def get(self, key: bytes) -> bytes | None:
        return next((value for found, value in self.range(key, key + b"\0") if found == key), None)

    def scan(self, prefix: bytes) -> Iterator[Entry]:
        return ((key, value) for key, value in self._group(prefix[:4]) if key.startswith(prefix))

    def range(self, start: bytes, stop: bytes | None) -> Iterator[Entry]:
        return ((key, value) for key, value in self._group(start[:4]) if start <= key and (stop is None or key < stop))

    def _group(self, head: bytes) -> list[Entry]:
        """All entries of a state in a group; those of the last one that was asked for are remembered."""
        if self._last is None or self._last[0] != head:
            group, number = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big")
            try:
                found = read_live(self._storage, self._chain, range(group, group + 1), frozenset((number,)).__contains__)
                entries = [pair for keys, values in found for pair in zip(keys, values, strict=True)]
            except (NotFoundError, CorruptFileError) as error:
                raise EpochGoneError(
                    f"epoch {self._manifest.epoch} cannot be read any more", detail=str(error), hint="read the newest one"
                ) from error
            self._last = head, entries
        return self._last[1]


def from_files(storage: Storage, manifest: Manifest) -> Reading:
    """An epoch as its files have it."""
    layout = manifest.state
    parts: dict[tuple[int, int], Reads] = {
        (stage, partition): FilesOfPartition(storage, manifest, chain)
        for stage, chains in enumerate(layout.chains)
        for partition, chain in enumerate(chains)
    }
    return Reading(manifest, range(layout.max_parallelism), parts)
