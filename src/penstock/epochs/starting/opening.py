"""Opening the state before the take-over is committed: tasks read, and so check, what their hosts have not applied yet.

That is what the first epochs would do. So it costs nothing, but the job of the executor that opens it all at once; and not even
that where all files were copied, and read back, by the start itself.
"""

from __future__ import annotations

import logging

from penstock.epochs.executor import OpensState
from penstock.epochs.planning.report_check import revive
from penstock.epochs.setup import Setup
from penstock.epochs.starting.takeover import Taken
from penstock.errors import CorruptFileError, EpochFailedError
from penstock.ids import Epoch
from penstock.jobs.wholeness import check_content, state_files, with_way_out
from penstock.runtime.messages import EpochOrder, PartitionState

log = logging.getLogger("penstock")


class StateOpening:
    """Has the state opened once, however often a take-over is tried."""

    def __init__(self, setup: Setup) -> None:
        self._storage = setup.storage
        self._executor = setup.executor
        self._fall_back = setup.config.fall_back
        self._invocation = setup.invocation
        self._known: set[str] | None = None
        """Files that were checked."""

    def open(self, taken: Taken) -> bool:
        """Raise `CorruptFileError` if a file that the job is to resume from is damaged. True: the executor is started."""
        refs = state_files(taken.layout)
        if taken.before is None or not refs or not isinstance(self._executor, OpensState):
            return False
        if taken.checked.issuperset(ref.name for ref in refs):
            return False
        try:
            if self._known is not None:  # the driver that is to be replaced has committed meanwhile: it will not wait
                check_content(self._storage, taken.before.epoch, [ref for ref in refs if ref.name not in self._known])
                self._known = {ref.name for ref in refs}
                return False
            self._executor.start(taken.job)
            self._open(taken, self._executor)
            self._known = {ref.name for ref in refs}
        except CorruptFileError as error:
            if taken.elsewhere or self._fall_back:
                raise
            raise with_way_out(self._storage, taken.info.job, error, self._invocation) from None
        return True

    def _open(self, taken: Taken, executor: OpensState) -> None:
        assert taken.before is not None
        order = EpochOrder(
            epoch=Epoch(taken.before.epoch + 1),
            term=taken.term,
            plan=0,
            head=taken.before.epoch,
            processing_time=taken.before.processing_time,
            states=[[PartitionState(tail=chain) for chain in stage] for stage in taken.layout.chains],
            opens=True,
        )
        try:
            reports = executor.open_state(order)
        except EpochFailedError as error:
            log.warning("the state could not be opened before the take-over; the first epoch tries again: %s", error)
            return
        for report in reports:
            if report.failure is not None:
                found = revive(report.failure)
                if not isinstance(found, CorruptFileError):
                    raise found
                what = f"{found.what}; epoch {taken.before.epoch} needs it"
                raise CorruptFileError(what, detail=found.detail, hint=found.hint)
