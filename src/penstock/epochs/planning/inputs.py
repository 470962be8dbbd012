"""The sources of a job on the driver: what the next epoch reads, and how far event time may go.

Laws:
- Only a partition with nothing left to read can be idle, and only after its idle time of *observed* running.
- A partition that exists, is not idle and has no split in an epoch holds event time where it is.
- What was planned and not read is the source's rest: it comes first in the next epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec

from penstock.compile.source_claims import kind_of
from penstock.connectors.protocol import (
    ComparesPositions,
    Enumerator,
    KnowsIdle,
    Limits,
    Planned,
    Position,
    RemovesInput,
    Sheds,
    SourceContext,
    Split,
)
from penstock.epochs.planning.reach import UNBOUND, Bound, LaneAhead
from penstock.errors import PenstockError, SourceError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, Milliseconds, StepId
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import SourceState
from penstock.jobs.source_order import SourceOrder
from penstock.runtime.messages import Reached
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What there is to read of a source in state `state`: by source partition, the rest of earlier epochs included."""

    planned: Planned
    splits: dict[str, list[Split]]
    state: SourceState


class SourceInput:
    """One source: its enumerator, and its part in each epoch."""

    def __init__(self, step: StepId, definition: SourceStep, context: SourceContext, *, paced: bool = False) -> None:
        self.step = step
        self.paced = paced
        """It is read in order of event time."""
        self.definition = definition
        self._context = context
        self._enumerator: Enumerator | None = None

    @property
    def enumerator(self) -> Enumerator:
        if self._enumerator is None:
            self._enumerator = self.definition.source.enumerator(self._context)
        return self._enumerator

    def plan(self, state: SourceState, limits: Limits, now_ms: Milliseconds, parallelism: int) -> SourcePlan:
        """What an epoch without a bound reads."""
        return self.bounded(state, self.ask(state, limits, now_ms), UNBOUND, now_ms, parallelism)

    def ask(self, state: SourceState, limits: Limits, now_ms: Milliseconds) -> Asked:
        """What there is to read now: first what was planned before and not read, then what the enumerator says."""
        if state.ended:
            return Asked(planned=Planned(exhausted=True), splits={}, state=state)
        watermarks = self.definition.watermarks
        if watermarks is not None and watermarks.drift_ms is not None and not state.clocks:
            limits = msgspec.structs.replace(limits, records=limits.readers)  # it is not known yet how far apart partitions are
        known = {*state.rest, *state.clocks, *state.active_ms}
        share = max(1, limits.records // max(1, len(known)))
        waiting = {partition: _records(splits, share) - state.skip.get(partition, 0) for partition, splits in state.rest.items()}
        full = frozenset(partition for partition, records in waiting.items() if records >= share)
        left = limits.records - sum(records for partition, records in waiting.items() if partition not in full)
        limits = msgspec.structs.replace(limits, records=max(1, left), full=full) if state.rest else limits
        planned = self._ask(state, limits, now_ms)
        splits = {partition: list(rest) for partition, rest in state.rest.items()}
        for split in planned.splits:
            splits.setdefault(split.partition, []).append(split)
        return Asked(planned=planned, splits=splits, state=state)

    def records(self, asked: Asked) -> int:
        """About how many records there are to read."""
        return sum(_records(splits, 1) - asked.state.skip.get(partition, 0) for partition, splits in asked.splits.items())

    def lanes(self, asked: Asked) -> list[LaneAhead]:
        """The source partitions that are read in order of event time."""
        watermarks = self.definition.watermarks
        assert watermarks is not None
        more = set(asked.planned.more or ())
        found = []
        for partition in dict.fromkeys([*asked.splits, *more]):
            at = asked.state.clocks.get(partition)
            clock = None if at is None else _watermark(watermarks.clock(at).watermark)
            found.append(LaneAhead(clock, partition in asked.splits, partition in more, watermarks.drift_ms))
        if watermarks.drift_ms is not None:
            waits = [p for p in asked.planned.partitions if p not in asked.splits and p not in asked.state.idle]
            for partition in waits:
                at = asked.state.clocks.get(partition)
                clock = None if at is None else _watermark(watermarks.clock(at).watermark)
                found.append(LaneAhead(clock, False, False, watermarks.drift_ms))
        return found

    def bounded(self, state: SourceState, asked: Asked, bound: Bound, now_ms: Milliseconds, parallelism: int) -> SourcePlan:
        """What an epoch reads of what there is, within the bound."""
        if state.ended:
            last = _latest(self.definition, state.clocks.values(), state.last)
            order = SourceOrder(tasks=[], ended=True, until=bound.until if self.paced else None, last=last)
            return SourcePlan(order=order, after=state, splits=0, wake_ms=MAX_WATERMARK, backlog=0, news=False)
        return plan_source(self.definition, asked, bound, now_ms, parallelism, paced=self.paced)

    def drain(self, state: SourceState) -> SourcePlan:
        """Stop reading: time ends where the source is."""
        return drain_source(self.definition, state)

    def pause(self, state: SourceState) -> SourcePlan:
        """Read nothing, and leave time where it is."""
        return drain_source(self.definition, state, ended=state.ended)

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
        if plan.order.until is not None and plan.splits:  # then there is more, and what of it is read is not known yet
            return False
        if plan.after.ended or position == goal:
            return True
        enumerator = self.enumerator
        reached = enumerator.reached(position, goal) if isinstance(enumerator, ComparesPositions) else None
        return plan.nothing_left if reached is None else reached

    def committed(self, state: SourceState, epoch: Epoch) -> None:
        enumerator = self.enumerator
        if isinstance(enumerator, RemovesInput):
            enumerator.unread([split for splits in state.rest.values() for split in splits])
        enumerator.committed(state.position, epoch)

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
    definition: SourceStep, asked: Asked, bound: Bound, now_ms: Milliseconds, parallelism: int, *, paced: bool = False
) -> SourcePlan:
    """What there is to read as an order. Pure."""
    watermarks, state, planned = definition.watermarks, asked.state, asked.planned
    reading = asked.splits.keys()
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
    clocks = {p: state.clocks[p] for p in partitions if p in state.clocks}
    over = [clock for partition, clock in state.clocks.items() if partition not in clocks]
    last = _latest(definition, over, state.last)
    splits = [split for waiting in asked.splits.values() for split in waiting]
    until = bound.until if paced and splits else None
    ended = planned.exhausted and until is None
    order = SourceOrder(
        tasks=assign(splits, partitions, parallelism, ordered=watermarks is not None, fixed=paced),
        clocks=clocks,
        held=held,
        ended=ended,
        until=bound.until if paced else None,
        skip=state.skip,
        more=list(planned.more or ()) if bound.strict and paced else None,
        ends=definition.source.bounded and planned.more is not None,
        exhausted=planned.exhausted,
        last=last,
    )
    after = msgspec.structs.replace(
        state,
        position=planned.position,
        clocks=clocks,
        idle=idle,
        active_ms=active,
        ended=ended,
        kind=kind_of(definition.source),
        rest={},
        skip={},
        last=last,
    )
    moves = any(_moves(definition, state.clocks.get(partition), until) for partition in reading)
    news = moves or ended or idle != list(state.idle)
    backlog = planned.backlog if until is None else None
    return SourcePlan(order=order, after=after, splits=len(splits), wake_ms=wake, backlog=backlog, news=news)


def _moves(definition: SourceStep, clock: object, until: Milliseconds | None) -> bool:
    """Can anything be read of a partition with this clock?"""
    return until is None or definition.watermarks is None or definition.watermarks.clock(clock).watermark < until


def _latest(definition: SourceStep, clocks: Iterable[object], last: Milliseconds | None) -> Milliseconds | None:
    """The latest time of partitions that are over."""
    if definition.watermarks is None:
        return None
    times = [definition.watermarks.clock(clock).watermark for clock in clocks]
    return max([*times, *(() if last is None else (last,))], default=None)


def _records(splits: Sequence[Split], unknown: int) -> int:
    return sum(unknown if split.records is None else split.records for split in splits)


def drain_source(definition: SourceStep, state: SourceState, *, ended: bool = True) -> SourcePlan:
    """The end of time for a source that could continue: no splits, and its clocks stay where they are until the end; without
    `ended` they just stay there. Pure."""
    watermarks = definition.watermarks
    held: Milliseconds | None = None
    if watermarks is not None and not state.ended:
        active = [partition for partition in state.active_ms if partition not in state.idle]
        held = min((_watermark(watermarks.clock(state.clocks.get(p)).watermark) for p in active), default=None)
    return SourcePlan(
        order=SourceOrder(tasks=[], clocks=state.clocks, held=held, ended=ended),
        after=msgspec.structs.replace(state, ended=ended, kind=kind_of(definition.source)),
        splits=0,
        wake_ms=None,
        backlog=0,
        news=ended,
    )


def _watermark(watermark: Milliseconds) -> Milliseconds:
    return max(MIN_WATERMARK, watermark)


def assign(
    splits: Sequence[Split], partitions: Sequence[str], parallelism: int, *, ordered: bool, fixed: bool = False
) -> list[list[Split]]:
    """Which task reads which splits: all splits of a partition go to one task, in order; otherwise the load is spread. `fixed`:
    it is always the same task, whatever other partitions there are."""
    tasks: list[list[Split]] = [[] for _ in range(parallelism)]
    if ordered:
        number = {partition: home(partition) if fixed else i for i, partition in enumerate(sorted(partitions))}
        for split in splits:
            tasks[number[split.partition] % parallelism].append(split)
        return tasks
    load = [0] * parallelism
    homes: dict[str, int] = {}
    for split in splits:
        task = homes.get(split.partition)
        if task is None:
            task = homes[split.partition] = load.index(min(load))
        load[task] += split.records or split.bytes or 1
        tasks[task].append(split)
    return tasks


def home(partition: str) -> int:
    """The number of a source partition, from its name alone."""
    return int(partition) if partition.isdecimal() else crc32(partition.encode())


def with_rests(
    after: Mapping[str, SourceState], orders: Mapping[str, SourceOrder], reached: Mapping[str, Mapping[str, Reached]]
) -> dict[str, SourceState]:
    """The sources' states with what was planned and, by the reports of the tasks, not read. Pure."""
    found = dict(after)
    for step, lanes in reached.items():
        splits: dict[str, list[Split]] = {}
        for split in (split for task in orders[step].tasks for split in task):
            splits.setdefault(split.partition, []).append(split)
        left = {lane: _left(splits[lane], at) for lane, at in lanes.items()}
        rest = {lane: waiting for lane, (waiting, _) in left.items() if waiting}
        skip = {lane: left[lane][1] for lane in rest if left[lane][1]}
        found[step] = msgspec.structs.replace(found[step], rest=rest, skip=skip)
    return found


def _left(splits: list[Split], reached: Reached) -> tuple[list[Split], int]:
    """The splits that are not read to their end, and how many rows of the first are."""
    left = splits[reached.splits :]
    if left and left[0].records is not None and not left[0].estimated and reached.rows >= left[0].records:
        return left[1:], 0
    return left, reached.rows if left else 0


def merge_clocks(after: Mapping[str, SourceState], clocks: Mapping[str, Mapping[str, object]]) -> dict[str, SourceState]:
    """The sources' states with the clocks that the tasks reported."""
    merged = {}
    for step, state in after.items():
        reported = {p: c for p, c in clocks.get(step, {}).items() if c is not None}
        merged[step] = msgspec.structs.replace(state, clocks={**state.clocks, **reported})
    return merged
