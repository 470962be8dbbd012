"""Every kind of store on real Spark: partitions wander between workers, and one of those is killed in the middle of a task."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.epochs.history import EpochRecord
from penstock.jobs.requests import ask
from penstock.state.stores.holding import has_ended
from penstock.storage import open_storage
from penstock.testing import CollectSink
from tests.state.kinds import KINDS

pytestmark = pytest.mark.spark

COUNT = 240
KEYS = 17


class Total(KeyedProcessFunction[int, int, tuple[int, int]]):
    """Counts, and kills its process once, when it has read and changed state."""

    seen = ValueState(int, default=0)

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[tuple[int, int]]:
        self.seen.update(self.seen.value + 1)
        if value == 157 and not os.path.exists(self.marker):
            with open(self.marker, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        yield ctx.key, self.seen.value


@pytest.mark.parametrize("store", KINDS)
def test_a_worker_is_killed(spark: SparkSession, tmp_path: Path, store: str) -> None:
    marker = str(tmp_path / "killed")
    sink = CollectSink()
    for part, parallelism in ((1, 3), (2, 2)):  # stopped in the middle, and gone on with at another parallelism
        env = StreamEnvironment(
            "totals",
            spark=spark,
            storage=str(tmp_path / "storage"),
            local_dir=str(tmp_path / "local"),
            state_store=store,
            parallelism=parallelism,
            max_records_per_epoch=60,
            compact_after=3,
            pipeline=0 if part == 1 else None,  # so that it is not at its end before it is stopped
        )
        numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=2), name="numbers")
        numbers.key_by(_key).process(Total(marker), name="total").sink_to(sink, name="out")
        result = env.execute(listener=_stop_in_the_middle(tmp_path / "storage") if part == 1 else None)
        assert result.finished == (part == 2)
        kept = [job for boot in (tmp_path / "local").iterdir() if boot.is_dir() for job in boot.iterdir()]
        if part == 1:
            assert len(kept) == 1
        else:  # gone; or, if a worker of the session has a store open that the last task did not reach, marked to go
            assert all(has_ended(str(job)) for job in kept)
    assert os.path.exists(marker)
    expected = [(key, n) for key in range(KEYS) for n in range(1, len(range(key, COUNT, KEYS)) + 1)]
    assert sorted(sink.results()) == sorted(expected)
    sink.discard()


def _key(n: int) -> int:
    return n % KEYS


def _stop_in_the_middle(storage: Path) -> Callable[[EpochRecord], None]:
    def stop(record: EpochRecord) -> None:
        if not asked:
            asked.append(ask(open_storage(storage), "stop"))
            time.sleep(0.3)  # longer than the driver waits between two looks at its requests

    asked: list[str] = []
    return stop
