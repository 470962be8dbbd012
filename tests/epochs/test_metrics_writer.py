"""What a job does, counted and kept: bounded, across restarts, and off the way of the epochs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec

from penstock import GeneratorSource, StreamEnvironment
from penstock.epochs.clock import Clock
from penstock.epochs.history import EpochRecord
from penstock.epochs.metrics_writer import MetricsWriter
from penstock.errors import FencedError
from penstock.ids import Epoch
from penstock.jobs.metrics.job_metrics import PERIOD_MS, PERIODS, PHASES, read_history, read_metrics
from penstock.jobs.paths import is_ours
from penstock.storage import LocalStorage


class SetClock(Clock):
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


def record(epoch: int, **more: Any) -> EpochRecord:
    given: dict[str, Any] = {
        "epoch": Epoch(epoch),
        "started_ms": 0,
        "committed_ms": 500,
        "seconds": 0.5,
        "run_seconds": 0.25,
        "records_in": 100,
        "records_out": 90,
        "skipped": 0,
        "watermark_ms": None,
        "state_entries": 7,
        "local_hits": 0,
        "rebuilt": 0,
        "shed": 0,
        "steps": {"in": (100, 100), "out": (90, 0)},
        "busy": {"in": 0.5},
    }
    return EpochRecord(**(given | more))


class ByHand(MetricsWriter):
    """Writes when it is told to, and not by itself."""

    def _serve(self) -> None:
        return


def test_counts_are_of_the_run(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    clock = SetClock()
    writer = ByHand(storage, "shop", clock)
    writer.entered("running")
    assert read_metrics(storage) is None
    writer(record(1, left_out_by_step={"in": (1, 2, 3)}, backlog={"in": 40}, phases={"run": 0.25, "wait": 0.25}))
    writer(record(2, watermark_lag={"in": 30}, step_watermarks={"in": 99}, state_bytes=1000, phases={"run": 0.25}))
    writer.entered("recovering")
    writer.write()
    found = read_metrics(storage)
    assert found is not None
    assert (found.name, found.epoch, found.epochs, found.records_in, found.restarts, found.state) == (
        "shop",
        2,
        2,
        200,
        1,
        "recovering",
    )
    assert (found.state_entries, found.state_bytes, found.phase_seconds) == (7, 1000, {"run": 0.5, "wait": 0.25})
    step = found.steps["in"]
    assert (step.records_in, step.late, step.skipped, step.dead_letters, step.busy) == (200, 1, 2, 3, 0.5)
    assert (step.backlog, step.watermark_lag_ms, step.watermark_ms) == (40, 30, 99)


def test_the_last_hours_are_shown_after_a_restart(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    clock = SetClock()
    began = clock.now
    for run in range(3):
        writer = ByHand(storage, "shop", clock)
        for epoch in range(3):
            clock.now += 10_000
            writer(record(run * 10 + epoch))
            writer.write()
        writer.ended(None, None)
    points = read_history(storage, clock.now, began)
    assert sum(point.records_in for point in points) == 900
    assert sum(point.epochs for point in points) == 9
    assert [point.at_ms for point in points] == sorted(point.at_ms for point in points)
    assert points[0].steps["in"][:2] == (100, 100)


def test_it_is_bounded(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    clock = SetClock()
    writer = ByHand(storage, "shop", clock)
    for epoch in range(PERIODS * 3):
        clock.now += PERIOD_MS // 2
        writer(record(epoch))
        writer.write()
    kept = [listed.path for listed in storage.list("metrics")]
    assert len(kept) == PERIODS + 1
    assert all(is_ours(path) for path in kept)
    points = read_history(storage, clock.now, 0)
    assert points[0].at_ms > clock.now - PERIODS * PERIOD_MS
    assert len(points) in (2 * PERIODS, 2 * PERIODS - 1)


def test_what_cannot_be_read_is_not_there(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.replace("metrics/latest.json", b"{")
    assert read_metrics(storage) is None
    storage.replace("metrics/latest.json", b'{"name":"x","started_ms":1,"version":99}')
    assert read_metrics(storage) is None


def test_a_driver_that_lost_writes_nothing_at_its_end(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    writer = ByHand(storage, "shop", SetClock())
    writer(record(1))
    writer.ended(None, FencedError("another driver"))
    assert not list(storage.list())


def test_a_job_is_counted(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    env = StreamEnvironment("numbers", executor="inline", parallelism=2, storage=str(tmp_path), max_records_per_epoch=10)
    numbers = env.from_source(GeneratorSource(lambda n: n, count=40, partitions=2), name="numbers")
    numbers.key_by(lambda n: n % 3).reduce(lambda a, b: a + b, name="sums").print(name="out")
    env.execute()
    storage = LocalStorage(str(tmp_path))
    found = read_metrics(storage)
    assert found is not None
    assert (found.records_in, found.steps["numbers"].records_in, found.steps["sums"].records_in) == (40, 40, 40)
    assert found.steps["numbers"].backlog == 0
    assert set(found.phase_seconds) == set(PHASES)
    assert found.phase_seconds["run"] <= found.epoch_seconds
    assert found.state_bytes
    (point,) = read_history(storage, found.at_ms, 0)
    assert point.records_in == 40
    assert msgspec.json.encode(found)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "penstock-metrics"]
