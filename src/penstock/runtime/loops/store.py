"""What is in a loop between two epochs.

Law: it is state like any other: a list of each partition, in a stage of its own, which has no steps. The tasks at the end of the
loop write it, those at its beginning read it in the next epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.ids import StepId
from penstock.runtime.committed import CommittedState
from penstock.runtime.deltas import write_changes
from penstock.runtime.messages import TaskReport
from penstock.state.key_groups import DealtGroups, groups_of
from penstock.state.overlay.elements import OperatorList
from penstock.state.overlay.writes import StateLabel

if TYPE_CHECKING:
    from penstock.runtime.services import Services
    from penstock.state.descriptors import OperatorListState

IN_FLIGHT = "in_flight"
"""The state of a loop."""


class LoopStore:
    """What is in a loop, in one partition: (timestamp, rounds, record), in the order it was fed back."""

    def __init__(self, services: Services, loop: StepId, state: OperatorListState[Any]) -> None:
        job = services.job
        groups = job.key_groups
        self._services = services
        self._stage = job.loop(loop).store
        self._committed = CommittedState(job, job.stages[self._stage], services.partition, services.order)
        self.elements = OperatorList(
            self._committed,
            state,
            epoch=services.order.epoch,
            state_id=services.state_id(loop, IN_FLIGHT),
            groups=groups_of(services.partition, job.parallelism, job.max_parallelism),
            key_groups=DealtGroups(groups.count, groups.hash),
            label=StateLabel(step=loop, state=IN_FLIGHT, function=None),
        )

    def report(self) -> TaskReport:
        """What has changed, as a task of the store's stage would report it."""
        services, committed = self._services, self._committed
        partition, attempt = services.partition, services.attempt
        report = TaskReport(stage=self._stage, partition=partition, attempt=attempt)
        place = (self._stage, partition)
        changes = self.elements.changes()
        report.state, report.delta = write_changes(services.job, services.order, place, attempt, [changes], committed)
        report.origin = committed.origin
        if committed.store is not None:
            report.entries = committed.store.entries()
        return report

    def close(self) -> None:
        self.elements.close()
        self._committed.close()
