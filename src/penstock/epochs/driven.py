"""A job that this process drives: what its loop works with, from the take-over on."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.connectors.protocol import Committer
from penstock.epochs.availability.mirror import Mirror
from penstock.epochs.committing.group_commit import GroupCommit
from penstock.epochs.committing.orphans import OrphanSweep
from penstock.epochs.committing.pipeline import Pipeline
from penstock.epochs.committing.retention import Retention
from penstock.epochs.history import JobResult
from penstock.epochs.planning.admission import Admission
from penstock.epochs.planning.checkpoints import Checkpoints
from penstock.epochs.planning.epoch_planner import EpochPlanner
from penstock.epochs.planning.inputs import SourceInput
from penstock.epochs.planning.report_merge import committables_of
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

    def abort(self, epoch: Epoch, reports: list[TaskReport]) -> None:
        """Let the sinks drop what was staged for an epoch that will not be."""
        for step, items in committables_of(reports).items():
            committer = self.committers.get(StepId(step))
            if committer is not None:
                try:
                    committer.abort(epoch, items)
                except Exception as error:
                    log.warning("the sink %s could not drop what epoch %d had staged: %s", step, epoch, error)
