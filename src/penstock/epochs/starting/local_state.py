"""A job's local stores, as far as its driver is concerned: held while it runs, removed here when it has ended for good."""

from __future__ import annotations

import logging

from penstock.epochs.executor import DropsState
from penstock.epochs.setup import Setup
from penstock.errors import StateError
from penstock.runtime.job import CompiledJob
from penstock.state.stores.cleaning import remove_finished
from penstock.state.stores.holding import Hold
from penstock.state.stores.local import hold_job

log = logging.getLogger("penstock")

PATIENCE_S = 1.0
"""How long worker processes of a session that was stopped may take to end."""


class LocalState:
    """Of one job, in one run of its loop."""

    def __init__(self, setup: Setup) -> None:
        self._kept = setup.config.storage is not None
        self._executor = setup.executor
        self._job: CompiledJob | None = None
        self._hold: Hold | None = None
        self._for_good = False
        self._patience_s = 0.0

    def hold(self, job: CompiledJob) -> None:
        """The job is driven from here. Where this host has no room for local state, there is none to hold."""
        self._job = job
        if self._hold is None:
            try:
                self._hold = hold_job(job.local_dir, job.job, job.name)
            except (OSError, StateError) as error:
                log.debug("no local state on this host: %s", error)

    def ends(self, *, finished: bool) -> None:
        """The run is over, and the executor is about to be closed. A job without a storage of its own has ended for good."""
        self._for_good = finished or not self._kept
        if self._for_good and isinstance(self._executor, DropsState) and self._executor.drop_state():
            self._patience_s = PATIENCE_S

    def leave(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.release()
        if self._for_good and self._job is not None:
            remove_finished(self._job.local_dir, self._job.job, patience=self._patience_s)
