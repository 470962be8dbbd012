"""A sink that refuses to commit: the epoch is committed, so everything else about it goes on as if it had not refused."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectSink, EpochRecord, RestartPolicy, StreamEnvironment
from penstock.connectors.collection.source import CollectionSource
from penstock.connectors.protocol import CommitterContext, Planned, SourceContext, WriterContext
from penstock.connectors.twophase import PublishId, WriteAheadSink
from penstock.errors import SinkError, SinkRefusedError
from penstock.records import Batch
from penstock.storage import LocalStorage

COMMITTED: list[Any] = []
ACKNOWLEDGED: list[int] = []


class Writer:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        self.rows += batch.values()

    def prepare(self) -> list[Any]:
        return self.rows

    def abort(self) -> None:
        pass


class Committer:
    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("closed")
        COMMITTED.extend(row for rows in committables for row in rows)

    def abort(self, epoch: int, committables: Sequence[Any]) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class RefusingSink:
    refusals: int
    volatile: bool = False

    def writer(self, context: WriterContext) -> Writer:
        return Writer()

    def committer(self, context: CommitterContext) -> Committer:
        return Committer(self.refusals)

    def describe(self) -> str:
        return "refusing"


@dataclass(frozen=True)
class AcknowledgedSource:
    """A collection that notes which epochs it was told are committed, as a queue would."""

    inner: CollectionSource = field(default_factory=lambda: CollectionSource(list(range(6))))
    bounded: bool = True

    @property
    def row(self) -> Any:
        return self.inner.row

    def enumerator(self, context: SourceContext) -> Any:
        return AcknowledgedEnumerator(self.inner.enumerator(context))

    def reader(self) -> Any:
        return self.inner.reader()

    def describe(self) -> str:
        return "acknowledged"


class AcknowledgedEnumerator:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def plan(self, position: Any, limits: Any, now_ms: int) -> Planned:
        planned: Planned = self.inner.plan(position, limits, now_ms)
        return planned

    def committed(self, position: Any, epoch: int) -> None:
        ACKNOWLEDGED.append(epoch)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _forget() -> None:
    COMMITTED.clear()
    ACKNOWLEDGED.clear()


def environment(refusals: int, attempts: int = 5) -> tuple[StreamEnvironment, CollectSink]:
    restart = RestartPolicy(attempts=attempts, first_delay=0.001)
    env = StreamEnvironment("refused", executor="inline", parallelism=1, max_records_per_epoch=2, restart=restart)
    stream = env.from_source(AcknowledgedSource())
    collect = CollectSink()
    stream.sink_to(RefusingSink(refusals), name="out")
    stream.sink_to(collect, name="seen")
    return env, collect


def test_a_refused_epoch_reaches_everybody_in_the_end() -> None:
    env, collect = environment(refusals=3)
    records: list[EpochRecord] = []
    result = env.execute(listener=records.append)
    assert list(range(6)) == COMMITTED
    assert collect.results() == list(range(6))
    assert ACKNOWLEDGED == [record.epoch for record in records] == [2, 3, 4]
    assert (result.records_in, result.restarts, result.finished) == (6, 3, True)


def test_a_sink_that_goes_on_refusing_stops_the_job() -> None:
    env, _ = environment(refusals=100, attempts=2)
    with pytest.raises(SinkError, match="could not commit epoch 2"):
        env.execute()


@dataclass(frozen=True)
class MarkedSink(WriteAheadSink):
    """Notes in the job's storage what it has published."""

    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        COMMITTED.extend(rows)

    def describe(self) -> str:
        return "marked"


def test_a_full_storage_is_not_the_sinks_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = LocalStorage.create

    def create(storage: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        if "/published/" in path:
            raise storage._problem("create", path, OSError(errno.ENOSPC, "No space left on device"))
        whole(storage, path, data, durable=durable)

    monkeypatch.setattr(LocalStorage, "create", create)
    restart = RestartPolicy(attempts=1, first_delay=0.001)
    storage = tmp_path / "a job"
    env = StreamEnvironment("full", executor="inline", parallelism=1, storage=str(storage), restart=restart)
    env.from_source(CollectionSource([1, 2, 3])).sink_to(MarkedSink(), name="out")
    with pytest.raises(SinkRefusedError) as caught:
        env.execute()
    place = f"{storage}/sinks/out/published/{2:020d}"
    assert caught.value.what == f"the job's storage failed while epoch 2 was published: Could not create {place}"
    assert caught.value.hint == "the disk is full: free some space, or use another storage"
    assert "epoch 2 is committed but the job's storage failed; trying again" in caplog.text
    assert "a sink refused" not in caplog.text
