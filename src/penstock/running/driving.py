"""Driving a job in this process: one loop after another, for as long as it is rescaled.

wait, if this is a standby → start from a snapshot, if asked to → loop → (rescaled: another loop)* → the result
  ↑                                                                │
  └──────── a standby that fails, or is replaced, rests ←──────────┘
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

from penstock.diagnosis.failures import nature_of
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.live_driver import check_not_driven
from penstock.epochs.availability.mirror_start import check_start
from penstock.epochs.availability.rehearsing import rehearse
from penstock.epochs.availability.standby import End, TakeOver, rest_s
from penstock.epochs.availability.standing_by import job_of, stand_by
from penstock.epochs.committing.persisting import persist
from penstock.epochs.executor import Begins, Interrupts, Prepares
from penstock.epochs.history import EpochRecord, JobResult, Listener
from penstock.epochs.lifecycle import Lifecycle
from penstock.epochs.loop import EpochLoop
from penstock.epochs.setup import Setup
from penstock.epochs.starting.rescaling import Rescale
from penstock.errors import FencedError, PenstockError, StorageError
from penstock.ids import JobId
from penstock.jobs.terms import check_settings, left_out_of
from penstock.running.audience import Audience
from penstock.running.signals import StopSignals
from penstock.running.stop_deadline import StopDeadline
from penstock.snapshots.restore.restore import starting_from
from penstock.state.stores.cleaning import clean_beside
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

T = TypeVar("T")


class Driver:
    """Runs a program."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._config = setup.config
        self._storage = setup.storage
        self._lease_s = to_ms(setup.config.lease) / 1000
        self._audience = Audience(setup.config.name, setup.listeners)
        self._tell = self._audience.standing_by
        self._signals = StopSignals(self._audience.stopping, self._audience.interrupted)
        self._lifecycle = Lifecycle("standing by" if setup.config.standby else "taking over", self._audience.entered)

    def run(self) -> JobResult:
        """Run the job to its end; a standby first waits, and waits again when another driver wins or when it fails itself."""
        with self._signals, self._deadline():
            if not self._config.standby:
                return self._run()
            self._check_standby()
            failures, rest = 0, 0.0
            while True:
                verdict = self._stand_by(rest)
                if not isinstance(verdict, TakeOver):
                    return self._not_run(verdict)
                self._lifecycle.enter("taking over")
                self._tell(f"takes over: {verdict.because}")
                progress = _Progress()
                try:
                    return self._run(verdict, progress)
                except FencedError as error:
                    failures, rest = 0, 0.0
                    self._tell(error.what)
                except Exception as error:
                    if self._signals.asked:
                        raise
                    failures = 1 if progress.epochs else failures + 1
                    rest = rest_s(failures, nature_of(error), self._lease_s)
                    log.warning("this standby failed: %s", error, exc_info=not isinstance(error, PenstockError))
                    what = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
                    did = "gave the job up" if progress.epochs else "could not take the job over"
                    self._tell(f"{did} and stands by again: {what}")
                self._lifecycle.enter("standing by")

    # --- standing by -------------------------------------------------------------------------------------------------------

    def _check_standby(self) -> None:
        """Refuse at once to stand by for a job of another program, or at the mirror of a job that runs."""
        info = job_of(self._storage, time.monotonic)
        if info is not None:
            check_settings(self._storage, info, self._config.name, self._config.max_parallelism)
            try:
                self._check_start()
            except StorageError as error:
                log.warning("not known yet whether the job may be started from here: %s", error)

    def _stand_by(self, rest: float) -> TakeOver | End | None:
        def prepare() -> None:
            if isinstance(self._setup.executor, Prepares):
                self._setup.executor.prepare(self._config.parallelism, lambda: rehearse(self._setup))

        return stand_by(
            self._storage,
            self._lease_s,
            tell=self._tell,
            prepare=prepare,
            stopping=lambda: bool(self._signals.asked),
            monotonic=time.monotonic,
            sleep=time.sleep,
            rest_s=rest,
        )

    def _not_run(self, end: End | None) -> JobResult:
        """A standby that was not needed."""
        self._setup.executor.close()
        self._lifecycle.enter("finished" if end is not None and end.finished else "stopped")
        self._tell(f"no longer stands by: {'asked to stop' if end is None else end.because}")
        job = job_of(self._storage, time.monotonic)
        return JobResult(
            name=self._config.name,
            job=JobId("") if job is None else job.job,
            storage=self._storage.uri,
            finished=end is not None and end.finished,
            stopped=end is None or not end.finished,
            left_out=left_out_of(self._storage),
        )

    # --- running -----------------------------------------------------------------------------------------------------------

    def _run(self, verdict: TakeOver | None = None, *more: Listener) -> JobResult:
        """Run the job, and let the listeners know of the start and the end."""
        config, executor = self._config, self._setup.executor
        clean_beside(config.local_dir, to_ms(config.keep_local) / 1000)
        self._audience.started(self._storage.uri)
        try:
            if verdict is None:
                self._persist(lambda: check_not_driven(self._storage, config, tell=self._tell, invocation=self._setup.invocation))
            self._persist(self._check_start)
            if isinstance(executor, Begins):
                executor.begin(config.parallelism)
            result = self._drive(self._life(verdict), replace(self._setup, listeners=(*self._setup.listeners, *more)))
        except BaseException as error:
            self._lifecycle.enter("fenced" if isinstance(error, FencedError) else "failed")
            self._audience.ended(None, error)
            raise
        self._lifecycle.enter("finished" if result.finished else "stopped")
        self._audience.ended(result, None)
        if self._signals.asked and not result.finished:
            self._stopped(result)
        return result

    def _persist(self, action: Callable[[], T]) -> T:
        """Take a step of the start, though the storage does not answer for a while."""
        clock = self._setup.clock
        return persist(
            action, self._config.restart, pause=lambda seconds: clock.pause(seconds, lambda: bool(self._signals.asked))
        )

    def _check_start(self) -> None:
        check_start(
            self._storage,
            self._lease_s,
            force=self._config.force,
            fall_back=self._config.fall_back,
            tell=self._tell,
            invocation=self._setup.invocation,
        )

    def _life(self, verdict: TakeOver | None) -> SignOfLife | None:
        if verdict is None:
            return None
        began = time.monotonic()
        return SignOfLife(
            self._storage,
            self._config,
            after=verdict.after,
            watched=verdict.lease,
            ready=lambda: self._tell(f"has taken over, in {time.monotonic() - began:.2f} s"),
        )

    def _drive(self, life: SignOfLife | None, setup: Setup) -> JobResult:
        """One loop after another."""
        rescale: Rescale | None = None
        total: JobResult | None = None
        with ExitStack() as held:
            start = self._persist(
                lambda: held.enter_context(starting_from(setup.graph, setup.config, setup.storage, setup.listeners))
            )
            while True:
                loop = EpochLoop(setup, start=start, rescale=rescale, life=life, lifecycle=self._lifecycle)
                self._signals.follow(loop)
                result = loop.run()
                total = result if total is None else total.followed_by(result)
                rescale = result.rescale
                if rescale is None:
                    return total
                start, life = None, None  # of the first loop alone
                setup = replace(setup, config=replace(setup.config, parallelism=rescale.parallelism))

    # --- stopping ----------------------------------------------------------------------------------------------------------

    def _deadline(self) -> StopDeadline:
        signals = self._signals

        def held_up() -> float:
            return 0.0 if signals.loop is None else signals.loop.held_up_s

        def look() -> str:
            return "penstock stop" if signals.loop is not None and signals.loop.look_ahead() else ""

        return StopDeadline(
            to_ms(self._config.stop_within) / 1000,
            asked=lambda: signals.asked,
            held_up=held_up,
            look=look,
            give_up=self._give_up,
            interrupt=signals.interrupt,
            end=signals.end,
        )

    def _give_up(self, because: str) -> None:
        if self._signals.loop is not None:
            self._signals.loop.give_up(because)
        if isinstance(self._setup.executor, Interrupts):
            self._setup.executor.interrupt(because)

    def _stopped(self, result: JobResult) -> None:
        place = self._config.storage
        then = (
            "it had no storage of its own, so there is nothing to resume from"
            if place is None
            else f"start it again with the same storage ({place}) to resume"
        )
        self._audience.stopped(
            f"{self._config.name}: stopped by {self._signals.asked} after epoch {result.last_epoch or 0}; {then}"
        )


class _Progress:
    """How many epochs a run has committed."""

    def __init__(self) -> None:
        self.epochs = 0

    def __call__(self, record: EpochRecord) -> None:
        self.epochs += 1
