"""Laws: time does not depend on the cut, and never goes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import GeneratorSource, KeyedProcessFunction, ListState, StreamEnvironment, Watermarks
from penstock.api import environment
from penstock.epochs import loop
from penstock.epochs.clock import Clock
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.runtime import ordering
from penstock.timing.valve import Valve
from tests.laws.trying import Interrupted, breaks, manifests, run


def event(n: int) -> tuple[str, int]:
    return f"k{n % 3}", n * 100


class Overtaken(KeyedProcessFunction[str, tuple[str, int], tuple[str, int, int]]):
    """Tells, for each timer, how many records of its key came before it: a record too early or too late shows."""

    seen: ListState[int] = ListState(int)

    def process(self, value: tuple[str, int], ctx: Any) -> None:
        self.seen.add(value[1])
        ctx.timers.register_event_time(value[1] + 450)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int, int]]:
        yield ctx.key, timestamp, len(self.seen)


def timeline(records_per_epoch: int, parallelism: int = 2, count: int = 120) -> list[tuple[str, int, int]]:
    env = StreamEnvironment("time", executor="inline", parallelism=parallelism, max_records_per_epoch=records_per_epoch)
    source = GeneratorSource(event, count=count, partitions=2, batch_size=1)
    stream = env.from_source(source, watermarks=Watermarks.monotonous(timestamp=lambda e: e[1]), name="events")
    return sorted(stream.key_by(0).process(Overtaken(), name="overtaken").execute_and_collect())


def check_cuts() -> None:
    whole = timeline(10_000)
    assert whole
    for records in (1, 2, 7, 50):
        assert timeline(records) == whole, f"epochs of {records} records"


def test_time_does_not_depend_on_the_cut() -> None:
    check_cuts()


def test_it_fails_when_frames_are_taken_upstream_by_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "in_order", lambda batch: None)
    breaks(check_cuts)


def check_valve() -> None:
    """The least of the active inputs; it never goes back, and an input that wakes up behind it does not hold it back."""
    valve = Valve(3)
    moves: list[tuple[int, Milliseconds | None]] = [(0, 10), (1, 5), (2, 7), (1, 20), (0, 8), (2, None), (0, 30), (2, 3), (1, 40)]
    shown = []
    for which, watermark in moves:
        valve.take(which, watermark)
        shown.append(valve.watermark)
    assert shown == sorted(shown)
    assert shown[2:] == [5, 7, 7, 10, 20, 20, 30]


def test_watermarks_are_the_least_and_never_go_back() -> None:
    check_valve()


def test_it_fails_when_the_greatest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def greatest(self: Valve, which: int, watermark: Milliseconds | None) -> bool:
        before = self.watermark
        self.watermark = max(before, watermark if watermark is not None else before)
        return self.watermark > before

    monkeypatch.setattr(Valve, "take", greatest)
    breaks(check_valve)


def test_it_fails_when_watermarks_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def latest(self: Valve, which: int, watermark: Milliseconds | None) -> bool:
        self._marks[which] = MAX_WATERMARK if watermark is None else watermark
        self.watermark = min(self._marks)
        return True

    monkeypatch.setattr(Valve, "take", latest)
    breaks(check_valve)


class Backwards(Clock):
    """A clock that is set back again and again."""

    def __init__(self) -> None:
        self._readings = 0

    def now_ms(self) -> Milliseconds:
        self._readings += 1
        return 1_000_000 - self._readings * 100

    def sleep(self, seconds: float) -> None:
        pass


def check_processing_time(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(environment, "Clock", Backwards)
    run(folder, Interrupted(10_000, lambda: None), keep=100)
    times = [manifest.processing_time for manifest in manifests(folder)]
    assert len(times) > 5
    assert times == sorted(times)


def test_processing_time_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_processing_time(tmp_path, monkeypatch)


def test_it_fails_when_processing_time_is_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "processing_time", lambda now, head: now)
    breaks(lambda: check_processing_time(tmp_path, monkeypatch))
