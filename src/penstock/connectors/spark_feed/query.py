"""A running streaming query that hands over its batches.

Spark calls `_on_batch` in a thread of its own and takes the batch for done when that returns. So it returns only when the batch
is committed (or was already, or is empty), and raises when it is not, above all when the feed is closed meanwhile.
"""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING

from penstock.connectors.protocol import SourceContext
from penstock.connectors.spark_feed.batches import first_lines, write
from penstock.connectors.spark_feed.handover import Handover, Offer
from penstock.connectors.spark_feed.ledger import Ledger
from penstock.errors import ExecutorLostError, PenstockError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("penstock.spark_feed")

_STOP_SECONDS = 30.0
_WAITS = "Waiting for data to arrive"
"""What Spark says of a query that has looked for data and found none."""


class _ClosedError(Exception):
    """The feed was closed while a batch waited: Spark must not take it for done."""


class RunningQuery:
    """Started when made; `last` is the last batch committed, -1 for none."""

    def __init__(self, frame: DataFrame, context: SourceContext, checkpoint: str, last: int) -> None:
        self._storage = context.storage
        self._step = context.step
        self._last = last
        self._handover = Handover()
        self._ready = threading.Event()
        self._failure: Exception | None = None
        try:
            writer = frame.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", checkpoint)
            self._query: StreamingQuery = writer.queryName(f"penstock-{context.step}-{uuid.uuid4().hex[:8]}").start()
            self.id = str(self._query.id)
        except Exception as error:
            raise SourceError("the streaming query cannot be started", detail=first_lines(error)) from error
        try:
            self.ledger = Ledger(context.storage, f"{context.folder}/{self.id}", checkpoint)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Let the batches come: until now they wait."""
        self._ready.set()

    def offered(self) -> Offer | None:
        """The batch that waits to be read. An error when there will be none any more."""
        # The offer first: one that is made while the query's health is looked at is there the next time.
        offer = self._handover.current()
        self._check_alive()
        return offer

    def waiting(self) -> bool:
        """Does Spark wait for data? Not while a batch is on its way, nor before the query has looked for the first time."""
        try:
            return str(self._query.status["message"]) == _WAITS
        except Exception:  # `offered` says what is wrong with the query
            return False

    def committed(self, number: int) -> None:
        self._handover.settle(number)
        self.ledger.remove_old(number)

    def close(self) -> None:
        self._handover.close()
        self._ready.set()
        # Spark waits for the batch in hand, which the two lines above have let go. A dead JVM must not hold us up either.
        stopper = threading.Thread(target=_stop, args=(self._query,), name="penstock-feed-stop", daemon=True)
        stopper.start()
        stopper.join(_STOP_SECONDS)
        if stopper.is_alive():
            log.warning("the streaming query of %s did not stop within %d s", self._step, _STOP_SECONDS)

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        self._ready.wait()
        try:
            self._hand_over(frame, number)
        except _ClosedError:
            raise
        except Exception as error:
            self._failure = error
            raise

    def _hand_over(self, frame: DataFrame, number: int) -> None:
        if self._handover.closed:
            raise _ClosedError
        last = max(self._last, self._handover.settled)
        if number == last:
            log.info("%s: batch %d is committed already", self._step, number)
            return
        self.ledger.check_follows(last, number)
        pieces = write(frame, self._storage, self.ledger.folder(number))
        if not pieces:
            self.ledger.mark_empty(number)
        elif not self._handover.offer(Offer(number, pieces)):
            raise _ClosedError

    def _check_alive(self) -> None:
        try:
            if self._query.isActive:
                return
            failed = self._query.exception()
        except Exception as error:  # it cannot even be asked
            raise ExecutorLostError(f"the Spark session of {self._step} is gone: {first_lines(error, 1)}") from error
        if isinstance(self._failure, PenstockError):
            raise self._failure
        problem = self._failure or failed
        if problem is None:
            raise SourceError("the streaming query has been stopped", hint="let Penstock stop it, by stopping the job")
        raise SourceError("the streaming query has failed", detail=first_lines(problem)) from self._failure


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception as error:
        log.debug("stopping a streaming query: %s", error)
