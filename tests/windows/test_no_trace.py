"""A window that opens and closes within an epoch leaves nothing: no value, no tombstone, no timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    CountTrigger,
    DataStream,
    EventTimeTrigger,
    KeyedStream,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    ValueState,
    WindowFunction,
    count,
)
from penstock.state.overlay import keyed
from penstock.testing import OperatorHarness, WindowHarness
from penstock.windows import ContinuousEventTimeTrigger, CountEvictor, PurgingTrigger, per_window

Windows = Callable[[KeyedStream[Any, Any]], DataStream[Any]]


class Counting(WindowFunction[str, Any, int]):
    seen = per_window(ValueState[int](int, 0))

    def process(self, values: list[Any], ctx: Any) -> list[int]:
        self.seen.update(self.seen.value + 1)
        return [len(values)]


PROGRAMS: dict[str, Windows] = {
    "tumbling": lambda s: s.window(TumblingWindows(0.01)).reduce(max),
    "sliding": lambda s: s.window(SlidingWindows(0.01, 0.002)).aggregate(count()),
    "lateness": lambda s: s.window(TumblingWindows(0.01), allowed_lateness=0.005).fold([], lambda held, v: [*held, v]),
    "sessions": lambda s: s.window(SessionWindows(0.003)).reduce(max),
    "sessions, records": lambda s: s.window(SessionWindows(0.003), trigger=ContinuousEventTimeTrigger(0.002)).process(Counted()),
    "records": lambda s: s.window(TumblingWindows(0.01), trigger=PurgingTrigger(CountTrigger(2))).process(Counting()),
    "evictor": lambda s: s.window(
        TumblingWindows(0.01), trigger=EventTimeTrigger(early=CountTrigger(2)), evictor=CountEvictor(1)
    ).process(Counting()),
    "state of the window": lambda s: s.window(TumblingWindows(0.01)).reduce(max, process=Counting()),
}


class Counted(WindowFunction[str, Any, int]):
    def process(self, values: list[Any], ctx: Any) -> list[int]:
        return [len(values)]


def written(harness: OperatorHarness) -> int:
    """How many entries all state files have, removals and timers among them."""
    return sum(file.entries for chains in harness.snapshot().layout.chains for chain in chains for file in chain)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_nothing_is_written_for_windows_that_came_and_went(name: str) -> None:
    with WindowHarness(PROGRAMS[name], key=lambda value: value[0]) as harness:
        harness.send_all([((key, n), n) for n in range(0, 30, 2) for key in "abc"])
        harness.send(("a", 100), 15)
        harness.watermark(100)
        assert harness.take()
        assert written(harness) == 0
        harness.send(("a", 1), 101)
        assert written(harness) > 1
        harness.watermark(200)
        assert harness.state_entries() == harness.event_timers() == 0


def test_a_window_that_was_committed_is_removed() -> None:
    with WindowHarness(PROGRAMS["tumbling"], key=lambda value: value[0]) as harness:
        harness.send(("a", 1), 1)
        assert (harness.state_entries(), harness.event_timers()) == (1, 1)
        harness.send(("a", 2), 2)
        harness.send(("b", 2), 2)
        harness.watermark(9)
        assert harness.take() == [(("a", 2), 9), (("b", 2), 9)]
        assert (harness.state_entries(), harness.event_timers()) == (0, 0)


def test_fresh_windows_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other windows committed, a window that comes and goes asks the store for nothing of its own."""
    with WindowHarness(PROGRAMS["tumbling"], key=lambda value: value[0]) as harness:
        harness.send_all([((key, 1), 1000) for key in "abc"])
        harness.snapshot()
        asked: list[bytes] = []
        committed = harness._services[0].committed
        get, get_many = committed.get, committed.get_many

        def noted(keys: list[bytes]) -> dict[bytes, bytes]:
            asked.extend(keys)
            return get_many(keys)

        def one_noted(key: bytes) -> bytes | None:
            asked.append(key)
            return get(key)

        monkeypatch.setattr(committed, "get", one_noted)
        monkeypatch.setattr(committed, "get_many", noted)
        harness.send_all([((key, n), n) for n in range(20) for key in "abcdef"])
        harness.watermark(500)
        assert len(harness.take()) == 12
        assert asked == []
        harness.send_all([((key, 2), 1001) for key in "abcd"])
        assert len(asked) == 4
        harness.watermark(2000)
        assert sorted(value for (value, _) in harness.take()) == [("a", 2), ("b", 2), ("c", 2), ("d", 2)]


def test_windows_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "SPILL_ABOVE", 10)
    with WindowHarness(PROGRAMS["tumbling"], key=lambda value: value[0]) as harness:
        for n in range(5):
            harness.send_all([((key, n), 10 * window) for window in range(8) for key in "abcde"])
        harness.watermark(100)
        assert sorted(value for value, _ in harness.take()) == sorted((key, 4) for key in "abcde" for _ in range(8))
        assert written(harness) == 0


@pytest.mark.parametrize("name", ["sessions", "sessions, records"])
def test_a_committed_session_that_grows_leaves_no_timers_behind(name: str) -> None:
    with WindowHarness(PROGRAMS[name], key=lambda value: value[0]) as harness:
        for time in (0, 2, 4, 6, 8):
            harness.send(("a", 1), time)
            assert harness.event_timers() <= 2, "its end, and the next firing before that"
        assert harness.state_entries() <= 3
