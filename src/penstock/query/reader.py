"""`StateReader`: the newest committed state of one job, without HTTP. Looks for it when it is asked."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, StateLayout
from penstock.jobs.terms import JobInfo, job_in
from penstock.query.changes import Missed, Reset, Step, steps_since
from penstock.query.committed_epochs import CommittedEpochs
from penstock.query.deltas import DeltaCache, Tail
from penstock.query.errors import RestoringError
from penstock.query.partition_stores import OwnStore, Place, Viewed, beside, tail_of
from penstock.query.reading import Reading, Reads, from_files
from penstock.state.files.durable import FileRef
from penstock.state.key_groups import ANY_GROUP, groups_of
from penstock.state.stores.store import StoreView
from penstock.storage import Storage, open_storage

LOOK_EVERY_S = 0.05
_ATTEMPTS = 10


class StateReader:
    """Reads a job's committed state. `replica`: from stores of its own, which it fills; otherwise beside the job if possible.

    `key_groups`: only these. `look_every_s`: how seldom it looks for a newer epoch. May be used by several threads.
    """

    def __init__(
        self,
        storage: str | os.PathLike[str] | Storage,
        *,
        local_dir: str | None = None,
        replica: bool = False,
        key_groups: range | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self.storage = open_storage(storage) if isinstance(storage, (str, os.PathLike)) else storage
        self.job: JobInfo = job_in(self.storage)
        self.epochs = CommittedEpochs(self.storage)
        self.deltas = DeltaCache(self.storage)
        self.replica = replica
        self._local_dir = local_dir
        self._wanted = key_groups
        self.look_every_s = look_every_s
        self._looked = 0.0
        self._lock = threading.RLock()
        self._following = threading.Lock()
        self._swapping = threading.Lock()
        self._current: Reading | None = None
        self._followed = Epoch(0)
        self._layout: tuple[str, int] | None = None
        self._beside: dict[Place, Viewed] = {}
        self._own: dict[Place, OwnStore] = {}
        self._lacking: set[Place] = set()

    # --- what is read

    def reading(self) -> Reading:
        """The newest state; to be closed. Looks for a newer epoch if the last look was a while ago."""
        with self._lock:
            if self._current is None or time.monotonic() - self._looked >= self.look_every_s:
                self.refresh()
            assert self._current is not None
            return self._current.take()

    def latest(self) -> Reading | None:
        """What the last look has found, without another one; to be closed. Waits for nobody."""
        with self._swapping:
            return None if self._current is None else self._current.take()

    def at(self, epoch: Epoch) -> Reading:
        """State at an epoch that is kept; to be closed."""
        with self._lock:
            if self._current is not None and self._current.epoch == epoch:
                return self._current.take()
            return from_files(self.storage, self.epochs.at(epoch))

    def manifest_of(self, epoch: Epoch) -> Manifest:
        """The manifest of an epoch that is kept, and in the line of the newest one."""
        with self._lock:
            return self.epochs.at(epoch)

    def steps_since(self, seen: Manifest) -> list[Step] | Missed | Reset:
        """What was committed after an epoch."""
        with self._lock:
            newest = self.epochs.look()
            return [] if newest.epoch == seen.epoch else steps_since(seen, self.epochs.line())

    def went_back(self, newest: Manifest, seen: Epoch) -> Epoch | None:
        """To which epoch, if the job has gone back behind one that somebody has seen, as far as kept epochs tell."""
        with self._lock:
            for manifest in self.epochs.line():
                if manifest.epoch <= seen:
                    return None
                if manifest.back is not None and manifest.back.to < seen:
                    return manifest.back.to
            return None

    def refresh(self) -> Reading:
        """Look for the newest epoch, and read it from now on. Views of stores are renewed, so that none is open for long."""
        with self._lock:
            made = self._newest()
            self._swap(made)
            self._looked = time.monotonic()
            return made

    def rest(self) -> None:
        """Keep no view of a store open until somebody asks."""
        with self._lock:
            self._swap(None)

    def close(self) -> None:
        self.rest()
        with self._following, self._lock:
            for store in [*self._beside.values(), *self._own.values()]:
                store.close()
            self._beside.clear()
            self._own.clear()

    def _swap(self, made: Reading | None) -> None:
        with self._swapping:
            before, self._current = self._current, made
        if before is not None:
            before.close()

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- a replica follows

    @property
    def follows(self) -> bool:
        """It has stores of its own to be kept up to date."""
        return self.replica or bool(self._own)

    def follow(self) -> Epoch:
        """Bring the stores of this process to the newest epoch; which one that is. Takes as long as it takes, from any thread."""
        with self._following:
            with self._lock:
                manifest = self.epochs.look()
                self._settle(manifest)
                own = [(place, self._own_store(place, manifest)) for place in self._places(manifest) if self._is_own(place)]
            for place, store in own:
                store.follow(self._chain(manifest.state, place), self.deltas)
            self._followed = manifest.epoch
            return manifest.epoch

    @property
    def lag(self) -> int:
        """Of stores of its own: how many epochs that are kept they lack. A few of these are read on top of them."""
        return sum(epoch > self._followed for epoch in self.epochs.listed) if self.follows else 0

    # --- how

    def _newest(self) -> Reading:
        manifest = self.epochs.look()
        problem: Exception | None = None
        for _ in range(_ATTEMPTS):
            self._settle(manifest)
            try:
                made = self._at_once(manifest)
            except (NotFoundError, CorruptFileError) as error:  # of an epoch that was retired meanwhile?
                made, problem = None, error
            if made is not None:
                return made
            newer = self.epochs.look()
            if newer.epoch == manifest.epoch:
                for place in self._lacking:  # the job's store of it is no use: from now on one is filled here
                    self._own_store(place, manifest)
                break
            manifest = newer
        if self._current is not None:
            return self._current.take()
        if problem is not None and self.epochs.is_kept(manifest.epoch):
            raise problem
        raise RestoringError(
            f"the state of epoch {manifest.epoch} is not here yet",
            detail="it is read from the job's storage",
            hint="ask again in a moment",
        )

    def _at_once(self, manifest: Manifest) -> Reading | None:
        """All partitions at the manifest's epoch; None if one of them cannot be."""
        self._lacking.clear()
        parts: dict[tuple[int, int], Reads] = {}
        views: list[StoreView] = []
        try:
            for place in self._places(manifest):
                chain = self._chain(manifest.state, place)
                part = self._part(place, manifest, chain, views) if chain else Tail(None, [])
                if part is None:
                    return None
                parts[place.stage, place.partition] = part
            made = Reading(manifest, self.groups(manifest.state), parts, views)
            views = []
            return made
        finally:
            for view in views:
                view.close()

    def _part(self, place: Place, manifest: Manifest, chain: list[FileRef], views: list[StoreView]) -> Tail | None:
        states = frozenset(manifest.state.stages[place.stage])
        for store in self._stores(place, manifest):
            view = store.view()
            tail = tail_of(view, chain, self.deltas, states)
            if tail is not None:
                if view is not None:
                    views.append(view)
                if store is self._beside.get(place) and (own := self._own.pop(place, None)) is not None:
                    own.close()  # it stood in for the job's
                return tail
            if view is not None:
                view.close()
        self._lacking.add(place)
        return None

    def _stores(self, place: Place, manifest: Manifest) -> list[Viewed]:
        found: list[Viewed] = []
        if not self.replica:
            store = self._beside.get(place)
            if store is None and (store := beside(self._local_dir, self.job.job, place)) is not None:
                self._beside[place] = store
            if store is not None:
                found.append(store)
        own = self._own.get(place)
        if own is not None or self.replica or not found:
            found.append(own or self._own_store(place, manifest))
        return found

    def _is_own(self, place: Place) -> bool:
        return self.replica or place in self._own

    def _own_store(self, place: Place, manifest: Manifest) -> OwnStore:
        found = self._own.get(place)
        if found is None:
            states = frozenset(manifest.state.stages[place.stage])
            found = self._own[place] = OwnStore(self.storage, self._local_dir, self.job.job, place, states)
        return found

    def _settle(self, manifest: Manifest) -> None:
        """Close the stores of a layout that is no more."""
        layout = manifest.state
        known = (layout.fingerprint, layout.made_in)
        if self._layout == known:
            return
        self._layout = known
        for store in [*self._beside.values(), *self._own.values()]:
            store.close()
        self._beside.clear()
        self._own.clear()

    def groups(self, layout: StateLayout) -> range:
        """The key groups that are here."""
        every = range(layout.max_parallelism)
        wanted = self._wanted
        return every if wanted is None else range(max(0, wanted.start), min(every.stop, wanted.stop))

    def _places(self, manifest: Manifest) -> list[Place]:
        layout = manifest.state
        groups = self.groups(layout)
        whole = len(groups) == layout.max_parallelism
        found = []
        for partition in range(layout.parallelism):
            own = groups_of(partition, layout.parallelism, layout.max_parallelism)
            lo, hi = max(own.start, groups.start), min(own.stop, groups.stop)
            if lo >= hi:
                continue
            if whole:
                lo, hi = 0, ANY_GROUP.stop
            elif hi == layout.max_parallelism:
                hi = ANY_GROUP.stop  # with the shared group
            name = f"{layout.fingerprint}-{layout.made_in}"
            place = Place(stage=0, partition=partition, parallelism=layout.parallelism, fingerprint=name, lo=lo, hi=hi)
            found += [replace(place, stage=stage) for stage, numbers in enumerate(layout.stages) if numbers]
        return found

    @staticmethod
    def _chain(layout: StateLayout, place: Place) -> list[FileRef]:
        chain = layout.chains[place.stage][place.partition] if layout.chains else []
        if place.lo == 0 and place.hi == ANY_GROUP.stop:
            return chain
        narrowed = [msgspec.structs.replace(ref, lo=max(ref.lo, place.lo), hi=min(ref.hi, place.hi)) for ref in chain]
        return [ref for ref in narrowed if ref.lo < ref.hi]
