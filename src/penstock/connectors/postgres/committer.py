"""Commits to PostgreSQL, on the driver. While the database does not answer it goes on trying, for as long as `patience` says.

A connection that breaks during a commit leaves open whether it took effect: the next attempt finds the epoch recorded, or not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.connectors.postgres.server import failure, passes
from penstock.connectors.protocol import Committable, CommitterContext, OutputSince
from penstock.connectors.twophase.transactional import TransactionalCommitter
from penstock.errors import SinkError
from penstock.ids import Epoch

if TYPE_CHECKING:
    from penstock.connectors.postgres.sink import PostgresSink

log = logging.getLogger("penstock.postgres")

_AGAIN_S = 0.5
_KEPT = "what is staged is kept, and the commit is tried again when the job resumes"

T = TypeVar("T")


class PostgresCommitter(TransactionalCommitter):
    def __init__(self, sink: PostgresSink, context: CommitterContext) -> None:
        super().__init__(sink, context)
        self._where = sink.describe()
        self._options = sink.options
        self._patience_s = sink.patience_s

    def deliver(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        self._patiently(lambda: super(PostgresCommitter, self).deliver(epoch, committables))

    def published_after(self, epoch: Epoch) -> OutputSince:
        return self._patiently(lambda: super(PostgresCommitter, self).published_after(epoch))

    def fence(self, at: Epoch) -> None:
        self._patiently(lambda: super(PostgresCommitter, self).fence(at))

    def _patiently(self, action: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._patience_s
        told = False
        while True:
            try:
                return action()
            except SinkError as error:
                cause = error.__cause__
                if cause is None or not hasattr(cause, "sqlstate"):  # an error of ours
                    raise
                if not passes(cause) or time.monotonic() > deadline:
                    raise failure(SinkError, error.what, cause, (self._where, self._options), hint=_hint(cause)) from cause
                if not told:
                    log.warning("the sink %s waits for the database: %s", self._context.step, cause)
                    told = True
                time.sleep(_AGAIN_S)


def _hint(error: BaseException) -> str:
    state = str(getattr(error, "sqlstate", None) or "")
    if state == "42P10":
        return f"key= needs a primary key or unique index on these columns; {_KEPT}"
    if state.startswith("22"):
        return f"the table cannot hold a value: change the column's type, and the job goes on; {_KEPT}"
    return _KEPT
