"""Drives a sink's writers and committer as the epoch loop does, and breaks the storage underneath."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from penstock.connectors.protocol import Committable, Committer, CommitterContext, Sink, WriterContext
from penstock.errors import StorageError
from penstock.ids import Epoch, JobId, StepId
from penstock.records import Batch, Records
from penstock.storage import Storage

JOB = JobId("11111111-1111-1111-1111-111111111111")
OTHER_JOB = JobId("22222222-2222-2222-2222-222222222222")
STEP = StepId("out")


def writer_context(storage: Storage, epoch: int, partition: int = 0, attempt: str = "1-0") -> WriterContext:
    return WriterContext(job=JOB, step=STEP, epoch=Epoch(epoch), partition=partition, attempt=attempt, storage=storage)


def committer_context(
    storage: Storage, job: JobId = JOB, step: StepId = STEP, sweepable: Callable[[str], bool] = lambda attempt: False
) -> CommitterContext:
    return CommitterContext(job=job, step=step, storage=storage, job_name="rooms", sweepable=sweepable)


def stage(
    sink: Sink, storage: Storage, epoch: int, rows: Iterable[Any] | Batch, *, partition: int = 0, attempt: str = "1-0"
) -> Committable:
    writer = sink.writer(writer_context(storage, epoch, partition, attempt))
    writer.write(rows if isinstance(rows, Batch) else Records(list(rows)))
    return writer.prepare()


def committer(sink: Sink, storage: Storage, job: JobId = JOB) -> Committer:
    return sink.committer(committer_context(storage, job))


class Faulty:
    """A storage that fails where it is told to: before the write takes effect, or after (an unknown outcome)."""

    def __init__(self, inner: Storage, *, before: str | None = None, after: str | None = None) -> None:
        self._inner = inner
        self._before = before
        self._after = after

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if self._before is not None and self._before in path:
            raise StorageError(f"no answer about {path}")
        self._inner.create(path, data, durable=durable)
        if self._after is not None and self._after in path:
            raise StorageError(f"no answer about {path}")

    @contextmanager
    def writer(self, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        with self._inner.writer(path, durable=durable) as file:
            yield file
            if self._before is not None and self._before in path:
                raise StorageError(f"no answer about {path}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
