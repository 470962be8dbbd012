"""Watermarks of several sources and partitions, idleness, and the end of time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock import CollectSink, KeyedProcessFunction, ListState, ProcessFunction, StreamEnvironment, Ttl, ValueState, Watermarks
from penstock.ids import MIN_WATERMARK
from penstock.testing import (
    Cut,
    End,
    KeyedHarness,
    ProcessingTime,
    Record,
    ScriptedSource,
    VirtualClock,
    Watermark,
    execute_inline,
    run_inline,
    scripted_watermarks,
)


class Now(ProcessFunction[Any, Any]):
    """Each record with the watermark it sees."""

    def process(self, value: Any, ctx: Any) -> Any:
        return [(value, None if ctx.current_watermark == MIN_WATERMARK else ctx.current_watermark)]


class AlarmAt(KeyedProcessFunction[Any, Any, Any]):
    """A timer at the time each record names; says when it fired, by records seen so far."""

    seen: ListState[str] = ListState(str)

    def process(self, value: Any, ctx: Any) -> None:
        name, timer = value
        self.seen.add(name)
        if timer is not None:
            ctx.timers.register_event_time(timer)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield timestamp, "".join(self.seen)


def alarms(*sources: Any, parallelism: int, until: int | None = None, idle: timedelta | None = None) -> list[Any]:
    env = StreamEnvironment("alarms", parallelism=parallelism)
    streams = [env.from_source(source, watermarks=scripted_watermarks(idle=idle)) for source in sources]
    stream = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    return run_inline(stream.key_by(lambda v: 0).process(AlarmAt(), name="alarm"), until=until)


PARALLEL = pytest.mark.parametrize("parallelism", [1, 2, 3])


@PARALLEL
def test_a_union_is_as_late_as_its_latest_input(parallelism: int) -> None:
    one = ScriptedSource([Record(("a", 5), 1), Watermark(10), Cut(), ("b", None), Watermark(20), End()])
    two = ScriptedSource([("c", None), Watermark(3), Cut(), ("d", None), Watermark(5), Cut(), ("e", None), End()])
    [(time, seen)] = alarms(one, two, parallelism=parallelism)
    assert time == 5
    assert set("abcd") <= set(seen) | {"b"}
    assert "e" not in seen


@PARALLEL
def test_partitions_of_a_source_have_their_own_time(parallelism: int) -> None:
    source = ScriptedSource.of(
        [("a", 5), Watermark(100), End()], [("b", None), Watermark(4), Cut(), ("c", None), Watermark(6), End()]
    )
    [(time, seen)] = alarms(source, parallelism=parallelism)
    assert (time, sorted(seen)) == (5, ["a", "b", "c"])


@PARALLEL
def test_a_record_sees_its_own_partitions_time(parallelism: int) -> None:
    """Whatever is read first: the partitions are merged by time."""
    parts = [[*(item for t in (10, 20, 30) for item in (Record((p, t), t), Watermark(t))), End()] for p in "xyz"]
    env = StreamEnvironment("merged", parallelism=parallelism)
    stream = env.from_source(ScriptedSource.of(*parts), watermarks=scripted_watermarks())
    found = run_inline(stream.key_by(lambda v: v[1]).reduce(lambda a, b: b).process(Now()))
    assert {time: {seen for (_, t), seen in found if t == time} for time in (10, 20, 30)} == {10: {None}, 20: {10}, 30: {20}}


@PARALLEL
def test_an_idle_partition_lets_time_pass(parallelism: int) -> None:
    busy = [
        ("a", 5),
        Watermark(4),
        ProcessingTime(900),
        ("b", None),
        Watermark(6),
        ProcessingTime(5000),
        ("c", None),
        Watermark(7),
    ]
    source = ScriptedSource.of(busy, [("q", None), Watermark(1)])
    assert alarms(source, parallelism=parallelism, until=800, idle=timedelta(seconds=1)) == []
    source = ScriptedSource.of(busy, [("q", None), Watermark(1)])
    [(time, seen)] = alarms(source, parallelism=parallelism, until=1500, idle=timedelta(seconds=1))
    assert (time, sorted(seen)) == (5, ["a", "b", "q"])


def test_without_idleness_a_silent_partition_holds_time() -> None:
    source = ScriptedSource.of([("a", 5), Watermark(100)], [("q", None), Watermark(1)])
    assert alarms(source, parallelism=2, until=100_000) == []


@PARALLEL
def test_a_bounded_source_beside_an_unbounded_one(parallelism: int) -> None:
    bounded = ScriptedSource([("a", 50), End()])
    unbounded = ScriptedSource([("b", None), Watermark(10), ProcessingTime(100), ("c", None), Watermark(60)])
    [(time, seen)] = alarms(bounded, unbounded, parallelism=parallelism, until=1000)
    assert (time, sorted(seen)) == (50, ["a", "b", "c"])


@PARALLEL
def test_the_end_of_one_source_is_not_the_end_of_time_while_another_is_idle(parallelism: int) -> None:
    bounded = ScriptedSource([("a", 50), ProcessingTime(5000), End()])
    unbounded = ScriptedSource(
        [("b", None), Watermark(10), ProcessingTime(9000), ("c", None), Watermark(20), ("d", 30), Watermark(40)]
    )
    assert alarms(bounded, unbounded, parallelism=parallelism, until=20_000, idle=timedelta(seconds=1)) == [(30, "abcd")]


@PARALLEL
def test_the_end_of_bounded_input_fires_everything_in_every_stage(parallelism: int) -> None:
    """Also timers that records set which timers at the end sent."""

    class Later(KeyedProcessFunction[Any, Any, Any]):
        def __init__(self, label: str) -> None:
            self.label = label

        def process(self, value: Any, ctx: Any) -> None:
            ctx.timers.register_processing_time(ctx.current_processing_time + 1_000_000)
            ctx.timers.register_event_time(77)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield f"{self.label} {ctx.time_domain}"

    env = StreamEnvironment("end", parallelism=parallelism)
    stream = env.from_source(ScriptedSource(["x", End()]), watermarks=scripted_watermarks())
    first = stream.key_by(lambda v: v).process(Later("first"), name="first")
    second = first.key_by(lambda v: v).process(Later("second"), name="second")
    sink = CollectSink()
    first.sink_to(sink)
    found = run_inline(second)
    assert sorted(sink.results()) == ["first event", "first processing"]
    assert sorted(found) == ["second event", "second event", "second processing", "second processing"]


def test_state_written_at_the_end_of_time() -> None:
    class Fading(KeyedProcessFunction[Any, Any, Any]):
        last: ValueState[str] = ValueState(str, ttl=Ttl(timedelta(seconds=1), time="event"))

        def process(self, value: Any, ctx: Any) -> None:
            ctx.timers.register_processing_time(ctx.current_processing_time + 10)
            ctx.timers.register_processing_time(ctx.current_processing_time + 20)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield self.last.value
            self.last.update(str(timestamp))
            ctx.timers.register_event_time(ctx.current_watermark + 5)

    with KeyedHarness(Fading(), key=lambda v: v) as harness:
        harness.send("a")
        harness.end()
        assert [value for value, _ in harness.take()] == [None, "10"]
        harness.snapshot()


def test_a_source_without_watermarks_has_no_say() -> None:
    env = StreamEnvironment("no say", parallelism=2)
    timed = env.from_source(
        ScriptedSource([("a", 5), Watermark(10), Cut(), ("b", None), End()]), watermarks=scripted_watermarks()
    )
    plain = env.from_source(ScriptedSource([("c", None), End()]))
    [(time, seen)] = run_inline(timed.union(plain).key_by(lambda v: 0).process(AlarmAt(), name="alarm"))
    assert time == 5
    assert "b" not in seen


def test_bounded_watermarks_and_late_records() -> None:
    env = StreamEnvironment("bounded", parallelism=1)
    values = [{"t": t} for t in (10, 30, 12, 50)]
    stream = env.from_source(
        ScriptedSource([*values, End()], cut=1), watermarks=Watermarks.bounded(slack=timedelta(milliseconds=5), timestamp="t")
    )
    assert [seen for _, seen in run_inline(stream.process(Now()))] == [None, 4, 24, 24]


def test_processing_time_never_goes_back(tmp_path: Any) -> None:
    class Clock(ProcessFunction[Any, Any]):
        def process(self, value: Any, ctx: Any) -> Any:
            return [ctx.current_processing_time]

    sink = CollectSink()
    for now in (5000, 1000):
        env = StreamEnvironment("clock", parallelism=1, storage=str(tmp_path))
        env.from_source(ScriptedSource([1, 2, 3, End()], cut=1, id="s"), name="in").process(Clock(), name="now").sink_to(
            sink, name="out"
        )
        execute_inline(env, clock=VirtualClock(now), epochs=1 if now == 5000 else None)
    assert sink.results() == [5000, 5000, 5000]
