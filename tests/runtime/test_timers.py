"""Timers in detail, on the harness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import CollectSink, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.testing import Crash, End, KeyedHarness, ProcessingTime, ScriptedSource, VirtualClock, execute_inline, run_inline


class Timed(KeyedProcessFunction[str, Any, Any]):
    """A record is (key, [(verb, time), ...])."""

    def process(self, value: Any, ctx: Any) -> None:
        for verb, time in value[1]:
            getattr(ctx.timers, verb)(time)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.key, ctx.time_domain, timestamp


SET, DELETE = "register_event_time", "delete_event_time"
SET_P, DELETE_P = "register_processing_time", "delete_processing_time"


def harness(**options: Any) -> KeyedHarness:
    return KeyedHarness(Timed(), key=lambda v: v[0], **options)


@pytest.fixture(params=["one epoch", "an epoch for each step", "a restore after each step"])
def between(request: Any) -> Any:
    def go_on(h: KeyedHarness) -> None:
        if request.param != "one epoch":
            snapshot = h.snapshot()
            if request.param.startswith("a restore"):
                h.restore(snapshot, parallelism=h.parallelism % 3 + 1)

    return go_on


def test_a_timer_fires_once_and_in_order(between: Any) -> None:
    with harness() as h:
        h.send(("a", [(SET, 9), (SET, 3), (SET, 3)]))
        between(h)
        h.send(("b", [(SET, 3), (SET, 5)]))
        h.send(("a", [(SET, 3)]))
        between(h)
        h.watermark(5)
        between(h)
        assert sorted(h.take()) == [(("a", "event", 3), 3), (("b", "event", 3), 3), (("b", "event", 5), 5)]
        assert h.event_timers() == 1
        h.watermark(5)
        h.watermark(8)
        between(h)
        assert h.take() == []
        h.watermark(9)
        assert h.take() == [(("a", "event", 9), 9)]
        assert h.event_timers() == 0


def test_deleted_and_set_again(between: Any) -> None:
    with harness() as h:
        for verb in (SET, DELETE, SET, DELETE, SET):
            h.send(("a", [(verb, 7)]))
            between(h)
        h.send(("b", [(SET, 7)]))
        between(h)
        h.send(("b", [(DELETE, 7)]))
        between(h)
        h.watermark(7)
        assert h.take() == [(("a", "event", 7), 7)]
        between(h)
        h.send(("a", [(SET, 7)]))
        between(h)
        h.watermark(8)
        assert h.take() == [(("a", "event", 7), 7)]


def test_in_the_past_it_fires_when_time_advances(between: Any) -> None:
    with harness() as h:
        h.watermark(10)
        between(h)
        h.send(("a", [(SET, 4)]))
        between(h)
        h.watermark(10)
        between(h)
        assert h.take() == []
        h.send(("a", [(DELETE, 4), (SET, 5)]))
        between(h)
        h.watermark(11)
        assert h.take() == [(("a", "event", 5), 5)]


def test_processing_time(between: Any) -> None:
    with harness(processing_time=100) as h:
        h.send(("a", [(SET_P, 105), (SET_P, 120), (SET_P, 130), (DELETE_P, 120), (SET, 105)]))
        between(h)
        h.processing_time(119)
        assert h.take() == [(("a", "processing", 105), None)]
        between(h)
        h.processing_time(125)
        assert h.take() == []
        assert (h.processing_timers(), h.event_timers()) == (1, 1)
        between(h)
        h.end()
        assert h.take() == [(("a", "event", 105), 105), (("a", "processing", 130), None)]


def test_beyond_the_end_of_time(between: Any) -> None:
    with harness() as h:
        h.send(("a", [(SET, 2**63 - 1), (SET, 2**70), (DELETE, 2**71), (SET, -(2**70))]))
        between(h)
        h.watermark(0)
        assert h.take() == [(("a", "event", -(2**63)), None)]
        between(h)
        h.end()
        assert h.take() == [(("a", "event", 2**63 - 1), 2**63 - 1)]


class Pulse(KeyedProcessFunction[str, str, Any]):
    """Sets its timer again, three times, on the clock."""

    count = ValueState(int, default=0)

    def process(self, value: str, ctx: Any) -> None:
        ctx.timers.register_processing_time(ctx.current_processing_time + 100)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.count.update(self.count.value + 1)
        yield ctx.key, timestamp, ctx.current_processing_time
        if self.count.value < 3:
            ctx.timers.register_processing_time(timestamp + 100)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_processing_time_timers_fire_without_data(parallelism: int) -> None:
    env = StreamEnvironment("pulse", parallelism=parallelism)
    stream = env.from_source(ScriptedSource(["a", ProcessingTime(150), "b"]))
    found = run_inline(stream.key_by(lambda v: v).process(Pulse(), name="pulse"), until=1000)
    assert sorted(found) == [(k, t, t) for k, t in [("a", 100), ("a", 200), ("a", 300), ("b", 250), ("b", 350), ("b", 450)]]


def test_processing_time_timers_fire_once_through_restarts_and_crashes(tmp_path: Any) -> None:
    sink, clock = CollectSink(), VirtualClock()
    source = ScriptedSource(["a", ProcessingTime(150), Crash(times=2), "b", ProcessingTime(2000), "c"], cut=1)
    for turn in range(20):
        env = StreamEnvironment("pulse", parallelism=turn % 3 + 1, storage=str(tmp_path))
        env.from_source(source, name="in").key_by(lambda v: v).process(Pulse(), name="pulse").sink_to(sink, name="out")
        execute_inline(env, clock=clock, until=4000, epochs=1)
    fired = sink.results()
    assert sorted((key, timer) for key, timer, _ in fired if key == "a") == [("a", 100), ("a", 200), ("a", 300)]
    assert sorted(key for key, _, _ in fired) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


def test_at_the_end_pending_timers_fire_once_even_if_they_set_others() -> None:
    env = StreamEnvironment("pulse", parallelism=2)
    stream = env.from_source(ScriptedSource(["a", End()]))
    assert run_inline(stream.key_by(lambda v: v).process(Pulse(), name="pulse")) == [("a", 100, 0)]
