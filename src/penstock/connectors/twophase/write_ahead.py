"""Once, in effect, into a target that has no transactions.

The staged rows are a write-ahead log: `publish` is called after the epoch is durable, and called again with the same id and the
same rows if it is not known to have ended well. A marker in the job's storage tells that it has, so that a driver that wakes up
late does not put old values over new ones.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from penstock.connectors.protocol import Committable, CommitterContext, Published, WriterContext
from penstock.connectors.twophase.identity import PublishId
from penstock.connectors.twophase.staging import (
    StagingWriter,
    decode_rows,
    discard,
    encode_rows,
    sink_folder,
    staged_paths,
    staged_rows,
    sweep_staged,
)
from penstock.errors import AlreadyExistsError, PenstockError, SinkError
from penstock.ids import Epoch

_MARKER = re.compile(r"[0-9]{20}")


class WriteAheadSink(ABC):
    """Implement `publish` and `describe`; make the subclass a frozen dataclass."""

    row: Any = Any
    """The class of the rows that `publish` is given; without one, objects arrive as dicts and sequences as tuples."""

    @property
    def volatile(self) -> bool:
        return False

    @abstractmethod
    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        """On the driver: make the rows visible.

        May be called again with the same id and rows, and must then leave the same result: upsert by key, or name what is written
        after the id.
        """

    @abstractmethod
    def describe(self) -> str: ...

    def encode(self, rows: list[Any]) -> bytes:
        """How rows are staged; never pickle, since staged rows outlive the program."""
        return encode_rows(rows)

    def decode(self, data: bytes) -> list[Any]:
        return decode_rows(data, self.row)

    def writer(self, context: WriterContext) -> StagingWriter:
        return StagingWriter(context, self.encode)

    def committer(self, context: CommitterContext) -> WriteAheadCommitter:
        return WriteAheadCommitter(self, context)


class WriteAheadCommitter:
    def __init__(self, sink: WriteAheadSink, context: CommitterContext) -> None:
        self._sink = sink
        self._context = context
        self._storage = context.storage
        self._folder = f"{sink_folder(context.step)}/published"

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        paths = staged_paths(committables)
        if not paths:
            return
        published = self._published()
        if epoch > max(published, default=0):
            self._publish(epoch, committables)
            try:
                self._storage.create(self._marker(epoch), b"")
            except AlreadyExistsError:  # another driver finished the same commit
                pass
            discard(self._storage, [self._marker(old) for old in published if old < epoch])
        discard(self._storage, paths)

    def published_after(self, epoch: Epoch) -> Published:
        newest = max(self._published(), default=0)
        return Published(newest=Epoch(newest) if newest else None, epochs=0 if newest <= epoch else None)

    def fence(self, at: Epoch) -> None:
        try:
            self._storage.create(self._marker(at), b"")
        except AlreadyExistsError:
            pass

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        self._storage.delete(staged_paths(committables))

    def sweep(self) -> int:
        """Remove staged rows of old attempts; only after recovery has committed what the last manifest holds."""
        return sweep_staged(self._storage, self._context.step, self._context.sweepable)

    def close(self) -> None:
        pass

    def _marker(self, epoch: int) -> str:
        return f"{self._folder}/{epoch:020d}"

    def _published(self) -> list[int]:
        """The epochs that have a marker."""
        names = (listed.path.rpartition("/")[2] for listed in self._storage.list(self._folder))
        return sorted(int(name) for name in names if _MARKER.fullmatch(name))

    def _publish(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        rows = chain.from_iterable(staged_rows(self._storage, committables, self._sink.decode))
        try:
            self._sink.publish(PublishId(self._context.job, self._context.step, epoch), rows)
        except PenstockError:
            raise
        except Exception as error:
            raise SinkError(
                f"The sink {self._context.step} could not publish epoch {epoch}",
                detail=f"{self._sink.describe()}\n{error!r}",
                hint="it is called again with the same rows when the job goes on",
            ) from error
