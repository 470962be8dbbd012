"""A sink whose records are found on the driver, in a list.

The definition is sent to the workers, so it holds only an id; the list is kept in this process, under that id.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.protocol import CommitterContext, OutputSince
from penstock.connectors.staging import CommittedOnce, VolatileCommitter, VolatileSink
from penstock.errors import ConfigError
from penstock.ids import Epoch


class Collected:
    """Records of committed epochs, growing while the job runs. Safe to read from other threads."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._closed = False
        self._changed = threading.Condition()
        self.once = CommittedOnce()

    def add(self, values: list[Any]) -> None:
        with self._changed:
            self._values += values
            self._changed.notify_all()

    def reopen(self) -> None:
        with self._changed:
            self._closed = False

    def close(self) -> None:
        """No more will come: iterators end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def values(self) -> list[Any]:
        with self._changed:
            return list(self._values)

    def wait(self, count: int, timeout: float | None = None) -> bool:
        """Wait until there are `count` records, or no more will come; says whether there are."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._values) >= count, timeout)
            return len(self._values) >= count

    def __iter__(self) -> Iterator[Any]:
        """The records as they are committed, until the job ends."""
        seen = 0
        while self.wait(seen + 1):
            with self._changed:
                new = self._values[seen:]
            seen += len(new)
            yield from new


_COLLECTED: dict[str, Collected] = {}
_LOCK = threading.Lock()


def collected(id: str) -> Collected:
    """What the sink with this id has collected in this process."""
    with _LOCK:
        return _COLLECTED.setdefault(id, Collected())


@dataclass(frozen=True)
class CollectSink(VolatileSink):
    """Collects all records in memory on the driver: for tests, notebooks and bounded jobs. Of a stream that updates it collects
    each `RowChange`: the kind and the record.

    >>> CollectSink().results()
    []
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if not self.id:
            raise ConfigError("a CollectSink needs an id", hint="leave id= out to get a fresh one")

    @property
    def collected(self) -> Collected:
        """For waiting and iterating while the job runs."""
        return collected(self.id)

    def results(self) -> list[Any]:
        """The records of all epochs committed so far."""
        return collected(self.id).values()

    def discard(self) -> None:
        """Forget the records."""
        with _LOCK:
            _COLLECTED.pop(self.id, None)

    def committer(self, context: CommitterContext) -> CollectCommitter:
        return CollectCommitter(self, context)

    def describe(self) -> str:
        return "collect"


class CollectCommitter(VolatileCommitter):
    def __init__(self, sink: CollectSink, context: CommitterContext) -> None:
        self._collected = collected(sink.id)
        self._collected.reopen()
        super().__init__(context, self._collected.once)

    def show(self, values: list[Any], count: int) -> None:
        self._collected.add(values)

    def published_after(self, epoch: Epoch) -> OutputSince:
        last = self._once.last(self._context)
        return OutputSince(newest=last, epochs=0 if last is None or last <= epoch else None)

    def close(self) -> None:
        self._collected.close()
