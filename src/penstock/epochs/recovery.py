"""What the loop does about a failure: wait and try again, or give up with the reason.

An epoch that fails before its manifest has had no effect: it is planned anew, with a new plan number. Epochs that ran on top of
one whose commit failed are discarded with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.epochs.committing.intents import read_intent
from penstock.epochs.committing.persisting import Persistence
from penstock.epochs.committing.pipeline import RanEpoch
from penstock.epochs.driven import Driven
from penstock.epochs.lifecycle import Lifecycle
from penstock.epochs.planning.next_manifest import manifest_without
from penstock.epochs.planning.restarting import GiveUp, Seen, after_failures, seen
from penstock.epochs.setup import Setup
from penstock.epochs.stop_requests import StopRequests
from penstock.errors import (
    CorruptFileError,
    DeltaTooLargeError,
    ExecutorLostError,
    FencedError,
    LayersLostError,
    PenstockError,
    SinkRefusedError,
    StorageError,
)
from penstock.ids import Epoch
from penstock.jobs.terms import fenced, find_head
from penstock.jobs.wholeness import is_damaged, state_files, with_way_out

log = logging.getLogger("penstock")

CAREFUL = 20
"""This many epochs wait for the commit of the one before, after layers were not where a task ran."""


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Of one loop. `overdue`: why the stop is not to be waited for any longer, "" if it is."""

    setup: Setup
    driven: Driven
    persistence: Persistence
    requests: StopRequests
    lifecycle: Lifecycle
    overdue: Callable[[], str]
    careful: int = 0
    _failures: list[Seen] = field(default_factory=list)
    """In a row: since the last epoch that ran, or the job was idle."""
    _unmade: Epoch | None = None
    """The head when a commit on top of it failed: until one succeeds, that failure counts."""
    _tried: list[RanEpoch] = field(default_factory=list)
    """Epochs whose commit failed, until it is known whether they are committed."""

    def attempt(self, step: Callable[[], bool]) -> bool:
        """Take a step, and recover if it fails: the restart policy decides about every kind of failure. False: there are more."""
        try:
            return step()
        except (FencedError, SinkRefusedError):
            raise
        except DeltaTooLargeError:
            self.driven.checkpoints.wanted = True
        except LayersLostError as error:
            log.info("%s", error.what)
            self.careful = CAREFUL
            self._recover(error, free=True)
        except CorruptFileError as error:
            self._give_up_if_damaged(error)
            self._recover(error)
        except PenstockError as error:
            self._recover(error)
        return False

    def forgive(self) -> None:
        """An epoch has run, or there is nothing to do: what failed before no longer counts, unless it was a commit, and is yet to
        succeed."""
        if self._unmade is None or self.driven.pipeline.head.epoch > self._unmade:
            self._failures, self._unmade = [], None

    def _recover(self, error: PenstockError, *, free: bool = False) -> None:
        """`free`: this failure does not count."""
        while True:
            if self.overdue():
                raise error
            if not free:
                self.lifecycle.enter("recovering")
                self._wait_after(error)
            try:
                if isinstance(error, ExecutorLostError):
                    self.setup.executor.restart()
                self._regroup(error)
                if self.setup.config.guarantee == "at-most-once":
                    self._skip_failed()
                break
            except (FencedError, SinkRefusedError):
                raise
            except PenstockError as another:  # the storage, say, is not back yet
                error, free = another, False
        if self.lifecycle.state == "recovering":
            self.lifecycle.enter("running")

    def _give_up_if_damaged(self, error: CorruptFileError) -> None:
        """A damaged file of state stays damaged; and the longer the job runs, the fewer whole epochs are kept."""
        storage, head = self.setup.storage, self.driven.pipeline.head
        try:
            damaged = is_damaged(storage, error.what, state_files(head.state))
            found = with_way_out(storage, head.job, error, self.setup.invocation) if damaged else None
        except StorageError as another:
            log.warning("cannot tell now whether state is damaged: %s", another.what)
            return
        if found is not None:
            raise found from error

    def _wait_after(self, error: PenstockError) -> None:
        self._failures.append(seen(error))
        self.persistence.restarts += 1
        self.driven.orphans.failed()
        config = self.setup.config
        verdict = after_failures(self._failures, config.restart, skips=config.guarantee == "at-most-once")
        if isinstance(verdict, GiveUp):
            error.add_note(f"{verdict.because}; the last committed epoch is {self.driven.pipeline.head.epoch}")
            raise error
        if verdict.repeated:
            log.warning("the same error again; trying again in %d ms: %s", verdict.delay_ms, error.what)
        else:
            log.warning("failure %d in a row; trying again in %d ms: %s", len(self._failures), verdict.delay_ms, error)
        self.persistence.pause(verdict.delay_ms / 1000)

    def _regroup(self, error: PenstockError) -> None:
        """What can still be committed is; what was run on top of what cannot is discarded."""
        driven, pipeline = self.driven, self.driven.pipeline
        failed = isinstance(error, LayersLostError)
        try:
            pipeline.drain()
        except (FencedError, SinkRefusedError):
            raise
        except PenstockError:
            failed = True
            self._unmade = pipeline.head.epoch
        _, waiting = pipeline.look()
        if failed and waiting:
            discarded = pipeline.discard()
            self._tried = discarded.tried
            for ran in discarded.untouched:
                driven.abort(ran.manifest.epoch, ran.reports)
        committed = find_head(self.setup.storage).manifest
        if committed is not None and committed.epoch > pipeline.head.epoch:
            # The outcome of creating the manifest was not known, and it was created after all.
            if committed.term != driven.term:
                raise fenced(committed.epoch) from error
            driven.commits.complete(committed)
            if self._tried and self._tried[-1].manifest.plan == committed.plan:
                driven.commits.tell(committed, self._tried)
            pipeline.reset(committed)
            driven.result.finished = committed.finished
        self._tried = []
        _, waiting = pipeline.look()
        driven.head = waiting[-1].manifest if waiting else pipeline.head
        self.requests.idle = False

    def _skip_failed(self) -> None:
        """At most once: what the failed epoch was to read is not read again."""
        driven, setup, head = self.driven, self.setup, self.driven.pipeline.head
        sources = read_intent(setup.storage, head.job, head.epoch)
        if sources:
            number = driven.planner.new_plan_number()
            skipped = manifest_without(head, sources, driven.term, number, setup.clock.now_ms())
            driven.commits.publish(skipped)
            driven.result.count(skipped.left_out_in_all)
            driven.pipeline.reset(skipped)
            driven.head = skipped
