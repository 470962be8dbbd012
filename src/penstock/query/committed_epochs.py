"""The epochs that a job has committed, followed through its storage.

Laws:
- The epoch that is told never goes back.
- An epoch that the job went back behind is not in its line any more: it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Epoch
from penstock.jobs import paths
from penstock.jobs.listing import epochs_in
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.terms import JobInfo, check_same_job, read_job
from penstock.query.errors import EpochGoneError, RestoringError
from penstock.storage import Storage

KEPT_IN_MEMORY = 64
_ATTEMPTS = 10


class CommittedEpochs:
    """Looks for the newest manifest. Not for several threads at once."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.head: Manifest | None = None
        self.listed: tuple[Epoch, ...] = ()
        self._known: dict[Epoch, Manifest] = {}
        self._job: JobInfo | None = None

    def look(self) -> Manifest:
        """The newest manifest now."""
        for _ in range(_ATTEMPTS):
            try:
                self._job = self._job or read_job(self.storage)
            except NotFoundError:
                break
            self.listed = tuple(epochs_in(self.storage).manifests)
            newest = max(self.listed, default=None)
            if newest is None:
                break
            if self.head is not None and newest <= self.head.epoch:
                return self.head
            found = self._load(newest)
            if found is not None:
                self.head = found
                return found
        if self.head is not None:
            return self.head
        raise RestoringError("the job has committed no epoch yet", hint="ask again in a moment: it has begun, or will")

    def at(self, epoch: Epoch) -> Manifest:
        """The manifest of an epoch that is kept, and in the line of the newest one."""
        found = next((manifest for manifest in self.line() if manifest.epoch <= epoch), None)
        if found is None or found.epoch != epoch:
            kept = ", ".join(str(manifest.epoch) for manifest in reversed([*self.line()]))
            raise EpochGoneError(f"epoch {epoch} is not kept", detail=f"kept are {kept}", hint="keep more epochs with keep=")
        return found

    def line(self) -> Iterator[Manifest]:
        """The kept manifests that led to the newest one, newest first."""
        manifest = self.look()
        while True:
            yield manifest
            before = self._load(manifest.parent) if manifest.parent else None
            if before is None:
                return
            manifest = before

    def is_kept(self, epoch: Epoch) -> bool:
        return self.storage.exists(paths.manifest(epoch))

    def _load(self, epoch: Epoch) -> Manifest | None:
        """None if it has been retired just now."""
        found = self._known.get(epoch)
        if found is not None:
            return found
        try:
            found = load_manifest(self.storage, epoch)
        except (CorruptFileError, NotFoundError):
            if self.is_kept(epoch):
                raise
            return None
        assert self._job is not None
        check_same_job(self.storage, self._job, found)
        self._known[epoch] = found
        while len(self._known) > KEPT_IN_MEMORY:
            del self._known[min(self._known)]
        return found
