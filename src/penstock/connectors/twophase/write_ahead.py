"""Effectively once into a target that has no transactions.

The staged rows are a write-ahead log: `publish` is called after the epoch is durable, and called again with the same id and the
same rows unless it is known to have succeeded. A marker in the job's storage says that it has, so that a driver that wakes up
late does not overwrite new values with old ones.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from penstock.connectors.protocol import Committable, CommitterContext, OutputSince
from penstock.connectors.staging import StagedCommitter, StagedSink
from penstock.connectors.twophase.identity import PublishId
from penstock.errors import AlreadyExistsError
from penstock.ids import Epoch

_MARKER = re.compile(r"[0-9]{20}")


class WriteAheadSink(StagedSink):
    """Implement `publish` and `describe`; make the subclass a frozen dataclass."""

    @abstractmethod
    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        """On the driver: make the rows visible.

        May be called again with the same id and rows, and must then leave the same result: upsert by key, or name what is written
        after the id.
        """

    def committer(self, context: CommitterContext) -> WriteAheadCommitter:
        return WriteAheadCommitter(self, context)


class WriteAheadCommitter(StagedCommitter[WriteAheadSink]):
    def __init__(self, sink: WriteAheadSink, context: CommitterContext) -> None:
        super().__init__(sink, context)
        self._folder = f"{context.folder}/published"

    def deliver(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        published = self._published()
        if epoch > max(published, default=0):
            self._publish(epoch, committables)
            self.fence(epoch)
            self._discard([self._marker(old) for old in published if old < epoch])

    def published_after(self, epoch: Epoch) -> OutputSince:
        newest = max(self._published(), default=0)
        return OutputSince(newest=Epoch(newest) if newest else None, epochs=0 if newest <= epoch else None)

    def fence(self, at: Epoch) -> None:
        with suppress(AlreadyExistsError):  # another driver finished the same commit
            self._storage.create(self._marker(at), b"")

    def _marker(self, epoch: int) -> str:
        return f"{self._folder}/{epoch:020d}"

    def _published(self) -> list[int]:
        """The epochs that have a marker."""
        names = (listed.path.rpartition("/")[2] for listed in self._storage.list(self._folder))
        return sorted(int(name) for name in names if _MARKER.fullmatch(name))

    def _publish(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        rows = chain.from_iterable(self._rows(committables))
        with self._naming(f"could not publish epoch {epoch}", "it is called again with the same rows when the job resumes"):
            self._sink.publish(PublishId(self._context.job, self._context.step, epoch), rows)
