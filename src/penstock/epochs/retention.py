"""Retention: which manifests and state files are no longer needed. `keep` epochs stay; what only older ones name goes.

A manifest is retired first, its files are deleted after a grace: a reader that still uses the epoch has that long to notice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from penstock import paths
from penstock.errors import CorruptFileError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Milliseconds, Term
from penstock.runtime.manifest import Manifest, load_manifest
from penstock.runtime.orders import term_of_attempt
from penstock.storage import Storage

GRACE_MS = 5_000


def files_of(manifest: Manifest) -> set[str]:
    """Every state file that a manifest names."""
    return {ref.name for stage in manifest.state.chains for chain in stage for ref in chain}


class Retention:
    """Keeps track of what the retained manifests name."""

    def __init__(self, storage: Storage, keep: int) -> None:
        self._storage = storage
        self._keep = keep
        self.in_use: Epoch | None = None
        """The epoch that the running one goes on from: it stays, and so do those after it."""
        self._held: deque[tuple[Epoch, set[str]]] = deque()
        self._unused: deque[tuple[Milliseconds, list[str]]] = deque()

    def load(self, epochs: Iterable[Epoch]) -> None:
        """Start from the manifests that are there."""
        for epoch in epochs:
            try:
                self._held.append((epoch, files_of(load_manifest(self._storage, epoch))))
            except CorruptFileError:
                self._held.append((epoch, set()))

    def referenced(self) -> set[str]:
        return set().union(*(files for _, files in self._held)) if self._held else set()

    def known(self) -> set[str]:
        """Files that retained manifests name, or that will be deleted after their grace."""
        return self.referenced().union(*(files for _, files in self._unused))

    def committed(self, manifest: Manifest) -> None:
        """A new epoch: retire what is beyond `keep`, and delete what was retired long enough ago."""
        self._held.append((manifest.epoch, files_of(manifest)))
        retired: list[str] = []
        dropped: set[str] = set()
        while len(self._held) > self._keep and (self.in_use is None or self._held[0][0] < self.in_use):
            epoch, files = self._held.popleft()
            retired += [paths.manifest(epoch), paths.done(epoch)]
            dropped |= files
        if retired:
            self._storage.delete(retired)
            fail_point("retention:retired")
            unused = dropped - self.referenced()
            if unused:
                self._unused.append((_now(), sorted(unused)))
        self.sweep()

    def replaced(self, files: Iterable[str]) -> None:
        """Files that were made but never named by a manifest."""
        self._unused.append((_now(), list(files)))

    def sweep(self, *, everything: bool = False) -> None:
        while self._unused and (everything or self._unused[0][0] + GRACE_MS <= _now()):
            self._storage.delete(self._unused.popleft()[1])


def orphans(storage: Storage, referenced: set[str], term: Term) -> list[str]:
    """State files that no retained manifest names, written in older terms: left by attempts that failed."""
    found = []
    for listed in storage.list(paths.STATE):
        try:
            written_in = term_of_attempt(paths.attempt_of_state_file(listed.path))
        except ValueError:
            continue
        if written_in < term and listed.path not in referenced:
            found.append(listed.path)
    return found


def _now() -> Milliseconds:
    return round(time.time() * 1000)
