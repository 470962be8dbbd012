"""What is in a job's storage, by kind. Names that are not ours are passed over: every listing of a job's folders is made here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.ids import Epoch, Milliseconds, Term
from penstock.jobs import paths
from penstock.storage import Listed, LocalStorage, Storage


@dataclass(frozen=True, slots=True)
class ListedEpochs:
    """The manifests, with when each was written by the storage's clock, and the done marks."""

    manifests: Mapping[Epoch, Milliseconds]
    done: frozenset[Epoch]

    @property
    def any(self) -> bool:
        return bool(self.manifests or self.done)

    @property
    def newest(self) -> Epoch:
        """The highest number there is, of a manifest or a mark; 0 without any."""
        return max((*self.manifests, *self.done), default=Epoch(0))

    @property
    def published(self) -> list[Epoch]:
        """The epochs with a manifest that are done, oldest first."""
        return sorted(self.done.intersection(self.manifests))


def epochs_in(storage: Storage) -> ListedEpochs:
    manifests: dict[Epoch, Milliseconds] = {}
    done: set[Epoch] = set()
    for listed in storage.list(paths.EPOCHS):
        if (epoch := paths.epoch_of_manifest(listed.path)) is not None:
            manifests[epoch] = listed.modified_ms
        elif (epoch := paths.epoch_of_done(listed.path)) is not None:
            done.add(epoch)
    return ListedEpochs(dict(sorted(manifests.items())), frozenset(done))


def newest_term_in(storage: Storage) -> Term:
    """The highest term that was taken; 0 if none was."""
    return max((term for listed in storage.list(paths.TERMS) if (term := paths.term_of(listed.path))), default=Term(0))


def intents_in(storage: Storage) -> list[tuple[Epoch, str]]:
    """The intents, with the epoch that each is of."""
    found = ((paths.epoch_of_intent(listed.path), listed.path) for listed in storage.list(paths.INTENTS))
    return [(epoch, path) for epoch, path in found if epoch is not None]


def state_files_in(storage: Storage) -> Iterator[Listed]:
    return (listed for listed in storage.list(paths.STATE) if paths.term_of_state_file(listed.path) is not None)


def pins_in(storage: Storage) -> list[Listed]:
    return _named(storage, paths.PINS)


def requests_in(storage: Storage) -> list[Listed]:
    return _named(storage, paths.REQUESTS)


def answers_in(storage: Storage) -> list[Listed]:
    return _named(storage, paths.ANSWERS)


def notes_in(storage: Storage) -> list[Listed]:
    return _named(storage, paths.LINEAGE)


def _named(storage: Storage, folder: str) -> list[Listed]:
    return [listed for listed in storage.list(folder) if paths.is_named(listed.path, folder)]


def find_jobs(root: Storage) -> Iterator[Storage]:
    """The storages below `root` (and itself) that hold a job. A job's own folders are not searched."""
    if isinstance(root, LocalStorage):
        for folder, below, files in os.walk(root.root):
            if paths.JOB in files:
                below.clear()
                yield LocalStorage(folder)
            below[:] = sorted(name for name in below if not name.startswith("."))
        return
    for listed in root.list():
        if listed.path == paths.JOB:
            yield root
        elif listed.path.endswith(f"/{paths.JOB}"):
            yield root.child(listed.path[: -len(paths.JOB) - 1])
