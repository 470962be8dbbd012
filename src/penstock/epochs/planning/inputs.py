"""The sources of a job on the driver: what the next epoch reads, and how far event time may go.

Laws:
- Only a partition with nothing left to read can be idle, and only after its idle time of *observed* running.
- A partition that exists, is not idle and has no split in an epoch holds event time where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.compile.source_claims import kind_of
from penstock.connectors.protocol import (
    ComparesPositions,
    Enumerator,
    KnowsIdle,
    Limits,
    Planned,
    Position,
    Sheds,
    SourceContext,
    Split,
)
from penstock.errors import PenstockError, SourceError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, Milliseconds, StepId
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import SourceState
from penstock.jobs.source_order import SourceOrder
from penstock.runtime.operators.source import SourceStep


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """What one source contributes to an epoch, and its state if the epoch is committed (clocks aside)."""

    order: SourceOrder
    after: SourceState
    splits: int
    wake_ms: Milliseconds | None
    backlog: int | None
    news: bool

    @property
    def nothing_left(self) -> bool:
        """Nothing to read now, or nothing after this."""
        return self.after.ended or self.splits == 0 or self.backlog == 0


class SourceInput:
    """One source: its enumerator, and its part in each epoch."""

    def __init__(self, step: StepId, definition: SourceStep, context: SourceContext) -> None:
        self.step = step
        self.definition = definition
        self._context = context
        self._enumerator: Enumerator | None = None

    @property
    def enumerator(self) -> Enumerator:
        if self._enumerator is None:
            self._enumerator = self.definition.source.enumerator(self._context)
        return self._enumerator

    def plan(self, state: SourceState, limits: Limits, now_ms: Milliseconds, parallelism: int) -> SourcePlan:
        if state.ended:
            return SourcePlan(
                order=SourceOrder(tasks=[], ended=True), after=state, splits=0, wake_ms=MAX_WATERMARK, backlog=0, news=False
            )
        planned = self._ask(state, limits, now_ms)
        return plan_source(self.definition, state, planned, now_ms, parallelism)

    def drain(self, state: SourceState) -> SourcePlan:
        """Read no more: time ends where the source is."""
        return drain_source(self.definition, state)

    def idle(self) -> bool:
        """There is nothing to read now: is there really nothing on its way either?"""
        enumerator = self.enumerator
        return enumerator.idle() if isinstance(enumerator, KnowsIdle) else True

    def shed(self, state: SourceState, now_ms: Milliseconds) -> SourceState:
        """Skip what lies between the position and the newest input, if the source can."""
        enumerator = self.enumerator
        if state.ended or not isinstance(enumerator, Sheds):
            return state
        position, records = enumerator.shed(state.position, now_ms)
        return msgspec.structs.replace(state.without(LeftOut(shed=records)), position=position)

    def caught_up(self, plan: SourcePlan, goal: Position) -> bool:
        """Does the source get with this plan to where it once was? When that cannot be told: to the end of what there is now."""
        position = plan.after.position
        if plan.after.ended or position == goal:
            return True
        enumerator = self.enumerator
        reached = enumerator.reached(position, goal) if isinstance(enumerator, ComparesPositions) else None
        return plan.nothing_left if reached is None else reached

    def committed(self, state: SourceState, epoch: Epoch) -> None:
        self.enumerator.committed(state.position, epoch)

    def close(self) -> None:
        if self._enumerator is not None:
            self._enumerator.close()
            self._enumerator = None

    def _ask(self, state: SourceState, limits: Limits, now_ms: Milliseconds) -> Planned:
        try:
            return self.enumerator.plan(state.position, limits, now_ms)
        except PenstockError:
            raise
        except Exception as error:
            raise SourceError(
                f"source {self.step!r} could not say what there is to read: {type(error).__name__}: {error}",
                detail=self.definition.source.describe(),
            ) from error


def plan_source(
    definition: SourceStep, state: SourceState, planned: Planned, now_ms: Milliseconds, parallelism: int
) -> SourcePlan:
    """An enumerator's answer as an order. Pure."""
    watermarks = definition.watermarks
    reading = {split.partition for split in planned.splits}
    partitions = list(dict.fromkeys([*planned.partitions, *reading]))
    active = {p: now_ms if p in reading else state.active_ms.get(p, now_ms) for p in partitions} if watermarks is not None else {}
    idle: list[str] = []
    held: Milliseconds | None = None
    wake = planned.wake_ms
    if watermarks is not None:
        for partition in partitions:
            if partition in reading:
                continue
            if watermarks.idle_ms is not None:
                due = active[partition] + watermarks.idle_ms
                if now_ms >= due:
                    idle.append(partition)
                    continue
                wake = due if wake is None else min(wake, due)
            watermark = _watermark(watermarks.clock(state.clocks.get(partition)).watermark)
            held = watermark if held is None else min(held, watermark)
    order = SourceOrder(
        tasks=assign(planned.splits, partitions, parallelism, ordered=watermarks is not None),
        clocks={p: state.clocks[p] for p in partitions if p in state.clocks},
        held=held,
        ended=planned.exhausted,
    )
    after = msgspec.structs.replace(
        state,
        position=planned.position,
        clocks={p: state.clocks[p] for p in partitions if p in state.clocks},
        idle=idle,
        active_ms=active,
        ended=planned.exhausted,
        kind=kind_of(definition.source),
    )
    news = bool(planned.splits) or planned.exhausted or idle != list(state.idle)
    return SourcePlan(order=order, after=after, splits=len(planned.splits), wake_ms=wake, backlog=planned.backlog, news=news)


def drain_source(definition: SourceStep, state: SourceState) -> SourcePlan:
    """The end of time for a source that could go on: no splits, and its clocks stay where they are until the end. Pure."""
    watermarks = definition.watermarks
    held: Milliseconds | None = None
    if watermarks is not None and not state.ended:
        active = [partition for partition in state.active_ms if partition not in state.idle]
        held = min((_watermark(watermarks.clock(state.clocks.get(p)).watermark) for p in active), default=None)
    return SourcePlan(
        order=SourceOrder(tasks=[], clocks=state.clocks, held=held, ended=True),
        after=msgspec.structs.replace(state, ended=True, kind=kind_of(definition.source)),
        splits=0,
        wake_ms=None,
        backlog=0,
        news=True,
    )


def _watermark(watermark: Milliseconds) -> Milliseconds:
    return max(MIN_WATERMARK, watermark)


def assign(splits: Sequence[Split], partitions: Sequence[str], parallelism: int, *, ordered: bool) -> list[list[Split]]:
    """Which task reads which splits: all splits of a partition go to one task, in order; otherwise the load is spread."""
    tasks: list[list[Split]] = [[] for _ in range(parallelism)]
    if ordered:
        number = {partition: i for i, partition in enumerate(sorted(partitions))}
        for split in splits:
            tasks[number[split.partition] % parallelism].append(split)
        return tasks
    load = [0] * parallelism
    home: dict[str, int] = {}
    for split in splits:
        task = home.get(split.partition)
        if task is None:
            task = home[split.partition] = load.index(min(load))
        load[task] += split.records or split.bytes or 1
        tasks[task].append(split)
    return tasks


def merge_clocks(after: Mapping[str, SourceState], clocks: Mapping[str, Mapping[str, object]]) -> dict[str, SourceState]:
    """The sources' states with the clocks that the tasks reported."""
    merged = {}
    for step, state in after.items():
        reported = {p: c for p, c in clocks.get(step, {}).items() if c is not None}
        merged[step] = msgspec.structs.replace(state, clocks={**state.clocks, **reported})
    return merged
