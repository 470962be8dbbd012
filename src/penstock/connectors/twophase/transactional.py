"""Exactly once into a target that has transactions.

The law: the rows of an epoch and the record (job, sink) → epoch are written in one transaction, and only when the record is still
below the epoch. So a repeated commit, by this driver or by one that took over or woke up late, changes nothing.

What is committed cannot be taken back. When a job goes back to an earlier epoch, its next epochs have higher numbers than any
before, so that what is computed again is written again. The number from which it resumes is recorded at once, so that a driver of
the line that was given up changes nothing either.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

from penstock.changes import KINDS, RowChange
from penstock.connectors.protocol import Committable, CommitterContext, OutputSince
from penstock.connectors.staging import StagedCommitter, StagedSink
from penstock.connectors.staging.rows import staged_blocks
from penstock.connectors.twophase.identity import SinkKey
from penstock.ids import Epoch


class Transaction(Protocol):
    """What `connect` returns: a DB-API connection will do."""

    def commit(self) -> object: ...

    def rollback(self) -> object: ...

    def close(self) -> object: ...


T = TypeVar("T", bound=Transaction)


class TransactionalSink(StagedSink, Generic[T]):
    """Implement `connect`, `write`, `committed_epoch`, `record_epoch` and `describe`; make the subclass a frozen dataclass.

    `committed_epoch` must see what other drivers have committed and keep them from committing until this transaction ends: read
    the record under a lock (`SELECT … FOR UPDATE`, `BEGIN IMMEDIATE`) or in a serializable transaction.
    """

    @abstractmethod
    def connect(self) -> T:
        """On the driver: a connection with a transaction begun, or that begins one at the first statement."""

    @abstractmethod
    def write(self, transaction: T, rows: list[Any]) -> None:
        """Write some rows of the epoch; called once for each block of them."""

    def write_changes(self, transaction: T, changes: list[RowChange]) -> None:
        """As `write`, of a stream that updates: for sinks that have a `changelog` of `"upsert"` (then there is no `-U`) or
        `"retract"`. Changes of one key come in order if they were made in one task."""
        raise NotImplementedError(f"{type(self).__name__} has a changelog, and no write_changes")

    @abstractmethod
    def committed_epoch(self, transaction: T, key: SinkKey) -> int | None:
        """The last epoch recorded for this key; None if there is none."""

    @abstractmethod
    def record_epoch(self, transaction: T, key: SinkKey, epoch: Epoch) -> None:
        """Record the epoch for this key, in the same transaction."""

    def committer(self, context: CommitterContext) -> TransactionalCommitter:
        return TransactionalCommitter(self, context)


class TransactionalCommitter(StagedCommitter[TransactionalSink[Any]]):
    def __init__(self, sink: TransactionalSink[Any], context: CommitterContext) -> None:
        super().__init__(sink, context)
        self._key = SinkKey(context.job, context.step)

    def deliver(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        with self._transaction(f"could not commit epoch {epoch}") as transaction:
            self._write_once(transaction, epoch, committables)

    def published_after(self, epoch: Epoch) -> OutputSince:
        with self._transaction("could not say what it has committed") as transaction:
            committed = self._sink.committed_epoch(transaction, self._key)
            transaction.rollback()
        if committed is None:
            return OutputSince(epochs=0, records=0)
        return OutputSince(newest=Epoch(committed), epochs=0 if committed <= epoch else None)

    def fence(self, at: Epoch) -> None:
        """Record an epoch without rows: a driver that is late finds it, and writes nothing."""
        with self._transaction(f"could not record epoch {at}") as transaction:
            self._write_once(transaction, at, ())

    @contextmanager
    def _transaction(self, problem: str) -> Iterator[Transaction]:
        with self._naming(problem, "the staged rows are kept, and the commit is tried again when the job resumes"):
            transaction = self._sink.connect()
            try:
                yield transaction
            except BaseException:
                with suppress(Exception):
                    transaction.rollback()
                raise
            finally:
                with suppress(Exception):
                    transaction.close()

    def _write_once(self, transaction: Transaction, epoch: Epoch, committables: Sequence[Committable]) -> None:
        committed = self._sink.committed_epoch(transaction, self._key)
        if committed is not None and committed >= epoch:
            transaction.rollback()
            return
        for rows, kinds in staged_blocks(self._storage, committables, self._sink.decode):
            if kinds is None:
                self._sink.write(transaction, rows)
            else:
                self._sink.write_changes(transaction, list(map(RowChange, map(KINDS.__getitem__, kinds), rows)))
        self._sink.record_epoch(transaction, self._key, epoch)
        transaction.commit()
