"""A Structured Streaming query as the input of epochs.

- The query's `foreachBatch` writes its batch to the job's storage, offers it, and returns once the epoch that read it is
  committed: only then does Spark commit the batch itself. So Spark is behind us by one batch at most, and never ahead.
- The position is (query id, batch number). After a restart Spark delivers the batch after its last commit: either the last one
  we committed (it is acknowledged without an epoch) or the next. Anything else means that the query's checkpoint and the job's
  storage do not belong together, and is refused.
- A query that failed is started anew when the loop asks again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.protocol import Limits, Planned, Position, SourceContext, Split
from penstock.connectors.spark_feed import frames
from penstock.connectors.spark_feed.batches import feed_split, first_lines
from penstock.connectors.spark_feed.folder_change import check_folder, folder_missing
from penstock.connectors.spark_feed.handover import Offer
from penstock.connectors.spark_feed.ledger import strangers
from penstock.connectors.spark_feed.query import RunningQuery
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.ids import Epoch
from penstock.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.spark_feed.source import SparkStreamSource


class StreamPosition(msgspec.Struct, frozen=True):
    """The last batch that is part of a committed epoch."""

    query: str
    batch: int


class StreamEnumerator:
    def __init__(self, source: SparkStreamSource, context: SourceContext) -> None:
        self._source = source
        self._context = context
        self._running: RunningQuery | None = None
        self._names: list[str] = ["0"]
        self._committed: int | None = None
        """The newest batch that is committed: what was only read is wanted again from a query that is started again."""

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        at = None if position is None else msgspec.convert(position, StreamPosition)
        last = -1 if at is None else at.batch
        if self._committed is None:
            self._committed = last  # a job begins with what is committed
        running = self._running or self._start(at, self._committed)
        try:
            offer = running.offered()
            if offer is None or offer.number <= last:
                return Planned(position=position, partitions=self._names)
            running.ledger.check_follows(last, offer.number)
        except PenstockError:
            self.close()
            raise
        splits = self._splits(offer, max(1, limits.readers))
        self._names = [split.partition for split in splits]
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(StreamPosition(running.id, offer.number)),
            partitions=self._names,
        )

    def idle(self) -> bool:
        """Spark has looked, and found no data: a batch on its way would say otherwise."""
        return self._running is not None and self._running.waiting()

    def reached(self, position: Position, goal: Position) -> bool | None:
        if position is None or goal is None:
            return goal is None
        here, there = msgspec.convert(position, StreamPosition), msgspec.convert(goal, StreamPosition)
        return here.batch >= there.batch if here.query == there.query else None

    def committed(self, position: Position, epoch: Epoch) -> None:
        if position is None:
            return
        at, running = msgspec.convert(position, StreamPosition), self._running  # another thread may close it
        self._committed = at.batch
        if running is not None and at.query == running.id:
            running.committed(at.batch)

    def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _start(self, at: StreamPosition | None, last: int) -> RunningQuery:
        context = self._context
        checkpoint = self._checkpoint()
        frame = self._frame(self._session(), checkpoint)
        check_folder(context.step, frame, checkpoint)
        running = RunningQuery(frame, context, checkpoint, last)
        if at is not None and at.query != running.id:
            running.close()
            detail = f"the job has read batches of the query {at.query}, and the checkpoint is of the query {running.id}"
            raise strangers(detail, checkpoint, context.storage)
        running.begin()
        self._running = running
        return running

    def _session(self) -> SparkSession:
        if self._context.spark is None:
            raise ConfigError("a Spark feed needs a job that runs on Spark", hint="run the job with the spark executor")
        session: SparkSession = self._context.spark()
        return session

    def _frame(self, session: SparkSession, checkpoint: str) -> DataFrame:
        source = self._source
        if source.frame is not None:
            return frames.recall(source.frame)
        assert source.format is not None
        try:
            reader = session.readStream.format(source.format).options(**dict(source.options))
            if source.schema is not None:
                reader = reader.schema(source.schema)
            return reader.load()
        except Exception as error:
            if "PATH_NOT_FOUND" in str(error) and "path" in source.options:
                raise folder_missing(self._context.step, str(source.options["path"]), checkpoint) from error
            raise SourceError(f"Spark cannot read the format {source.format!r}", detail=first_lines(error)) from error

    def _checkpoint(self) -> str:
        """Where Spark keeps the query's progress: beside what the job keeps, so that the two live and die together."""
        if self._source.checkpoint is not None:
            return self._source.checkpoint
        context = self._context
        if isinstance(context.storage, LocalStorage):
            return os.path.join(context.storage.root, context.folder, "checkpoint")
        if context.local_dir is None:
            raise ConfigError(
                "there is no folder for the checkpoint of the streaming query",
                hint="give the source a checkpoint= that Spark can write to, such as s3a://bucket/folder",
            )
        return os.path.join(context.local_dir, context.job, context.folder, "checkpoint")

    def _splits(self, offer: Offer, readers: int) -> list[Split]:
        lanes = [offer.pieces[k::readers] for k in range(min(readers, len(offer.pieces)))]
        storage = self._context.storage
        return [feed_split(str(k), storage, [(p, 0, p.rows) for p in lane]) for k, lane in enumerate(lanes)]
