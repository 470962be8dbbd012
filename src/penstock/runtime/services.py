"""What a task offers its operators: opened functions, keyed state on the committed store, times, sink contexts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from penstock.connectors.protocol import Committable, WriterContext
from penstock.contexts import RuntimeContext
from penstock.diagnosis.tracebacks import innermost
from penstock.errors import PenstockError, UserCodeError
from penstock.functions import Function, users_function
from penstock.ids import MIN_WATERMARK, Milliseconds, StepId
from penstock.runtime.committed import CommittedState
from penstock.runtime.frames import LapChanges
from penstock.runtime.job import CompiledJob, Stage
from penstock.runtime.loops.rounds import Rounds
from penstock.runtime.messages import EpochOrder, LoopReport
from penstock.state.descriptors import MapState, OperatorListState
from penstock.state.encoding.keys import key_codec
from penstock.state.key_groups import DealtGroups, groups_of
from penstock.state.overlay.broadcast import BroadcastHandle, BroadcastState
from penstock.state.overlay.elements import OperatorList
from penstock.state.overlay.keyed import Clocks, KeyedState
from penstock.state.overlay.timers import TimerQueue
from penstock.state.overlay.writes import StateLabel

if TYPE_CHECKING:
    from penstock.runtime.operators.observer import Observer
    from penstock.runtime.operators.operator import Operator

Observe = Callable[["Operator"], "Observer"]
"""Who observes an operator, which is about to begin."""

TimerStates = tuple[str, str, str, str]

TIMER_STATES: TimerStates = ("timers:event", "timers:processing", "timers:ttl-event", "timers:ttl-processing")
"""The timer queues of every keyed step, kept like states."""


class FunctionPool:
    """Functions of one job that have been opened in this process, by step and partition.

    A failed task's functions are thrown away.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[StepId, int], tuple[Any, RuntimeContext]] = {}

    def get(self, job: CompiledJob, step: StepId, partition: int, function: Any) -> tuple[Any, RuntimeContext]:
        key = (step, partition)
        found = self._opened.get(key)
        if found is None:
            context = RuntimeContext(job=job.name, step=step, partition=partition, parallelism=job.parallelism)
            own = copy.copy(function) if isinstance(function, Function) else function
            if hasattr(own, "open") and callable(own.open):
                _open(own, context)
            found = self._opened[key] = (own, context)
        return found

    def discard(self, partition: int) -> None:
        for key in [key for key in self._opened if key[1] == partition]:
            _close(self._opened.pop(key)[0])

    def close(self) -> None:
        for function, _ in self._opened.values():
            _close(function)
        self._opened.clear()


def _open(function: Any, context: RuntimeContext) -> None:
    try:
        function.open(context)
    except PenstockError:
        raise
    except Exception as error:
        place = innermost(error)
        raise UserCodeError(
            f"step {context.step!r}: {type(error).__name__}: {error} (open)",
            detail=f"function: {type(users_function(function) or function).__qualname__}.open"
            + (f"\nraised at: {place}" if place else ""),
            hint="open() is called in the worker, before the first record",
        ) from error


def _close(function: Any) -> None:
    close = getattr(function, "close", None)
    if callable(close):
        close()


class Timed(Protocol):
    busy_s: float


class Stopwatch:
    """Whose time it is. Operators run inside one another: what one hands on interrupts it."""

    def __init__(self) -> None:
        self._running: Timed | None = None
        self._since = perf_counter()

    def switch(self, to: Timed | None) -> Timed | None:
        """From now on it is this one's time; until now it was of the one that is returned."""
        now, running = perf_counter(), self._running
        if running is not None:
            running.busy_s += now - self._since
        self._running, self._since = to, now
        return running


class StatePart(Protocol):
    """State of a step in one task, as the task sees it."""

    def changes(self) -> list[tuple[bytes, bytes | None]] | Iterator[tuple[bytes, bytes | None]]: ...

    def next_due(self) -> dict[int, Milliseconds]: ...

    def close(self) -> None: ...


class Services:
    """One task's surroundings."""

    def __init__(
        self,
        job: CompiledJob,
        stage: Stage,
        partition: int,
        order: EpochOrder,
        attempt: str,
        pool: FunctionPool,
        observe: Observe | None = None,
        on_top: LapChanges | None = None,
    ) -> None:
        self.observe = observe
        self.stopwatch = Stopwatch()
        self.job = job
        self.stage = stage
        self.partition = partition
        self.order = order
        self.attempt = attempt
        self.processing_time: Milliseconds = order.processing_time
        self.committables: dict[StepId, Committable] = {}
        self.contexts: dict[StepId, RuntimeContext] = {}
        self.warnings: dict[StepId, str] = {}
        self.committed = CommittedState(job, stage, partition, order, on_top)
        self.keyed: list[StatePart] = []
        self.copies: dict[StepId, BroadcastState] = {}
        self.rounds = Rounds()
        self.loops: dict[StepId, LoopReport] = {}
        self._pool = pool

    def start_watermark(self, step: StepId) -> Milliseconds:
        return self.order.watermarks.get(step, MIN_WATERMARK)

    def opened(self, step: StepId, function: Any) -> Any:
        own, context = self._pool.get(self.job, step, self.partition, function)
        context.counters = {}
        self.contexts[step] = context
        return own

    def warn(self, step: StepId, text: str | None) -> None:
        """Tell whoever runs the job, unless there is nothing to tell; the driver says it once for each step."""
        if text is not None:
            self.warnings.setdefault(step, text)

    def report_loop(self, loop: StepId, report: LoopReport) -> None:
        """What the beginning or the end of a loop knows of it."""
        self.loops[loop] = report.plus(self.loops.get(loop, LoopReport()))

    def state_id(self, step: StepId, name: str) -> int:
        return self.job.state_ids[step, name]

    @property
    def groups(self) -> range:
        """The key groups of this partition."""
        return groups_of(self.partition, self.job.parallelism, self.job.max_parallelism)

    def keyed_state(
        self, step: StepId, key_type: Any, watermark: Milliseconds, *, timers: TimerStates = TIMER_STATES, namespace: int = 0
    ) -> KeyedState:
        """Keyed state of a step; `timers` names its timer queues."""
        event, processing, ttl_event, ttl_processing = timers
        next_due = self.committed.partition_state.next_due
        groups = self.groups

        def queue(name: str) -> TimerQueue:
            state_id = self.state_id(step, name)
            return TimerQueue(
                lambda: self.committed,
                state_id=state_id,
                groups=groups,
                key_groups=self.job.key_groups,
                next_due=next_due.get(state_id),
                namespace=namespace,
            )

        keyed = KeyedState(
            committed=self.committed,
            key_codec=key_codec(key_type),
            key_groups=self.job.key_groups,
            times=Clocks(watermark, self.processing_time),
            event_timers=queue(event),
            processing_timers=queue(processing),
            ttl_timers=(queue(ttl_event), queue(ttl_processing)),
            namespace=namespace,
        )
        self.keyed.append(keyed)
        return keyed

    def broadcast_state(
        self, step: StepId, states: Mapping[str, MapState[Any, Any]], watermark: Milliseconds, function: Any
    ) -> dict[str, BroadcastHandle]:
        """Broadcast state of a step, by name."""
        kept = BroadcastState(self.committed, self.job.key_groups, Clocks(watermark, self.processing_time))
        self.keyed.append(kept)
        self.copies[step] = kept

        def handle(name: str, state: MapState[Any, Any]) -> BroadcastHandle:
            label, number = StateLabel(step=step, state=name, function=function), self.state_id(step, name)
            made = kept.attach(lambda keyed, cell: BroadcastHandle(keyed, cell, state, number, label))
            assert isinstance(made, BroadcastHandle)
            return made

        found = {name: handle(name, state) for name, state in states.items()}
        kept.enter_whole()
        return found

    def operator_list(self, step: StepId, name: str, state: OperatorListState[Any], function: Any) -> OperatorList:
        """A list of this partition of a step."""
        groups = self.job.key_groups
        kept = OperatorList(
            self.committed,
            state,
            epoch=self.order.epoch,
            state_id=self.state_id(step, name),
            groups=self.groups,
            key_groups=DealtGroups(groups.count, groups.hash),
            label=StateLabel(step=step, state=name, function=function),
        )
        self.keyed.append(kept)
        return kept

    def writer_context(self, step: StepId) -> WriterContext:
        return WriterContext(
            job=self.job.job,
            step=self.job.known_to_others(step),
            epoch=self.order.epoch,
            partition=self.partition,
            attempt=self.attempt,
            storage=self.job.storage,
        )
