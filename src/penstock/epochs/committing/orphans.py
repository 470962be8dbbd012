"""Orphans of the running term: state files that attempts left which failed, or which Spark ran twice.

Laws:
- A file goes only if its attempt is settled: its plan is not above that of the newest committed epoch (plans are made and
  committed in order, so it was committed or given up), and no retained epoch names it, nor does it wait for its grace. Merged
  files are settled once they are neither being made nor handed out for an epoch that may still be on its way.
- A task that was given up may write for seconds more: so it is looked for them again and again, soon after a failure, and seldom
  without one.

What older terms left is swept when a driver takes over: see `epochs/starting/takeover.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable

from penstock.epochs.committing.compaction_runner import CompactionRunner
from penstock.epochs.committing.retention import Retention
from penstock.errors import StorageError
from penstock.failpoints import fail_point
from penstock.ids import Term
from penstock.jobs import paths
from penstock.jobs.listing import state_files_in
from penstock.jobs.manifest import Manifest
from penstock.runtime.messages import plan_of_attempt, term_of_attempt
from penstock.storage import Storage

log = logging.getLogger("penstock")

AFTER_A_FAILURE_S = 10.0
SELDOM_S = 300.0


def settled_orphans(files: Iterable[str], term: Term, plan: int, known: Collection[str], unsettled: Collection[str]) -> list[str]:
    """Which files of a term's attempts may go. Pure."""
    found = []
    for path in files:
        attempt = paths.attempt_of_state_file(path)
        try:
            own, written_by = term_of_attempt(attempt) == term, plan_of_attempt(attempt)
        except ValueError:
            continue
        settled = attempt not in unsettled if written_by is None else written_by <= plan
        if own and settled and path not in known:
            found.append(path)
    return found


class OrphanSweep:
    """Looks for orphans now and then."""

    def __init__(self, storage: Storage, term: Term) -> None:
        self._storage = storage
        self._term = term
        self._due = time.monotonic() + SELDOM_S

    def failed(self) -> None:
        """An epoch has failed: its tasks may have left something."""
        self._due = min(self._due, time.monotonic() + AFTER_A_FAILURE_S)

    def committed(self, manifest: Manifest, retention: Retention, compactor: CompactionRunner) -> None:
        """Sweep, if it is time. A sweep that fails is no reason to fail an epoch."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + SELDOM_S
        try:
            listed = [entry.path for entry in state_files_in(self._storage)]
            found = settled_orphans(listed, self._term, manifest.plan, retention.known(), compactor.unsettled())
            fail_point("orphans:found")
            self._storage.delete(found)
        except StorageError as error:
            log.warning("files of failed attempts could not be removed; trying again later: %s", error)
