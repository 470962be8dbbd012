"""What print and collect share: output that travels to the driver inside the committable and touches no disk.

Of a stream that updates the values are `RowChange`s.

Such output is seen at most once: a driver that dies between the manifest and the commit takes it along. Within a process a commit
is repeated without effect: epochs of a job only grow, so the last one committed is all there is to remember.
"""

from __future__ import annotations

import pickle
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from penstock.changes import Changelog, changes_in
from penstock.connectors.protocol import Committable, Committer, CommitterContext, WriterContext
from penstock.errors import CorruptFileError
from penstock.ids import Epoch
from penstock.plan import job_pickle
from penstock.records import Batch


class VolatileSink:
    """The definition; it shows all kinds of change. `limit`: how many records of each partition and epoch the driver is sent;
    None: all."""

    limit: int | None = None

    @property
    def volatile(self) -> bool:
        return True

    @property
    def changelog(self) -> Changelog:
        return "retract"

    def writer(self, context: WriterContext) -> VolatileWriter:
        return VolatileWriter(self.limit)


class VolatileWriter:
    """Keeps values, at most `limit` of them, and counts the rest."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._values: list[Any] = []
        self._count = 0

    def write(self, batch: Batch) -> None:
        self._count += len(batch)
        if self._limit is None:
            self._values += changes_in(batch)
        elif len(self._values) < self._limit:
            self._values += changes_in(batch.slice(0, self._limit - len(self._values)))

    def prepare(self) -> bytes:
        try:
            return pickle.dumps((self._values, self._count), pickle.HIGHEST_PROTOCOL)
        except Exception:  # classes and functions of the user's script, which a worker cannot import by name
            return job_pickle.dumps((self._values, self._count))

    def abort(self) -> None:
        self._values = []


class CommittedOnce:
    """Remembers the last epoch of every (job, sink) of this process."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Epoch] = {}
        self._lock = threading.Lock()

    def first(self, context: CommitterContext, epoch: Epoch) -> bool:
        """Whether this epoch is new; from now on it is not."""
        key = (context.job, context.step)
        with self._lock:
            last = self._last.get(key)
            if last is not None and epoch <= last:
                return False
            self._last[key] = epoch
            return True

    def last(self, context: CommitterContext) -> Epoch | None:
        """The newest epoch that was committed in this process."""
        return self._last.get((context.job, context.step))


class VolatileCommitter(Committer):
    """Implement `show`: it is called once for each epoch."""

    def __init__(self, context: CommitterContext, once: CommittedOnce) -> None:
        self._context = context
        self._once = once

    @abstractmethod
    def show(self, values: list[Any], count: int) -> None:
        """An epoch's records, by partition; `count`: how many there were, before the limit."""

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        values: list[Any] = []
        total = 0
        for some, count in map(_unpack, committables):
            values += some
            total += count
        if self._once.first(self._context, epoch):
            self.show(values, total)


def _unpack(committable: Committable) -> tuple[list[Any], int]:
    """Of a report, which a worker of this driver has sent. A manifest holds no bytes: what comes from one is not unpickled."""
    if type(committable) is not bytes:
        raise CorruptFileError(
            "a manifest holds output of a sink that keeps none",
            hint="it was not written by Penstock: find out who can write to the storage",
        )
    values, count = pickle.loads(committable)
    return values, count
