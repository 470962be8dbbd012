"""Deltas of epochs that are not committed yet, on this host: whichever worker process runs the partition next finds them.

    <store path>/layers/<epoch>-<attempt>.delta

They are caches, like the store beside them: nothing is synced, and what is missing is said to be missing, not guessed.
"""

from __future__ import annotations

import os
from posixpath import basename

import msgspec

from penstock.errors import CorruptFileError, StorageError
from penstock.ids import Term
from penstock.jobs.paths import attempt_of_state_file
from penstock.runtime.messages import plan_of_attempt, term_of_attempt
from penstock.state.files.durable import FileRef, read_entries
from penstock.storage import LocalStorage

Entries = list[tuple[bytes, bytes | None]]


class LayerCache:
    """The layers of one stage partition on this host."""

    def __init__(self, store_path: str) -> None:
        self._folder = os.path.join(store_path, "layers")
        self._storage = LocalStorage(self._folder)

    def keep(self, name: str, data: bytes) -> None:
        self._storage.replace(basename(name), data, durable=False)

    def read(self, ref: FileRef) -> Entries | None:
        """The entries of a delta; None if it is not here, or not whole."""
        try:
            blocks = read_entries(self._storage, msgspec.structs.replace(ref, name=basename(ref.name)))
            return [entry for keys, values in blocks for entry in zip(keys, values, strict=True)]
        except (StorageError, CorruptFileError):
            return None

    def forget(self, term: Term, plan: int) -> None:
        """Remove what older terms left, and this one up to a plan: it is committed, or will never be."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return
        for name in names:
            try:
                attempt = attempt_of_state_file(name)
                gone = (term_of_attempt(attempt), plan_of_attempt(attempt) or 0) <= (term, plan)
            except ValueError:
                continue  # being written
            if gone:
                try:
                    os.unlink(os.path.join(self._folder, name))
                except FileNotFoundError:
                    pass
