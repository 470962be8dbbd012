"""What the next epoch is to be, if there is a reason for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.config import JobConfig
from penstock.connectors.protocol import Limits
from penstock.epochs.committing.pipeline import RanEpoch, layers_of
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.checkpoints import Checkpoints, Durability
from penstock.epochs.planning.inputs import SourceInput, SourcePlan
from penstock.epochs.planning.report_merge import partition_states
from penstock.epochs.starting.output_replacement import caught_up
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Milliseconds, Term
from penstock.jobs.manifest import Manifest, SourceState
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An epoch that is to be run: the order for the tasks, and the sources' states if it succeeds."""

    order: EpochOrder
    sources: dict[str, SourceState]
    durability: Durability
    started_ms: Milliseconds
    final: bool
    ends_repair: bool = False
    drained: Epoch | None = None
    """The epoch drains the job; this is the one before it."""


@dataclass(frozen=True, slots=True)
class Later:
    """There is no reason for an epoch. `wake_ms`: when there may be one; None: nobody knows, look again soon."""

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
    plan_number: int

    def new_plan_number(self) -> int:
        self.plan_number += 1
        return self.plan_number

    def decide(
        self, head: Manifest, committed: Manifest, waiting: list[RanEpoch], now: Milliseconds, *, drain: bool = False
    ) -> Decision | Later:
        """`head`: the newest epoch that has run; `waiting`: those that have run since `committed`. `drain`: nothing more is read,
        and all time ends; it is an epoch of its own, so `waiting` is empty then."""
        plans = self._plan_sources(head, now) if not drain else self._drain_sources(head)
        fail_point("source:planned")
        ended = all(plan.after.ended for plan in plans.values())
        due = [time for time in (self._next_processing_timer(head), self.checkpoints.due_ms(waiting)) if time is not None]
        checkpoint = self.checkpoints.wanted and bool(waiting) and not waiting[-1].durable
        ends_repair = caught_up(head.repair, self.sources, plans, ended=ended)
        news = ended or checkpoint or ends_repair or any(plan.news for plan in plans.values())
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
            deltas=durability.deltas,
            flush=durability.flush,
        )
        sources = {step: plan.after for step, plan in plans.items()}
        return Decision(
            order=order,
            sources=sources,
            durability=durability,
            started_ms=now,
            final=ended,
            ends_repair=ends_repair,
            drained=committed.epoch if drain else None,
        )

    def idle(self) -> bool:
        """There is no reason for an epoch: will there be none either, as far as the sources know?"""
        return all(source.idle() for source in self.sources)

    def _plan_sources(self, head: Manifest, now: Milliseconds) -> dict[str, SourcePlan]:
        states = {source.step: head.sources.get(source.step, SourceState()) for source in self.sources}
        limits = self.admission.limits(sum(not state.ended for state in states.values()))
        return {source.step: self._plan(source, states[source.step], limits, now) for source in self.sources}

    def _drain_sources(self, head: Manifest) -> dict[str, SourcePlan]:
        return {source.step: source.drain(head.sources.get(source.step, SourceState())) for source in self.sources}

    def _plan(self, source: SourceInput, state: SourceState, limits: Limits, now: Milliseconds) -> SourcePlan:
        plan = source.plan(state, limits, now, self.config.parallelism)
        if self.config.guarantee == "at-most-once" and plan.backlog is not None and plan.backlog > 2 * limits.records:
            return source.plan(source.shed(state, now), limits, now, self.config.parallelism)
        return plan

    def _next_processing_timer(self, head: Manifest) -> Milliseconds | None:
        ids = {number for (_, name), number in self.job.state_ids.items() if name == "timers:processing"}
        due = [time for stage in head.state.next_due for times in stage for i, time in times.items() if i in ids]
        return min(due, default=None)
