"""What the next epoch is to be, if there is a reason for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.config import JobConfig
from penstock.connectors.protocol import Limits
from penstock.epochs.committing.pipeline import RanEpoch, layers_of
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.checkpoints import Checkpoints, Durability
from penstock.epochs.planning.in_loops import laps_after, loops_now, states_before
from penstock.epochs.planning.inputs import SourceInput, SourcePlan
from penstock.epochs.planning.reach import UNBOUND, Bound, Reach
from penstock.epochs.planning.report_merge import partition_states
from penstock.epochs.planning.tables import TableKeeper
from penstock.epochs.starting.output_replacement import caught_up
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Milliseconds, StepId, Term
from penstock.jobs.manifest import Manifest, SourceState
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An epoch that is to be run: the order for the tasks, and the sources' states if it succeeds."""

    order: EpochOrder
    sources: dict[str, SourceState]
    durability: Durability
    started_ms: Milliseconds
    final: bool
    ends_repair: bool = False
    bound: Bound = UNBOUND
    """How far in event time the epoch goes."""
    backlog: dict[str, int | None] = field(default_factory=dict)
    """About how many records each source has not read after this, as far as it knows."""
    drained: Epoch | None = None
    """The epoch drains the job; this is the one before it."""


@dataclass(frozen=True, slots=True)
class Later:
    """There is no reason for an epoch. `wake_ms`: when there may be one; None: unknown, look again soon."""

    wake_ms: Milliseconds | None


@dataclass(slots=True, kw_only=True)
class EpochPlanner:
    """Plans epochs of one driver. `plan_number`: of the last one; a number is never used again."""

    config: JobConfig
    job: CompiledJob
    term: Term
    sources: Sequence[SourceInput]
    admission: Admission
    checkpoints: Checkpoints
    tables: TableKeeper
    plan_number: int
    reach: Reach = field(default_factory=Reach)

    def new_plan_number(self) -> int:
        self.plan_number += 1
        return self.plan_number

    def decide(
        self, head: Manifest, committed: Manifest, waiting: list[RanEpoch], now: Milliseconds, *, drain: bool = False
    ) -> Decision | Later:
        """`head`: the newest epoch that has run; `waiting`: those that have run since `committed`. `drain`: nothing more is read,
        and all time ends, once the loops are empty; it is an epoch of its own, so `waiting` is empty then."""
        loops = loops_now(self.job, head)
        if drain:
            bound, plans = UNBOUND, self._pause_sources(head) if loops.turn and not loops.ended else self._drain_sources(head)
        else:
            bound, plans = self._plan_sources(head, now)
        fail_point("source:planned")
        ended = loops.final(states_before(plans, head.sources), [plan.after for plan in plans.values()], drain=drain)
        due = [time for time in (self._next_processing_timer(head), self.checkpoints.due_ms(waiting)) if time is not None]
        checkpoint = self.checkpoints.wanted and bool(waiting) and not waiting[-1].durable
        ends_repair = caught_up(head.repair, self.sources, plans, ended=ended)
        news = ended or checkpoint or ends_repair or loops.turn or loops.wait or any(plan.news for plan in plans.values())
        if not news and not any(time <= now for time in due):
            wakes = [plan.wake_ms for plan in plans.values() if plan.wake_ms is not None]
            soon = any(plan.wake_ms is None for plan in plans.values())
            return Later(None if soon else min([*wakes, *due], default=None))
        durability = self.checkpoints.durability(now, waiting, final=ended)
        order = EpochOrder(
            epoch=Epoch(committed.epoch + 1 + len(waiting)),
            term=self.term,
            plan=self.new_plan_number(),
            head=committed.epoch,
            settled=committed.plan,
            processing_time=now,
            sources={step: plan.order for step, plan in plans.items()},
            watermarks=head.watermarks,
            states=partition_states(committed.state, head.state.next_due, layers_of(waiting)),
            final=ended,
            tables=self.tables.versions(head.tables, now),
            deltas=durability.deltas,
            flush=durability.flush,
            laps=laps_after(head) if loops.turn else 1,
        )
        sources = {step: plan.after for step, plan in plans.items()}
        return Decision(
            order=order,
            sources=sources,
            durability=durability,
            started_ms=now,
            final=ended,
            ends_repair=ends_repair,
            bound=bound,
            backlog={step: plan.backlog for step, plan in plans.items()},
            drained=(committed.epoch if head.drained is None else head.drained) if drain and ended else None,
        )

    def idle(self) -> bool:
        """There is no reason for an epoch: will there be none either, as far as the sources know?"""
        return all(source.idle() for source in self.sources)

    def _plan_sources(self, head: Manifest, now: Milliseconds) -> tuple[Bound, dict[str, SourcePlan]]:
        states = {source.step: head.sources.get(source.step, SourceState()) for source in self.sources}
        limits = self._limits(states)
        paced = [source for source in self.sources if source.paced]
        wide = self._wide(limits)
        asked = {source.step: source.ask(states[source.step], wide, now) for source in paced}
        bound = UNBOUND
        if all(asked[source.step].planned.more is not None for source in paced if not states[source.step].ended):
            lanes = [lane for source in paced for lane in source.lanes(asked[source.step])]
            planned = sum(source.records(asked[source.step]) for source in paced)
            bound = self.reach.bound(lanes, planned, self.admission.records)
        plans: dict[str, SourcePlan] = {}
        for source in self.sources:
            state = states[source.step]
            if source.paced:
                plans[source.step] = source.bounded(state, asked[source.step], bound, now, self.config.parallelism)
            else:
                plans[source.step] = self._plan(source, state, limits, now)
        return bound, plans

    def _limits(self, states: Mapping[StepId, SourceState]) -> Limits:
        return self.admission.limits(sum(not state.ended for state in states.values()))

    def _wide(self, limits: Limits) -> Limits:
        """What is planned of a source that is read in order of event time."""
        factor = self.reach.factor
        return msgspec.structs.replace(limits, records=limits.records * factor, bytes=limits.bytes * factor)

    def fell_short(self, decision: Decision, clock: Milliseconds) -> None:
        """An epoch cannot reach its bound: the next decision is about a nearer one, or about more input."""
        self.reach.fell_short(decision.bound, clock, self.admission.records)

    def ran(self, decision: Decision, reports: Sequence[TaskReport]) -> None:
        """An epoch has run: how far should the next one go?"""
        lanes = [lane for report in reports for reached in report.reached.values() for lane in reached.values()]
        if lanes:
            self.reach.ran(decision.bound, sum(lane.records for lane in lanes), self.admission.records)

    def _drain_sources(self, head: Manifest) -> dict[str, SourcePlan]:
        return {source.step: source.drain(head.sources.get(source.step, SourceState())) for source in self.sources}

    def _pause_sources(self, head: Manifest) -> dict[str, SourcePlan]:
        return {source.step: source.pause(head.sources.get(source.step, SourceState())) for source in self.sources}

    def _plan(self, source: SourceInput, state: SourceState, limits: Limits, now: Milliseconds) -> SourcePlan:
        plan = source.plan(state, limits, now, self.config.parallelism)
        if self.config.guarantee == "at-most-once" and plan.backlog is not None and plan.backlog > 2 * limits.records:
            return source.plan(source.shed(state, now), limits, now, self.config.parallelism)
        return plan

    def _next_processing_timer(self, head: Manifest) -> Milliseconds | None:
        ids = {number for (_, name), number in self.job.state_ids.items() if name == "timers:processing"}
        due = [time for stage in head.state.next_due for times in stage for i, time in times.items() if i in ids]
        return min(due, default=None)
