"""A job that this process drives: what its loop works with, from the take-over on."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from penstock.connectors.protocol import Committer
from penstock.epochs.availability.mirror import Mirror
from penstock.epochs.committing.group_commit import GroupCommit
from penstock.epochs.committing.orphans import OrphanSweep
from penstock.epochs.committing.pipeline import Pipeline, RanEpoch
from penstock.epochs.committing.retention import Retention
from penstock.epochs.history import JobResult, record_of
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.checkpoints import Checkpoints
from penstock.epochs.planning.epoch_planner import Decision, EpochPlanner
from penstock.epochs.planning.inputs import SourceInput
from penstock.epochs.planning.report_merge import committables_of, files_of
from penstock.ids import Epoch, StepId, Term
from penstock.jobs.manifest import Manifest
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import TaskReport

log = logging.getLogger("penstock")


@dataclass(slots=True, kw_only=True)
class Driven:
    """`head`: the newest epoch that has run, committed or not; `pipeline.head` is committed."""

    job: CompiledJob
    term: Term
    head: Manifest
    result: JobResult
    sources: list[SourceInput]
    committers: dict[StepId, Committer]
    planner: EpochPlanner
    admission: Admission
    checkpoints: Checkpoints
    pipeline: Pipeline
    commits: GroupCommit
    retention: Retention
    orphans: OrphanSweep
    mirror: Mirror | None
    _warned: set[str] = field(default_factory=set)
    """Steps whose warning has been passed on."""

    def ran(self, decision: Decision, reports: list[TaskReport], manifest: Manifest, started: float) -> RanEpoch:
        """An epoch that has run, ready to be committed. `started`: by `time.perf_counter`."""
        record = record_of(
            manifest,
            reports,
            sources={source.step for source in self.sources},
            sinks=set(self.committers),
            started_ms=decision.started_ms,
            run_seconds=time.perf_counter() - started,
            backlog=decision.backlog,
        )
        return RanEpoch(
            manifest=manifest,
            files=files_of(reports),
            contents={report.state.name: report.delta for report in reports if report.state is not None and report.delta},
            reports=reports,
            record=record,
            started=started,
            final=decision.final,
            durable=decision.durability.durable,
            flush=decision.durability.flush,
        )

    def warn(self, reports: list[TaskReport]) -> None:
        """Pass on what tasks have to say, once for each step."""
        for step, text in (item for report in reports for item in report.warnings.items()):
            if step not in self._warned:
                self._warned.add(step)
                log.warning("%s", text)

    def abort(self, epoch: Epoch, reports: list[TaskReport]) -> None:
        """Let the sinks drop what was staged for an epoch that will not be."""
        for step, items in committables_of(reports).items():
            committer = self.committers.get(StepId(step))
            if committer is not None:
                try:
                    committer.abort(epoch, items)
                except Exception as error:
                    log.warning("the sink %s could not drop what epoch %d had staged: %s", step, epoch, error)
