"""The base of sinks whose workers stage rows in the job's storage, from where the driver delivers them.

Law: rows are delivered once the epoch is durable, and their files are removed only after that. So a commit that is repeated finds
the same rows, or the record that it has been made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from penstock.connectors.protocol import Committable, Committer, CommitterContext, WriterContext
from penstock.connectors.staging.leftovers import leftovers
from penstock.connectors.staging.rows import (
    StagedWriter,
    decode_rows,
    encode_rows,
    staged_attempt,
    staged_paths,
    staged_rows,
)
from penstock.errors import PenstockError, SinkError, StorageError
from penstock.ids import Epoch


class StagedSink(ABC):
    """The definition: how rows are staged. `row`: the class of the rows that are delivered; without one, objects arrive as dicts
    and sequences as tuples."""

    row: Any = Any

    @property
    def volatile(self) -> bool:
        return False

    @abstractmethod
    def committer(self, context: CommitterContext) -> Committer: ...

    @abstractmethod
    def describe(self) -> str: ...

    def encode(self, rows: list[Any]) -> bytes:
        """How rows are staged; never pickle, since staged rows outlive the program."""
        return encode_rows(rows)

    def decode(self, data: bytes) -> list[Any]:
        return decode_rows(data, self.row)

    def writer(self, context: WriterContext) -> StagedWriter:
        return StagedWriter(context, self.encode)


S = TypeVar("S", bound=StagedSink)


class StagedCommitter(Committer, Generic[S]):
    """Implement `deliver`, so that it may be repeated."""

    def __init__(self, sink: S, context: CommitterContext) -> None:
        self._sink = sink
        self._context = context
        self._storage = context.storage

    @abstractmethod
    def deliver(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        """Bring the rows of an epoch to the target, unless they are there."""

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        if paths := staged_paths(committables):
            self.deliver(epoch, committables)
            self._discard(paths)

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        self._storage.delete(staged_paths(committables))

    def sweep(self) -> int:
        left = leftovers(self._storage, f"{self._context.folder}/staged", staged_attempt, self._context)
        self._storage.delete(left)
        return len(left)

    def _rows(self, committables: Sequence[Committable]) -> Iterator[list[Any]]:
        """The rows, block by block."""
        return staged_rows(self._storage, committables, self._sink.decode)

    def _discard(self, paths: list[str]) -> None:
        """Remove files that have served. What cannot be removed now is swept later, and is no reason to fail a commit."""
        with suppress(StorageError):
            self._storage.delete(paths)

    @contextmanager
    def _naming(self, problem: str, hint: str) -> Iterator[None]:
        """What the target raises, as an error that names the sink."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:
            raise SinkError(
                f"the sink {self._context.step} {problem}", detail=f"{self._sink.describe()}\n{error!r}", hint=hint
            ) from error
