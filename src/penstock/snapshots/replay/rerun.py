"""Running epochs again on the inline executor, on a shadow of the job's storage.

Law: nothing of the job is touched. State is read from the job's files and changed in a temporary folder; sinks are replaced.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.compile.compatibility import Origin
from penstock.compile.compiler import Target, compile_program
from penstock.compile.in_process import Planned
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.in_loops import loops_now, states_before
from penstock.epochs.planning.inputs import SourcePlan
from penstock.epochs.planning.report_merge import files_of, next_due, next_layout, watermarks_of
from penstock.epochs.starting.endpoints import open_sources
from penstock.epochs.starting.migration import Times, migrate_states
from penstock.epochs.starting.takeover import processing_time
from penstock.errors import PenstockError, SourceError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch, Milliseconds, StepId, Term
from penstock.jobs.manifest import EpochInput, Manifest, SourceState, StateLayout
from penstock.jobs.terms import JobInfo
from penstock.plan.definition import Definition
from penstock.plan.nodes import Graph
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, Failure, PartitionState, TaskReport
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.services import Observe
from penstock.runtime.task import Task
from penstock.snapshots.replay.capture import CapturedSink, EachRecord
from penstock.snapshots.replay.watching.debugger import Debugger
from penstock.state.entries.kinds import is_internal
from penstock.state.stores.store import open_stores
from penstock.storage import Storage
from penstock.timing.durations import to_ms
from penstock.windows.step import WindowStep

TERM = Term(0)
"""No driver ever has it: what a replay writes is told from what a job writes by its name."""


@dataclass(slots=True, kw_only=True)
class Rerunnable:
    """A program, compiled on the state of a manifest. `dropped`: states that it does not claim; `migrated`: those that were
    rewritten for it, in the shadow."""

    graph: Graph
    layout: StateLayout
    ids: dict[tuple[str, str], int]
    job: CompiledJob
    dropped: list[str]
    migrated: list[str]


def compile_on(graph: Graph, info: JobInfo, parent: Manifest, storage: Storage, folder: str, *, trust: bool) -> Rerunnable:
    """Today's program on yesterday's state. Partitions are as they were, so that everything comes in the same order."""
    before = parent.state
    target = Target(
        name=info.name,
        job=info.job,
        storage=storage,
        parallelism=before.parallelism,
        key_groups=before.key_groups,
        term=TERM,
        mark="replay",
        local_dir=folder,
    )
    origin = Origin(source=f"{storage.uri}@{parent.epoch}", foreign=True, trusted=trust)
    compiled = compile_program(graph, before, {}, target, allow_dropped=True, origin=origin)  # what sources read is in the orders
    claims = compiled.states
    times = Times(processing_time=parent.processing_time, watermarks=parent.watermarks)
    layout = migrate_states(storage, compiled.layout, claims, times, job=info.job, term=TERM, epoch=parent.epoch)
    lost = [one for number, one in before.ids.items() if int(number) not in claims.ids.values() and not is_internal(one.kind)]
    return Rerunnable(
        graph=compiled.graph,
        layout=layout,
        ids=claims.ids,
        job=compiled.job,
        dropped=sorted(f"{one.step}.{one.name}" for one in lost),
        migrated=sorted(f"{one.declaration.step}.{one.declaration.name}" for one in claims.rewritings.values()),
    )


def watchable(job: CompiledJob, closely: Collection[StepId]) -> CompiledJob:
    """The job with every sink replaced, and with windows that are looked at closely taken record by record."""

    def shown(step: StepId, definition: Definition) -> Definition:
        if isinstance(definition, WindowStep) and step in closely:
            return EachRecord(windows=definition)
        return CapturedSink(sink=definition) if isinstance(definition, SinkStep) else definition

    stages = tuple(
        replace(stage, steps=tuple(replace(step, definition=shown(step.step, step.definition)) for step in stage.steps))
        for stage in job.stages
    )
    return replace(job, stages=stages)


@dataclass(slots=True, kw_only=True)
class Ran:
    """What came of running epochs again: the state after them, and the reports of each."""

    layout: StateLayout
    watermarks: dict[str, Milliseconds]
    reports: list[list[TaskReport]]
    failure: Failure | None = None


def run_epochs(
    job: CompiledJob,
    parent: Manifest,
    layout: StateLayout,
    inputs: tuple[EpochInput, ...],
    observe: Observe,
    debugger: Debugger | None,
) -> Ran:
    """Run epochs one after another, each on the state of the one before, until one fails."""
    executor = InlineExecutor(partial(ReplayTask, observe=observe, debugger=debugger))
    executor.start(job)
    ran = Ran(layout=layout, watermarks=dict(parent.watermarks), reports=[])
    try:
        for given in inputs:
            order = EpochOrder(
                epoch=given.epoch,
                term=TERM,
                plan=given.plan,
                head=parent.epoch,
                processing_time=given.processing_time,
                sources=given.read,
                watermarks=ran.watermarks,
                states=whole_states(ran.layout),
                final=given.final,
                tables=given.tables,
                laps=given.laps,
            )
            reports = executor.run(order)
            ran.reports.append(reports)
            failures = [report for report in sorted(reports, key=lambda r: (r.stage, r.partition)) if report.failure is not None]
            if failures:
                ran.failure = failures[0].failure
                break
            ran.layout = next_layout(ran.layout, files_of(reports).items(), next_due(ran.layout, reports))
            ran.watermarks = {**ran.watermarks, **watermarks_of(reports)}
    except PenstockError as error:
        raise _gone(error, inputs) from error
    finally:
        executor.close()
    if ran.failure is not None and ran.failure.kind == "SourceError":
        raise SourceError(
            f"the input of epoch {inputs[len(ran.reports) - 1].epoch} cannot be read again",
            detail=f"{ran.failure.what}\n{ran.failure.detail}".rstrip(),
            hint=ran.failure.hint or "an epoch can be replayed as long as its sources still have what it read",
        )
    return ran


def _gone(error: PenstockError, inputs: tuple[EpochInput, ...]) -> PenstockError:
    error.add_note(f"while epoch {inputs[-1].epoch} was replayed; the job itself is untouched")
    return error


def whole_states(layout: StateLayout) -> list[list[PartitionState]]:
    """Where the state of each partition is, file by file: nothing is left to be looked up in a manifest."""
    return [
        [PartitionState(tail=list(chain), whole=True, next_due=due) for chain, due in zip(chains, dues, strict=True)]
        for chains, dues in zip(layout.chains, layout.next_due, strict=True)
    ]


class ReplayTask(Task):
    """A task that lets a debugger look at what failed."""

    def __init__(self, *arguments: Any, debugger: Debugger | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._debugger = debugger

    def _fail(self, error: PenstockError) -> None:
        super()._fail(error)
        if self._debugger is not None:
            self._debugger.after_error(error)


# --- the epoch that is not committed -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NextEpoch:
    """What the job would read next, and how much would be left."""

    input: EpochInput
    backlog: int | None
    news: bool


def plan_next(
    planned: Planned,
    info: JobInfo,
    head: Manifest,
    storage: Storage,
    folder: str,
    now_ms: Milliseconds,
    records: int | None,
    *,
    trust: bool,
) -> NextEpoch:
    """The next epoch as the loop would plan it when the job starts again. Enumerators are asked; nothing is committed."""
    state = head.state
    config = replace(planned.config, parallelism=state.parallelism, max_parallelism=state.max_parallelism, local_dir=folder)
    admission = Admission(
        target_ms=to_ms(config.target_epoch),
        max_records=max(config.max_records_per_epoch, records or 0),
        max_bytes=config.max_bytes_per_epoch,
        readers=config.parallelism,
        first=records or config.first_records_per_epoch,
    )
    now = processing_time(now_ms, head)
    program = compile_on(planned.graph, info, head, storage, folder, trust=trust)
    sources = open_sources(program.graph, config, storage, program.job, InlineExecutor())
    limits = admission.limits(sum(not head.sources.get(source.step, SourceState()).ended for source in sources))
    plans: dict[str, SourcePlan] = {}
    try:
        for source in sources:
            at = head.sources.get(source.step, SourceState())
            try:
                plans[source.step] = source.plan(at, limits, now, config.parallelism)
            except PenstockError as error:
                raise SourceError(
                    f"what the source {source.step!r} would read next cannot be found out here",
                    detail=f"{error.what}\n{error.detail}".rstrip(),
                    hint=error.hint or "fix the source; epochs that are committed can be replayed",
                ) from error
    finally:
        for source in sources:
            source.close()
    backlogs = [plan.backlog for plan in plans.values() if plan.backlog is not None]
    return NextEpoch(
        input=EpochInput(
            epoch=Epoch(head.epoch + 1),
            plan=head.plan + 1,
            processing_time=now,
            read={step: plan.order for step, plan in plans.items()},
            final=loops_now(program.job, head).final(
                states_before(plans, head.sources), [plan.after for plan in plans.values()], drain=False
            ),
            tables=head.tables,
        ),
        backlog=sum(backlogs) if backlogs else None,
        news=any(plan.news for plan in plans.values()),
    )


def close_stores(folder: str) -> None:
    """Close the local stores below a folder that is about to go."""
    below = os.path.realpath(folder) + os.sep
    for store in open_stores():
        if store.path.startswith(below):
            store.close()
