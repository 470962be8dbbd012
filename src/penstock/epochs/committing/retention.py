"""Retention: which manifests and state files are no longer needed. `keep` epochs stay; what only older ones name goes.

A manifest is retired first, its files are deleted after a grace: a reader that still uses the epoch has that long to pin it. A
pinned epoch is not retired, and if it was retired at that very moment its files stay until it is unpinned (see `jobs/pins.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from penstock.errors import CorruptFileError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Milliseconds, Term
from penstock.jobs import paths
from penstock.jobs.listing import state_files_in
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.pins import pinned
from penstock.storage import Storage

log = logging.getLogger("penstock")

GRACE_MS = 5_000


def files_of(manifest: Manifest) -> set[str]:
    """Every file that a manifest names: of state, and tables."""
    versions = [manifest.tables, *(epoch.tables for epoch in manifest.earlier)]
    tables = {version.path for of_epoch in versions for version in of_epoch.values()}
    return tables.union(ref.name for stage in manifest.state.chains for chain in stage for ref in chain)


class Retention:
    """Keeps track of what the retained manifests name."""

    def __init__(self, storage: Storage, keep: int) -> None:
        self._storage = storage
        self._keep = keep
        self.in_use: Epoch | None = None
        """The epoch that the running one continues from: it stays, and so do those after it."""
        self._held: list[tuple[Epoch, set[str]]] = []
        self._retired: list[tuple[Milliseconds, Epoch, set[str]]] = []
        """Epochs whose manifests are gone and whose files may not be."""
        self._replaced: list[tuple[Milliseconds, list[str]]] = []
        self._tidy_after: Milliseconds = 0

    def load(self, epochs: Iterable[Epoch]) -> None:
        """Start from the manifests that are there."""
        for epoch in epochs:
            try:
                self._held.append((epoch, files_of(load_manifest(self._storage, epoch))))
            except CorruptFileError:
                self._held.append((epoch, set()))

    def referenced(self) -> set[str]:
        return set().union(*(files for _, files in self._held))

    def known(self) -> set[str]:
        """Files that retained manifests name, or that will be deleted after their grace."""
        return self.referenced().union(*(files for _, _, files in self._retired), *(files for _, files in self._replaced))

    def committed(self, manifest: Manifest) -> None:
        """A new epoch: retire what is beyond `keep`, and delete what was retired long enough ago."""
        if not self._held or self._held[-1][0] != manifest.epoch:
            self._held.append((manifest.epoch, files_of(manifest)))
        if len(self._held) > self._keep:
            self._retire()
        self.sweep()

    def _retire(self) -> None:
        held = pinned(self._storage)
        used = self.in_use
        going = [(e, files) for e, files in self._held[: -self._keep] if e not in held and (used is None or e < used)]
        if not going:
            return
        gone = {epoch for epoch, _ in going}
        self._storage.delete([path for epoch in sorted(gone) for path in (paths.manifest(epoch), paths.done(epoch))])
        fail_point("retention:retired")
        self._held = [(epoch, files) for epoch, files in self._held if epoch not in gone]
        now = _now()
        self._retired += [(now, epoch, files) for epoch, files in going]

    def replaced(self, files: Iterable[str]) -> None:
        """Files that were made but never named by a manifest."""
        self._replaced.append((_now(), list(files)))

    def sweep(self, *, everything: bool = False) -> None:
        """Delete what only epochs name that were retired long enough ago and are not pinned."""
        before = _now() if everything else _now() - GRACE_MS
        while self._replaced and self._replaced[0][0] <= before:
            self._storage.delete(self._replaced[0][1])
            del self._replaced[0]
        if not self._retired or self._retired[0][0] > before:
            return
        held = pinned(self._storage)
        due = [entry for entry in self._retired if entry[0] <= before]
        going = [(epoch, files) for _, epoch, files in due if epoch not in held]
        later = [(_now(), epoch, files) for _, epoch, files in due if epoch in held]
        retired = [entry for entry in self._retired if entry[0] > before] + later
        kept = self.referenced().union(*(files for _, _, files in retired))
        unused = set().union(*(files for _, files in going)) - kept
        if unused:
            self._storage.delete(sorted(unused))
        self._retired = retired  # only now: what could not be deleted is deleted the next time

    def tidy(self) -> None:
        """Sweep while there is nothing else to do. What cannot be deleted now is no reason to fail."""
        if _now() < self._tidy_after:
            return
        try:
            self.sweep()
        except StorageError as error:
            self._tidy_after = _now() + GRACE_MS
            log.warning("files of old epochs could not be removed; trying again: %s", error)


def orphans(storage: Storage, referenced: set[str], term: Term) -> list[str]:
    """State files that no retained manifest names, written or imported in older terms: left by attempts that failed.

    None while an epoch that was retired is being read: which files it named is no longer known.
    """
    if any(not storage.exists(paths.manifest(epoch)) for epoch in pinned(storage)):
        return []
    found = []
    for listed in state_files_in(storage):
        written_in = paths.term_of_state_file(listed.path)
        if written_in is not None and written_in < term and listed.path not in referenced:
            found.append(listed.path)
    return found


def _now() -> Milliseconds:
    return round(time.time() * 1000)
