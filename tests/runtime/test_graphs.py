"""Shapes of programs: every step kind, side outputs, splits, unions, diamonds, relayed edges, several sources and sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import CollectSink, KeyedProcessFunction, OutputTag, ProcessFunction, StreamEnvironment, ValueState
from penstock.testing import End, Record, ScriptedSource, Watermark, execute_inline, run_inline, scripted_watermarks

CUTS = pytest.mark.parametrize(("cut", "parallelism"), [(None, 1), (1, 2), (3, 4)])


def numbers(cut: int | None, parallelism: int, upto: int = 10) -> Any:
    env = StreamEnvironment("graphs", parallelism=parallelism)
    return env.from_source(ScriptedSource(list(range(upto)), cut=cut), name="in")


@CUTS
def test_record_by_record(cut: int | None, parallelism: int) -> None:
    stream = numbers(cut, parallelism).map(lambda n: n + 1).filter(lambda n: n % 2).flat_map(lambda n: [n] * (n % 3))
    assert run_inline(stream) == [1, 5, 5, 7]


@CUTS
def test_a_flat_map_may_return_nothing_or_yield(cut: int | None, parallelism: int) -> None:
    def some(n: int) -> Any:
        return None if n % 2 else iter([n])

    assert run_inline(numbers(cut, parallelism).flat_map(some)) == [0, 2, 4, 6, 8]


@CUTS
@pytest.mark.parametrize("format", ["arrow", "pandas"])
def test_batches(cut: int | None, parallelism: int, format: str) -> None:
    if format == "pandas":
        pytest.importorskip("pandas")

    def double(batch: Any) -> Any:
        if format == "pandas":
            return batch.assign(n=batch["n"] * 2)
        return pa.RecordBatch.from_arrays([pc.multiply(batch["n"], 2)], ["n"])

    stream = numbers(cut, parallelism).map(lambda n: {"n": n}).map_batches(double, format=format)
    assert [row["n"] for row in run_inline(stream)] == [2 * n for n in range(10)]


def test_batches_of_other_sizes() -> None:
    def every_other(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        return batch.slice(0, 1) if batch.num_rows > 1 else None

    stream = numbers(4, 2).map(lambda n: (n, str(n))).map_batches(every_other)
    assert run_inline(stream) == [{"f0": 0, "f1": "0"}, {"f0": 4, "f1": "4"}, {"f0": 8, "f1": "8"}]
    assert run_inline(numbers(None, 1).map_batches(lambda batch: batch["value"].to_pylist()[:2])) == [0, 1]


ODD = OutputTag[int]("odd")
BIG = OutputTag[int]("big")


class Sort(ProcessFunction[int, int]):
    def process(self, value: int, ctx: Any) -> Iterator[int]:
        if value % 2:
            ctx.output(ODD, value)
        if value > 6:
            ctx.output(BIG, value)
        if value % 2 == 0:
            yield value


@CUTS
def test_side_outputs(cut: int | None, parallelism: int) -> None:
    env = StreamEnvironment("sides", parallelism=parallelism)
    sorted_ones = env.from_source(ScriptedSource(list(range(10)), cut=cut)).process(Sort(), name="sort")
    sinks = {"even": CollectSink(), "odd": CollectSink(), "odd again": CollectSink(), "big": CollectSink()}
    sorted_ones.sink_to(sinks["even"])
    sorted_ones.side_output(ODD).sink_to(sinks["odd"])
    sorted_ones.side_output(ODD).map(lambda n: -n).sink_to(sinks["odd again"])
    sorted_ones.side_output(BIG).key_by(lambda n: n % 2).reduce(lambda a, b: a + b).sink_to(sinks["big"])
    execute_inline(env)
    assert {name: sink.results() for name, sink in sinks.items() if name != "big"} == {
        "even": [0, 2, 4, 6, 8],
        "odd": [1, 3, 5, 7, 9],
        "odd again": [-1, -3, -5, -7, -9],
    }
    assert sorted(sinks["big"].results()) == [7, 8, 16]


class KeyedSides(KeyedProcessFunction[int, int, int]):
    seen = ValueState(int, default=0)

    def process(self, value: int, ctx: Any) -> Iterator[int]:
        self.seen.update(self.seen.value + 1)
        ctx.output(ODD, (ctx.key, self.seen.value))
        ctx.timers.register_event_time(1000 + value)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        ctx.output(BIG, (ctx.key, timestamp))


@CUTS
def test_side_outputs_of_keyed_steps_and_timers(cut: int | None, parallelism: int) -> None:
    script = [*(Record(n, n) for n in range(4)), Watermark(2000), End()]
    env = StreamEnvironment("keyed sides", parallelism=parallelism)
    stream = env.from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks())
    keyed = stream.key_by(lambda n: n % 2).process(KeyedSides(), name="keyed")
    odd, big = CollectSink(), CollectSink()
    keyed.side_output(ODD).sink_to(odd)
    keyed.side_output(BIG).sink_to(big)
    execute_inline(env)
    assert sorted(odd.results()) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert sorted(big.results()) == [(0, 1000), (0, 1002), (1, 1001), (1, 1003)]


@CUTS
def test_split_and_select(cut: int | None, parallelism: int) -> None:
    env = StreamEnvironment("split", parallelism=parallelism)
    stream = env.from_source(ScriptedSource(list(range(6)), cut=cut))
    split = stream.split(lambda n: ["even" if n % 2 == 0 else "odd"] + (["small"] if n < 2 else []))
    by_predicate = stream.split({"low": lambda n: n < 3, "third": lambda n: n % 3 == 0})
    sinks = [CollectSink() for _ in range(6)]
    split.select("even").sink_to(sinks[0])
    split.select("even").sink_to(sinks[1])
    split.select("even", "odd").sink_to(sinks[2])
    split.select("small", "odd").sink_to(sinks[3])
    by_predicate.select("low").sink_to(sinks[4])
    by_predicate.select("third", "low").sink_to(sinks[5])
    execute_inline(env)
    found = [sorted(sink.results()) for sink in sinks]
    assert found == [[0, 2, 4], [0, 2, 4], [0, 1, 2, 3, 4, 5], [0, 1, 1, 3, 5], [0, 1, 2], [0, 0, 1, 2, 3]]


@CUTS
def test_union_of_streams_and_of_a_stream_with_itself(cut: int | None, parallelism: int) -> None:
    env = StreamEnvironment("union", parallelism=parallelism)
    one = env.from_source(ScriptedSource([1, 2, 3], cut=cut))
    two = env.from_source(ScriptedSource([10, 20], cut=cut))
    assert Counter(run_inline(one.union(two, one).map(lambda n: n))) == Counter([1, 1, 2, 2, 3, 3, 10, 20])


@CUTS
def test_rebalance_and_broadcast(cut: int | None, parallelism: int) -> None:
    assert Counter(run_inline(numbers(cut, parallelism).rebalance().map(lambda n: n))) == Counter(range(10))
    spread = run_inline(numbers(cut, parallelism).broadcast().map(lambda n: n))
    assert Counter(spread) == Counter(dict.fromkeys(range(10), parallelism))


@CUTS
def test_keyed_after_keyed(cut: int | None, parallelism: int) -> None:
    """A chain of exchanges: three stages."""
    counted = numbers(cut, parallelism).map(lambda n: (n % 3, 1)).key_by(0).sum(1)
    again = counted.map(lambda r: (r[1] % 2, 1)).key_by(0).sum(1)
    assert sorted(run_inline(again)) == sorted([(1, i) for i in range(1, 7)] + [(0, i) for i in range(1, 5)])


@CUTS
def test_a_diamond_whose_branches_are_of_different_length(cut: int | None, parallelism: int) -> None:
    """One branch goes through two exchanges, one through one, one through none: the short ones are relayed."""
    env = StreamEnvironment("diamond", parallelism=parallelism)
    source = env.from_source(ScriptedSource(list(range(8)), cut=cut))
    summed = source.key_by(lambda n: n % 2).reduce(lambda a, b: a + b)
    long = summed.key_by(lambda n: n % 3).reduce(max).map(lambda n: ("long", n))
    short = source.key_by(lambda n: n % 4).reduce(lambda a, b: b).map(lambda n: ("short", n))
    none = source.map(lambda n: ("none", n))
    joined = long.union(short, none).key_by(0).fold(0, lambda count, _: count + 1)
    sink = CollectSink()
    short.sink_to(sink)
    assert Counter(run_inline(joined)) == Counter(list(range(1, 9)) * 3)
    assert sorted(sink.results()) == [("short", n) for n in range(8)]


class WatermarkNow(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        return [(value, ctx.current_watermark)]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_relayed_edge_keeps_records_and_time_together(parallelism: int) -> None:
    env = StreamEnvironment("relay", parallelism=parallelism)
    script = [Record("a", 1), Watermark(10), Record("b", 11), Watermark(20), Record("c", 21), End()]
    source = env.from_source(ScriptedSource(script), watermarks=scripted_watermarks())
    far = source.key_by(lambda v: v).reduce(lambda a, b: b).key_by(lambda v: v).reduce(lambda a, b: b)
    both = far.union(source.map(str.upper)).process(WatermarkNow())
    found = dict(run_inline(both))
    assert {k: max(v, 0) for k, v in found.items()} == {"a": 0, "A": 0, "b": 10, "B": 10, "c": 20, "C": 20}


def test_functions_are_opened_once_in_a_partition_and_closed() -> None:
    events: list[str] = []

    class Lifecycle(ProcessFunction[int, int]):
        def open(self, context: Any) -> None:
            events.append(f"open {context.partition} of {context.parallelism}")
            self.context = context

        def process(self, value: int, ctx: Any) -> list[int]:
            self.context.count("seen")
            return [value]

        def close(self) -> None:
            events.append("close")

    env = StreamEnvironment("lifecycle", parallelism=1)
    env.from_source(ScriptedSource([1, 2, 3, End()], cut=1)).process(Lifecycle(), name="step").sink_to(CollectSink())
    result = execute_inline(env)
    assert events == ["open 0 of 1", "close"]
    assert result.counters == {"step": {"seen": 3}}
