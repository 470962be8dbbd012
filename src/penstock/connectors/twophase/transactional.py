"""Exactly once into a target that has transactions.

The law: the rows of an epoch and the record (job, sink) → epoch are written in one transaction, and only when the record is still
below the epoch. So a commit that is repeated, by this driver or by one that took over or woke up late, changes nothing.

What is committed cannot be taken back. When a job goes back to an earlier epoch, its next epochs have higher numbers than any
before, so that what is computed again is written again; and the number from which it goes on is recorded at once, so that a
driver of the line that was given up changes nothing either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar

from penstock.changes import KINDS, RowChange
from penstock.connectors.protocol import Committable, CommitterContext, Published, WriterContext
from penstock.connectors.twophase.identity import SinkKey
from penstock.connectors.twophase.staging import (
    StagingWriter,
    decode_rows,
    discard,
    encode_rows,
    staged_blocks,
    staged_paths,
    sweep_staged,
)
from penstock.errors import PenstockError, SinkError
from penstock.ids import Epoch


class Transaction(Protocol):
    """What `connect` returns: a DB-API connection will do."""

    def commit(self) -> object: ...

    def rollback(self) -> object: ...

    def close(self) -> object: ...


T = TypeVar("T", bound=Transaction)


class TransactionalSink(ABC, Generic[T]):
    """Implement the five methods below `volatile`; make the subclass a frozen dataclass.

    `committed_epoch` must see what other drivers have committed and keep them from committing until this transaction ends: read
    the record under a lock (`SELECT … FOR UPDATE`, `BEGIN IMMEDIATE`) or in a serializable transaction.
    """

    row: Any = Any
    """The class of the rows that `write` is given; without one, objects arrive as dicts and sequences as tuples."""

    @property
    def volatile(self) -> bool:
        return False

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

    @abstractmethod
    def describe(self) -> str: ...

    def encode(self, rows: list[Any]) -> bytes:
        """How rows are staged; never pickle, since staged rows outlive the program."""
        return encode_rows(rows)

    def decode(self, data: bytes) -> list[Any]:
        return decode_rows(data, self.row)

    def writer(self, context: WriterContext) -> StagingWriter:
        return StagingWriter(context, self.encode)

    def committer(self, context: CommitterContext) -> TransactionalCommitter:
        return TransactionalCommitter(self, context)


class TransactionalCommitter:
    def __init__(self, sink: TransactionalSink[Any], context: CommitterContext) -> None:
        self._sink = sink
        self._context = context
        self._key = SinkKey(context.job, context.step)

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        paths = staged_paths(committables)
        if not paths:
            return
        with self._transaction(f"could not commit epoch {epoch}") as transaction:
            self._write_once(transaction, epoch, committables)
        discard(self._context.storage, paths)

    def published_after(self, epoch: Epoch) -> Published:
        with self._transaction("could not say what it has committed") as transaction:
            committed = self._sink.committed_epoch(transaction, self._key)
            transaction.rollback()
        if committed is None:
            return Published(epochs=0, records=0)
        return Published(newest=Epoch(committed), epochs=0 if committed <= epoch else None)

    def fence(self, at: Epoch) -> None:
        """Record an epoch without rows: whoever is late finds that it is."""
        with self._transaction(f"could not record epoch {at}") as transaction:
            self._write_once(transaction, at, ())

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        self._context.storage.delete(staged_paths(committables))

    def sweep(self) -> int:
        """Remove staged rows of old attempts; only after recovery has committed what the last manifest holds."""
        return sweep_staged(self._context.storage, self._context.step, self._context.sweepable)

    def close(self) -> None:
        pass

    @contextmanager
    def _transaction(self, problem: str) -> Iterator[Transaction]:
        try:
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
        except PenstockError:
            raise
        except Exception as error:
            raise SinkError(
                f"The sink {self._key.sink} {problem}",
                detail=f"{self._sink.describe()}\n{error!r}",
                hint="the staged rows are kept, and the commit is tried again when the job goes on",
            ) from error

    def _write_once(self, transaction: Transaction, epoch: Epoch, committables: Sequence[Committable]) -> None:
        committed = self._sink.committed_epoch(transaction, self._key)
        if committed is not None and committed >= epoch:
            transaction.rollback()
            return
        for rows, kinds in staged_blocks(self._context.storage, committables, self._sink.decode):
            if kinds is None:
                self._sink.write(transaction, rows)
            else:
                self._sink.write_changes(transaction, list(map(RowChange, map(KINDS.__getitem__, kinds), rows)))
        self._sink.record_epoch(transaction, self._key, epoch)
        transaction.commit()
