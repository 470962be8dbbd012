"""Loops: what is refused when the program is built, rounds and leftovers, where time has got to, how a loop ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import pytest

from penstock import (
    AggregateFunction,
    CollectSink,
    KeyedProcessFunction,
    OutputTag,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
)
from penstock.api import DataStream, Loop
from penstock.connectors import CollectionSource
from penstock.errors import PlanError
from penstock.testing import End, ScriptedSource, execute_inline, run_inline
from penstock.timing import Watermarks

CUTS = pytest.mark.parametrize(("cut", "parallelism"), [(None, 1), (1, 2), (3, 4)])


def numbers(cut: int | None = None, parallelism: int = 2, upto: int = 10) -> Any:
    env = StreamEnvironment("loops", executor="inline", parallelism=parallelism)
    return env.from_source(ScriptedSource(list(range(upto)), cut=cut), name="in")


@CUTS
def test_what_comes_back_is_taken_as_new_records_are(cut: int | None, parallelism: int) -> None:
    loop = numbers(cut, parallelism).iterate()
    loop.close_with(loop.filter(lambda n: n >= 3).map(lambda n: n - 3))
    assert sorted(run_inline(loop)) == sorted(n - 3 * k for n in range(10) for k in range(n // 3 + 1))


@CUTS
def test_leftovers(cut: int | None, parallelism: int) -> None:
    """Across an exchange too: the rounds of a record are those of the record it was made from."""
    loop = numbers(cut, parallelism).map(lambda n: (n, 0)).iterate(max_rounds=4)
    loop.close_with(loop.rebalance().map(lambda row: (row[0], row[1] + 1)).filter(lambda row: row[1] < row[0]))
    assert sorted(run_inline(loop.leftovers())) == [(n, 4) for n in range(5, 10)]


def test_two_loops_one_after_another() -> None:
    first = numbers().iterate(max_rounds=3)
    first.close_with(first.key_by(lambda n: n % 3).reduce(lambda a, b: b, name="last").map(lambda n: n + 100))
    second = first.leftovers().iterate(max_rounds=2)
    second.close_with(second.map(lambda n: n + 1000))
    assert sorted(run_inline(second.leftovers())) == [2300 + n for n in range(10)]


class Ring(KeyedProcessFunction[int, int, int]):
    def process(self, value: int, ctx: Any) -> Iterator[int]:
        yield (value + 1) % 5


def test_a_loop_that_never_empties_turns_with_every_epoch_until_it_is_stopped() -> None:
    env = StreamEnvironment("ring", executor="inline", parallelism=2)
    loop = env.from_collection([0]).iterate(turns=2)
    sink = CollectSink()
    ring = loop.key_by(lambda n: n).process(Ring(), name="ring")
    loop.close_with(ring)
    ring.sink_to(sink)
    seen: list[int] = []

    def listener(record: Any) -> None:
        seen.append(record.epoch)
        if record.epoch == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        env.execute(listener=listener)
    assert len(list(sink.results())) > 8


TIMED = [{"n": n, "time": 1000 * n} for n in range(20)]


@pytest.mark.parametrize("records", [1, 3, 100])
def test_time_waits_for_the_loop(records: int) -> None:
    """What comes out of a loop is in the window of its timestamp, whatever the number of rounds."""
    env = StreamEnvironment("windows", executor="inline", parallelism=2, max_records_per_epoch=records)
    marks: Watermarks[Any] = Watermarks.monotonous(timestamp="time")
    rows = env.from_source(CollectionSource(TIMED), watermarks=marks).map(lambda row: (row["n"], row["n"] % 7))
    loop = rows.iterate(turns=1)
    stepped = loop.key_by(lambda row: row[1]).process(_Down(), name="down")
    loop.close_with(stepped)
    late = OutputTag[Any]("late")
    counted = stepped.side_output(DONE).key_by(lambda n: n % 2).window(TumblingWindows(5), late=late).aggregate(_Listed())
    sink, left = CollectSink(), CollectSink()
    counted.sink_to(sink)
    counted.side_output(late).sink_to(left)
    env.execute()
    assert list(left.results()) == []
    expected = [sorted(n for n in range(start, start + 5) if n % 2 == odd) for start in range(0, 20, 5) for odd in (0, 1)]
    assert sorted(map(sorted, sink.results())) == sorted(expected)


DONE = OutputTag[int]("done")


class _Down(KeyedProcessFunction[int, tuple[int, int], tuple[int, int]]):
    def process(self, value: tuple[int, int], ctx: Any) -> Iterator[tuple[int, int]]:
        number, left = value
        if left == 0:
            ctx.output(DONE, number)
        else:
            yield number, left - 1


class _Listed(AggregateFunction[int, list[int], list[int]]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [*accumulator, value]

    def result(self, accumulator: list[int]) -> list[int]:
        return accumulator


# --- how a job with a loop ends --------------------------------------------------------------------------------------------


class Countdown(KeyedProcessFunction[int, int, int]):
    """Counts down, once a timer has fired: only the end of time makes it go on."""

    left: ValueState[int] = ValueState(int)

    def process(self, value: int, ctx: Any) -> Iterator[int]:
        ctx.output(DONE, value)
        if value > 0:
            self.left.update(value - 1)
            ctx.timers.register_event_time(1 << 50)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        yield self.left.value


def counting_down(env: StreamEnvironment, source: ScriptedSource) -> tuple[CollectSink, Any]:
    loop = env.from_source(source, name="in").iterate(turns=1, name="loop")
    down = loop.key_by(lambda n: n % 3).process(Countdown(), name="down")
    loop.close_with(down)
    sink = CollectSink()
    down.side_output(DONE).sink_to(sink)
    return sink, env


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_the_end_of_time_sends_back_goes_on_turning(parallelism: int) -> None:
    env = StreamEnvironment("down", executor="inline", parallelism=parallelism)
    sink, _ = counting_down(env, ScriptedSource([4, End()]))
    assert env.execute().finished
    assert sorted(sink.results()) == [0, 1, 2, 3, 4]


def test_a_drain_ends_time_when_the_loop_is_empty(tmp_path: Path) -> None:
    env = StreamEnvironment("down", executor="inline", parallelism=2, storage=str(tmp_path))
    sink, _ = counting_down(env, ScriptedSource([4]))
    result = env.execute(until_idle=True, drain=True)
    assert (result.drained, result.finished) == (True, True)
    assert sorted(sink.results()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("drain", [True, False])
def test_a_job_with_records_in_a_loop_is_not_idle(drain: bool) -> None:
    env = StreamEnvironment("idle", executor="inline", parallelism=2)
    loop = env.from_source(ScriptedSource([7]), name="in").iterate(max_rounds=30, turns=1)
    ring = loop.key_by(lambda n: n).process(Ring(), name="ring")
    loop.close_with(ring)
    sink, left = CollectSink(), CollectSink()
    ring.sink_to(sink)
    loop.leftovers().sink_to(left)
    assert env.execute(until_idle=True, drain=drain).drained is drain
    assert len(list(sink.results())) == 30
    assert len(list(left.results())) == 1


# --- what is refused -------------------------------------------------------------------------------------------------------


def test_a_loop_that_is_never_closed() -> None:
    loop = numbers().iterate(name="spread")
    loop.map(str).print()
    with pytest.raises(PlanError, match="the loop 'spread' is never closed"):
        execute_inline(loop._env)


def test_a_loop_that_is_closed_twice() -> None:
    loop = numbers().iterate(name="spread")
    loop.close_with(loop.filter(bool, name="some"))
    with pytest.raises(PlanError, match="the loop 'spread' is closed already") as caught:
        loop.close_with(loop.filter(bool))
    assert "with the output of step 'some'" in caught.value.detail


def test_feedback_that_does_not_come_from_the_loop() -> None:
    rows = numbers()
    loop = rows.iterate(name="spread")
    with pytest.raises(PlanError, match="the output of step 'in' does not come from the loop 'spread'"):
        loop.close_with(rows)
    with pytest.raises(PlanError, match="does not come from the loop 'spread'"):
        loop.close_with(numbers())
    with pytest.raises(PlanError, match="would come back to itself as it is"):
        loop.close_with(loop)
    with pytest.raises(PlanError, match="this is not a stream"):
        loop.close_with([1])
    with pytest.raises(PlanError, match="close_with directly after key_by"):
        loop.close_with(loop.map(abs).key_by(lambda n: n))


def test_feedback_with_other_columns() -> None:
    env = StreamEnvironment("loops", executor="inline")
    loop = env.from_collection([{"a": 1, "b": 2}]).select("a", "b").iterate(name="spread")
    with pytest.raises(PlanError, match="what comes back to the loop 'spread' has other columns"):
        loop.close_with(loop.select("a"))


def test_leftovers_of_a_loop_without_a_limit() -> None:
    loop = numbers().iterate(name="spread")
    loop.close_with(loop.filter(bool))
    with pytest.raises(PlanError, match="the loop 'spread' has no leftovers"):
        loop.leftovers()
    with pytest.raises(PlanError, match="the loop 'other' is not closed yet"):
        numbers().iterate(max_rounds=1, name="other").leftovers()


def test_a_loop_within_a_loop() -> None:
    outer = numbers().iterate(name="outer")
    inner = outer.map(abs).iterate(name="inner")
    inner.close_with(inner.filter(bool))
    outer.close_with(inner.map(abs))
    outer.print()
    with pytest.raises(PlanError, match="the loop 'inner' is within the loop 'outer'"):
        execute_inline(outer._env)


def test_types_flow_round_a_loop() -> None:
    env = StreamEnvironment("types", executor="inline")
    loop = env.from_collection([1, 2]).iterate(max_rounds=2)
    assert_type(loop, Loop[int])
    assert_type(loop.map(str), DataStream[str])
    loop.close_with(loop.filter(lambda n: n > 1))
    assert_type(loop.leftovers(), DataStream[int])


def test_other_refusals() -> None:
    with pytest.raises(PlanError, match="iterate directly after key_by"):
        numbers().key_by(lambda n: n).iterate()
    with pytest.raises(PlanError, match="max_rounds=0"):
        numbers().iterate(max_rounds=0)
    with pytest.raises(PlanError, match="turns=0"):
        numbers().iterate(turns=0)
