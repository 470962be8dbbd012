"""A Structured Streaming query as the input of epochs.

- The query's `foreachBatch` writes its batch to the job's storage, offers it, and returns once the epoch that read it is
  committed: only then does Spark commit the batch itself. So Spark is behind us by one batch at most, and never ahead.
- The position is (query id, batch number). After a restart Spark delivers the batch after its last commit: either the last one
  we committed (it is acknowledged without an epoch) or the next. Anything else means that the query's checkpoint and the job's
  storage do not belong together, and is refused.
- A batch without rows makes no epoch. It leaves a marker in the storage, so that the gap in our numbers is accounted for.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.protocol import Limits, Planned, Position, SourceContext, Split
from penstock.connectors.spark_feed import frames
from penstock.connectors.spark_feed.batches import feed_folder, feed_split, write
from penstock.connectors.spark_feed.handover import Handover, Offer
from penstock.errors import AlreadyExistsError, ConfigError, PenstockError, SourceError
from penstock.ids import Epoch
from penstock.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.connectors.spark_feed.source import SparkStreamSource

log = logging.getLogger("penstock.spark_feed")

KEPT_BATCHES = 10
_STOP_SECONDS = 30.0
_EMPTY = "empty"


class StreamPosition(msgspec.Struct, frozen=True):
    """The last batch that is part of a committed epoch."""

    query: str
    batch: int


class _ClosedError(Exception):
    """The feed is closed while a batch waits: Spark must not take it for done."""


class StreamEnumerator:
    def __init__(self, source: SparkStreamSource, context: SourceContext) -> None:
        self._source = source
        self._context = context
        self._folder = feed_folder(context.step)
        self._handover = Handover()
        self._query: StreamingQuery | None = None
        self._query_id = ""
        self._base: StreamPosition | None = None
        self._known = threading.Event()
        self._failure: Exception | None = None
        self._written: set[int] = set()
        self._names: list[str] = ["0"]

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        at = None if position is None else msgspec.convert(position, StreamPosition)
        if self._query is None:
            self._start(at)
        # The batch first: one that is offered while the query's health is looked at is there the next time.
        offer = self._handover.current()
        self._check_alive()
        if offer is None or (at is not None and offer.number <= at.batch):
            return Planned(position=position, partitions=self._names)
        self._check_next(at, offer.number)
        splits = self._splits(offer, max(1, limits.readers))
        self._names = [split.partition for split in splits]
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(StreamPosition(self._query_id, offer.number)),
            partitions=self._names,
        )

    def committed(self, position: Position, epoch: Epoch) -> None:
        if position is None:
            return
        at = msgspec.convert(position, StreamPosition)
        if at.query == self._query_id:
            self._handover.settle(at.batch)
            self._remove_old(at.batch)

    def close(self) -> None:
        self._handover.close()
        self._known.set()
        query, self._query = self._query, None
        if query is None:
            return
        # Spark waits for the batch in hand, which `_handover.close` has let go. A dead JVM must not hold us up either.
        stopper = threading.Thread(target=_stop, args=(query,), name="penstock-feed-stop", daemon=True)
        stopper.start()
        stopper.join(_STOP_SECONDS)
        if stopper.is_alive():
            log.warning("the streaming query of %s did not stop within %d s", self._context.step, _STOP_SECONDS)

    def _start(self, at: StreamPosition | None) -> None:
        self._base = at
        checkpoint = self._checkpoint()
        session: SparkSession = self._session()
        try:
            frame = self._frame(session)
            writer = frame.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", checkpoint)
            query = writer.queryName(f"penstock-{self._context.step}-{uuid.uuid4().hex[:8]}").start()
        except PenstockError:
            raise
        except Exception as error:
            raise SourceError("the streaming query cannot be started", detail=_first_lines(error)) from error
        self._query = query
        self._query_id = str(query.id)
        if at is not None and at.query != self._query_id:
            strangers = self._strangers(
                f"the job has read batches of the query {at.query}, and the checkpoint is of the query {self._query_id}",
                checkpoint,
            )
            self.close()
            raise strangers
        self._note_written()
        self._known.set()

    def _session(self) -> SparkSession:
        spark = self._context.extras.get("spark")
        if spark is None:
            raise ConfigError("a Spark feed needs a job that runs on Spark", hint="run the job with the spark executor")
        session: SparkSession = spark()
        return session

    def _frame(self, session: SparkSession) -> DataFrame:
        source = self._source
        if source.frame is not None:
            return frames.recall(source.frame)
        assert source.format is not None
        reader = session.readStream.format(source.format).options(**dict(source.options))
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load()

    def _checkpoint(self) -> str:
        """Where Spark keeps the query's progress: beside what the job keeps, so that the two live and die together."""
        if self._source.checkpoint is not None:
            return self._source.checkpoint
        storage = self._context.storage
        if isinstance(storage, LocalStorage):
            return os.path.join(storage.root, self._folder, "checkpoint")
        local = self._context.extras.get("local_dir")
        if local is None:
            raise ConfigError(
                "the checkpoint of the streaming query has no place",
                hint="give the source a checkpoint= that Spark can write to, such as s3a://bucket/folder",
            )
        return os.path.join(local, self._context.job, self._folder, "checkpoint")

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        """Called by Spark, in a thread of its own."""
        self._known.wait()
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
        last = max(-1 if self._base is None else self._base.batch, self._handover.settled)
        if number == last:
            log.info("%s: batch %d is committed already", self._context.step, number)
            return
        self._check_between(last, number)
        pieces = write(frame, self._context.storage, self._batch_folder(number))
        self._written.add(number)
        if not pieces:
            self._mark_empty(number)
        elif not self._handover.offer(Offer(number, pieces)):
            raise _ClosedError

    def _batch_folder(self, number: int) -> str:
        return f"{self._folder}/{self._query_id}/{number:010d}"

    def _mark_empty(self, number: int) -> None:
        try:
            self._context.storage.create(f"{self._batch_folder(number)}/{_EMPTY}", b"")
        except AlreadyExistsError:
            pass

    def _check_between(self, last: int, number: int) -> None:
        """Every batch between the last one committed and this one must have been empty."""
        storage = self._context.storage
        missing = [n for n in range(last + 1, number) if not storage.exists(f"{self._batch_folder(n)}/{_EMPTY}")]
        if number < last or missing:
            raise self._strangers(f"the job has committed batch {last}, and Spark delivers batch {number}", self._checkpoint())

    def _check_next(self, at: StreamPosition | None, number: int) -> None:
        if at is not None and at.query != self._query_id:
            raise self._strangers(f"the position is of the query {at.query}, not {self._query_id}", self._checkpoint())
        self._check_between(-1 if at is None else at.batch, number)

    def _strangers(self, detail: str, checkpoint: str) -> SourceError:
        return SourceError(
            "the checkpoint of the streaming query and the job's storage do not belong together",
            detail=f"{detail}\ncheckpoint: {checkpoint}\nstorage: {self._context.storage.uri}",
            hint="put back the checkpoint that goes with this storage; or start the step under another name, which reads from "
            "where the Spark source begins",
        )

    def _check_alive(self) -> None:
        if isinstance(self._failure, PenstockError):
            raise self._failure
        query = self._query
        assert query is not None
        try:
            if query.isActive:
                return
            failed = query.exception()
        except Exception as error:
            raise SourceError("the streaming query cannot be asked how it is", detail=_first_lines(error)) from error
        problem = self._failure or failed
        if problem is None:
            raise SourceError("the streaming query has been stopped", hint="let Penstock stop it, by stopping the job")
        raise SourceError("the streaming query has failed", detail=_first_lines(problem)) from self._failure

    def _splits(self, offer: Offer, readers: int) -> list[Split]:
        lanes = [offer.pieces[k::readers] for k in range(min(readers, len(offer.pieces)))]
        storage = self._context.storage
        return [feed_split(str(k), storage, [(p, 0, p.rows) for p in lane]) for k, lane in enumerate(lanes)]

    def _note_written(self) -> None:
        for listed in self._context.storage.list(f"{self._folder}/{self._query_id}"):
            name = listed.path.split("/")[3]
            if name.isdigit():
                self._written.add(int(name))

    def _remove_old(self, last: int) -> None:
        storage = self._context.storage
        for number in sorted(n for n in list(self._written) if n <= last - KEPT_BATCHES):
            try:
                storage.delete([listed.path for listed in storage.list(self._batch_folder(number))])
            except PenstockError as error:
                log.warning("batch %d of %s was not removed: %s", number, self._context.step, error)
                return
            self._written.discard(number)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception as error:
        log.debug("stopping a streaming query: %s", error)


def _first_lines(error: object, most: int = 20) -> str:
    return "\n".join(str(error).splitlines()[:most])
