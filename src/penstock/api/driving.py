"""Driving a job in this process: one loop after another, for as long as it is rescaled.

wait, if this is a standby → start from a snapshot, if told to → loop → (rescaled: another loop)* → told how it ended
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any

from penstock.config import JobConfig
from penstock.epochs.clock import Clock
from penstock.epochs.executor import Executor, Prepares
from penstock.epochs.history import JobResult, Listener, RunListener, StandbyListener
from penstock.epochs.lease import SignOfLife
from penstock.epochs.loop import EpochLoop
from penstock.epochs.mirrors import check_start
from penstock.epochs.rescaling import Rescale
from penstock.epochs.standby import End, TakeOver, job_of, stand_by
from penstock.errors import FencedError
from penstock.ids import JobId
from penstock.plan.nodes import Graph
from penstock.programs import Program
from penstock.snapshots.restore import starting_from
from penstock.storage import Storage
from penstock.timing.durations import to_ms

log = logging.getLogger("penstock")


class StopSignals:
    """Ctrl-C and SIGTERM let the current epoch finish; a second Ctrl-C interrupts."""

    def __init__(self) -> None:
        self.asked = False
        self._loop: EpochLoop | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def follow(self, loop: EpochLoop) -> None:
        """From now on it is this loop that is stopped."""
        self._loop = loop
        if self.asked:
            loop.request_stop()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._loop is not None:
            self._loop.request_stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    _signals: StopSignals = field(default_factory=StopSignals)

    def run(self) -> JobResult:
        """Run the job to its end; a standby first waits, and waits again when another driver wins."""
        with self._signals:
            if not self.config.standby:
                return self._run()
            while True:
                verdict = self._stand_by()
                if not isinstance(verdict, TakeOver):
                    return self._not_run(verdict)
                self._tell(f"takes over: {verdict.because}")
                try:
                    return self._run(verdict)
                except FencedError as error:
                    self._tell(error.what)

    def _stand_by(self) -> TakeOver | End | None:
        def prepare() -> None:
            if isinstance(self.executor, Prepares):
                self.executor.prepare(self.config.parallelism)

        return stand_by(
            self.storage,
            to_ms(self.config.lease) / 1000,
            tell=self._tell,
            prepare=prepare,
            stopping=lambda: self._signals.asked,
            monotonic=time.monotonic,
            sleep=time.sleep,
        )

    def _not_run(self, end: End | None) -> JobResult:
        """A standby that was not needed."""
        self.executor.close()
        self._tell(f"stands by no more: {'told to stop' if end is None else end.because}")
        job = job_of(self.storage)
        return JobResult(
            name=self.config.name,
            job=JobId("") if job is None else job.job,
            storage=self.storage.uri,
            finished=end is not None and end.finished,
            stopped=end is None or not end.finished,
        )

    def _tell(self, text: str) -> None:
        log.info("%s", text)
        everybody: tuple[object, ...] = self.listeners
        for listener in everybody:
            if isinstance(listener, StandbyListener):
                listener.standing_by(self.config.name, text)

    def _run(self, verdict: TakeOver | None = None) -> JobResult:
        """Run the job, and let the listeners know of the start and the end."""
        told = [one for one in self.listeners if isinstance(one, RunListener)]
        for listener in told:
            listener.started(self.config.name, self.storage.uri)
        try:
            check_start(self.storage, to_ms(self.config.lease) / 1000, force=self.config.force, tell=self._tell)
            result = self._drive(self._life(verdict))
        except BaseException as error:
            for listener in told:
                listener.ended(None, error)
            raise
        for listener in told:
            listener.ended(result, None)
        return result

    def _life(self, verdict: TakeOver | None) -> SignOfLife | None:
        if verdict is None:
            return None
        began = time.monotonic()
        return SignOfLife(
            self.storage,
            self.config,
            after=verdict.after,
            ready=lambda: self._tell(f"has taken over, in {time.monotonic() - began:.2f} s"),
        )

    def _drive(self, life: SignOfLife | None) -> JobResult:
        """One loop after another."""
        rescale: Rescale | None = None
        total: JobResult | None = None
        with starting_from(self.graph, self.config, self.storage, self.listeners) as start:
            while True:
                loop = EpochLoop(
                    graph=self.graph,
                    config=self.config if rescale is None else replace(self.config, parallelism=rescale.parallelism),
                    storage=self.storage,
                    executor=self.executor,
                    clock=self.clock,
                    listeners=self.listeners,
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
