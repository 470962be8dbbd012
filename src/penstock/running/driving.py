"""Driving a job in this process: one loop after another, for as long as it is rescaled.

wait, if this is a standby → start from a snapshot, if told to → loop → (rescaled: another loop)* → told how it ended
  ↑                                                               │
  └──────── a standby that fails, or is replaced, rests ←─────────┘
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

from penstock.compile.programs import Program
from penstock.config import JobConfig
from penstock.diagnosis.failures import nature_of
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.live_driver import check_not_driven
from penstock.epochs.availability.mirror_start import check_start
from penstock.epochs.availability.rehearsing import rehearse
from penstock.epochs.availability.standby import End, TakeOver, rest_s
from penstock.epochs.availability.standing_by import job_of, stand_by
from penstock.epochs.clock import Clock
from penstock.epochs.committing.persisting import persist
from penstock.epochs.executor import Begins, Executor, Interrupts, Prepares
from penstock.epochs.history import EpochRecord, JobResult, Listener, RunListener, StandbyListener, StopListener
from penstock.epochs.loop import EpochLoop
from penstock.epochs.starting.rescaling import Rescale
from penstock.errors import FencedError, PenstockError, StorageError
from penstock.ids import JobId
from penstock.jobs.terms import check_settings, left_out_of
from penstock.plan.nodes import Graph
from penstock.running.signals import AT_ONCE, NOTICE, StopSignals, say
from penstock.running.stop_deadline import StopDeadline
from penstock.runtime.job import CompiledJob
from penstock.snapshots.restore.restore import starting_from
from penstock.state.stores.cleaning import clean_beside
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A program, and all it needs to be run."""

    graph: Graph
    config: JobConfig
    storage: Storage
    executor: Executor
    clock: Clock | None = None
    listeners: tuple[Listener, ...] = ()
    python_paths: tuple[str, ...] = ()
    program: Program | None = None
    _signals: StopSignals = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_signals", StopSignals(self._stopping, self._interrupted))

    def run(self) -> JobResult:
        """Run the job to its end; a standby first waits, and waits again when another driver wins or when it fails itself."""
        with self._signals, self._deadline():
            if not self.config.standby:
                return self._run()
            self._check_standby()
            failures, rest = 0, 0.0
            while True:
                verdict = self._stand_by(rest)
                if not isinstance(verdict, TakeOver):
                    return self._not_run(verdict)
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
                    rest = rest_s(failures, nature_of(error), to_ms(self.config.lease) / 1000)
                    log.warning("this standby failed: %s", error, exc_info=not isinstance(error, PenstockError))
                    what = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
                    did = "gave the job up" if progress.epochs else "could not take the job over"
                    self._tell(f"{did}, and stands by again: {what}")

    def _deadline(self) -> StopDeadline:
        signals = self._signals

        def held_up() -> float:
            return 0.0 if signals.loop is None else signals.loop.held_up_s

        def look() -> str:
            return "penstock stop" if signals.loop is not None and signals.loop.look_ahead() else ""

        return StopDeadline(
            to_ms(self.config.stop_within) / 1000,
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
        if isinstance(self.executor, Interrupts):
            self.executor.interrupt(because)

    def _check_standby(self) -> None:
        """Refuse at once to stand by for a job of another program, or at the mirror of a job that runs."""
        info = job_of(self.storage, time.monotonic)
        if info is not None:
            check_settings(self.storage, info, self.config.name, self.config.max_parallelism)
            try:
                self._check_start()
            except StorageError as error:
                log.warning("not known yet whether the job may be started from here: %s", error)

    def _stand_by(self, rest: float) -> TakeOver | End | None:
        def prepare() -> None:
            if isinstance(self.executor, Prepares):
                self.executor.prepare(self.config.parallelism, self._rehearse)

        return stand_by(
            self.storage,
            to_ms(self.config.lease) / 1000,
            tell=self._tell,
            prepare=prepare,
            stopping=lambda: bool(self._signals.asked),
            monotonic=time.monotonic,
            sleep=time.sleep,
            rest_s=rest,
        )

    def _rehearse(self) -> CompiledJob | None:
        return rehearse(self.graph, self.config, self.storage, self.python_paths)

    def _not_run(self, end: End | None) -> JobResult:
        """A standby that was not needed."""
        self.executor.close()
        self._tell(f"stands by no more: {'told to stop' if end is None else end.because}")
        job = job_of(self.storage, time.monotonic)
        return JobResult(
            name=self.config.name,
            job=JobId("") if job is None else job.job,
            storage=self.storage.uri,
            finished=end is not None and end.finished,
            stopped=end is None or not end.finished,
            left_out=left_out_of(self.storage),
        )

    def _tell(self, text: str) -> None:
        log.info("%s", text)
        everybody: tuple[object, ...] = self.listeners
        for listener in everybody:
            if isinstance(listener, StandbyListener):
                listener.standing_by(self.config.name, text)

    def _run(self, verdict: TakeOver | None = None, *more: Listener) -> JobResult:
        """Run the job, and let the listeners know of the start and the end."""
        clean_beside(self.config.local_dir, to_ms(self.config.keep_local) / 1000)
        told = [one for one in self.listeners if isinstance(one, RunListener)]
        for listener in told:
            listener.started(self.config.name, self.storage.uri)
        try:
            if verdict is None:
                self._persist(lambda: check_not_driven(self.storage, self.config, tell=self._tell))
            self._persist(self._check_start)
            if isinstance(self.executor, Begins):
                self.executor.begin(self.config.parallelism)
            result = self._drive(self._life(verdict), (*self.listeners, *more))
        except BaseException as error:
            for listener in told:
                listener.ended(None, error)
            raise
        for listener in told:
            listener.ended(result, None)
        if self._signals.asked and not result.finished:
            self._stopped(result)
        return result

    def _persist(self, action: Callable[[], T]) -> T:
        """Take a step of the start, though the storage does not answer for a while."""
        clock = self.clock or Clock()
        return persist(action, self.config.restart, pause=lambda seconds: clock.pause(seconds, lambda: bool(self._signals.asked)))

    def _check_start(self) -> None:
        config = self.config
        lease_s = to_ms(config.lease) / 1000
        check_start(self.storage, lease_s, force=config.force, fall_back=config.fall_back, tell=self._tell)

    def _stopping(self) -> None:
        """A signal asks the job to stop. Runs in its handler."""
        told = self._told_of_stops()
        for listener in told:
            listener.stopping()
        if not told and os.isatty(2):
            say(NOTICE)

    def _interrupted(self) -> None:
        """Another one stops it at once; listeners hear of it as the run's error. Runs in the signal's handler."""
        if not self._told_of_stops():
            say(f"{AT_ONCE}\n")

    def _stopped(self, result: JobResult) -> None:
        place = self.config.storage
        then = (
            "it had no storage of its own, so nothing is left to go on from"
            if place is None
            else f"start it again with the same storage ({place}) to go on from there"
        )
        text = f"{self.config.name}: stopped by {self._signals.asked} after epoch {result.last_epoch or 0}; {then}"
        told = self._told_of_stops()
        for listener in told:
            listener.stopped(text)
        if not told:
            sys.stderr.flush()
            say(f"{text}\n")

    def _told_of_stops(self) -> list[StopListener]:
        everybody: tuple[object, ...] = self.listeners
        return [one for one in everybody if isinstance(one, StopListener)]

    def _life(self, verdict: TakeOver | None) -> SignOfLife | None:
        if verdict is None:
            return None
        began = time.monotonic()
        return SignOfLife(
            self.storage,
            self.config,
            after=verdict.after,
            watched=verdict.lease,
            ready=lambda: self._tell(f"has taken over, in {time.monotonic() - began:.2f} s"),
        )

    def _drive(self, life: SignOfLife | None, listeners: tuple[Listener, ...]) -> JobResult:
        """One loop after another."""
        rescale: Rescale | None = None
        total: JobResult | None = None
        with ExitStack() as held:
            start = self._persist(
                lambda: held.enter_context(starting_from(self.graph, self.config, self.storage, self.listeners))
            )
            while True:
                loop = EpochLoop(
                    graph=self.graph,
                    config=self.config if rescale is None else replace(self.config, parallelism=rescale.parallelism),
                    storage=self.storage,
                    executor=self.executor,
                    clock=self.clock,
                    listeners=listeners,
                    python_paths=self.python_paths,
                    program=self.program,
                    start=start if rescale is None else None,
                    rescale=rescale,
                    life=life,
                )
                life = None  # of this loop alone
                self._signals.follow(loop)
                result = loop.run()
                total = result if total is None else total.followed_by(result)
                rescale = result.rescale
                if rescale is None:
                    return total


class _Progress:
    """How many epochs a run has committed."""

    def __init__(self) -> None:
        self.epochs = 0

    def __call__(self, record: EpochRecord) -> None:
        self.epochs += 1
