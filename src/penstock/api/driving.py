"""Driving a job in this process: one loop after another, for as long as it is rescaled.

wait, if this is a standby → start from a snapshot, if told to → loop → (rescaled: another loop)* → told how it ended
"""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any

from penstock.config import JobConfig
from penstock.epochs.executor import Executor
from penstock.epochs.history import JobResult, Listener, RunListener
from penstock.epochs.loop import Clock, EpochLoop
from penstock.epochs.rescaling import Rescale
from penstock.plan.nodes import Graph
from penstock.snapshots.restore import starting_from
from penstock.storage import Storage


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
    _signals: StopSignals = field(default_factory=StopSignals)

    def run(self) -> JobResult:
        """Run the job to its end, and let the listeners know of the start and the end."""
        with self._signals:
            return self._told()

    def _told(self) -> JobResult:
        told = [one for one in self.listeners if isinstance(one, RunListener)]
        for listener in told:
            listener.started(self.config.name, self.storage.uri)
        try:
            result = self._drive()
        except BaseException as error:
            for listener in told:
                listener.ended(None, error)
            raise
        for listener in told:
            listener.ended(result, None)
        return result

    def _drive(self) -> JobResult:
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
                    start=start if rescale is None else None,
                    rescale=rescale,
                )
                self._signals.follow(loop)
                result = loop.run()
                total = result if total is None else total.followed_by(result)
                rescale = result.rescale
                if rescale is None:
                    return total
