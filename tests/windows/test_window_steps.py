"""Windows in programs, on the inline executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import (
    AggregateFunction,
    CountTrigger,
    DataStream,
    GlobalWindows,
    OutputTag,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    Watermarks,
    WindowFunction,
    avg,
    count,
)
from penstock import aggregates as agg
from penstock.errors import PlanError, UserCodeError
from penstock.testing import End, ProcessingTime, Record, ScriptedSource, Watermark, execute_inline, run_inline
from penstock.testing import scripted_watermarks as scripted
from penstock.testing.clock import VirtualClock
from penstock.windows import DeltaTrigger, TimeWindow, WindowAssigner, per_window

LATE: OutputTag[Any] = OutputTag("late")


def stream_of(*items: Any, cut: int | None = None, parallelism: int = 2) -> DataStream[Any]:
    env = StreamEnvironment("windows", parallelism=parallelism)
    return env.from_source(ScriptedSource([*items, End()], cut=cut), watermarks=scripted(), name="script")


def at(time: int, *value: Any) -> Record:
    return Record(value if len(value) > 1 else value[0], time)


def test_window_word_count() -> None:
    lines = [at(1, "to be or"), at(2, "not to be"), at(12, "to")]
    counts = (
        stream_of(*lines)
        .flat_map(str.split)
        .key_by(lambda word: word)
        .window(TumblingWindows(milliseconds=10))
        .aggregate(count(), name="counts")
    )
    assert sorted((row["key"], row["window_start"], row["count"]) for row in run_inline(counts)) == [
        ("be", 0, 2),
        ("not", 0, 1),
        ("or", 0, 1),
        ("to", 0, 2),
        ("to", 10, 1),
    ]


def test_results_have_the_time_of_the_windows_end_so_windows_chain() -> None:
    small = stream_of(*[at(n, "a", n) for n in range(40)]).key_by(0).window(TumblingWindows(milliseconds=10)).sum(1, name="small")
    large = small.key_by(0).window(TumblingWindows(milliseconds=20)).process(Seen(), name="large")
    assert run_inline(large) == [("a", 0, 20, [45, 145]), ("a", 20, 40, [245, 345])]


class Seen(WindowFunction[str, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield (ctx.key, *ctx.window, [value[1] for value in values])


def test_late_records_update_or_go_aside_and_are_counted() -> None:
    script = [at(1, "a", 1), Watermark(12), at(2, "a", 2), Watermark(30), at(3, "a", 3), at(31, "a", 4), at(4, "a", 5)]
    windowed = stream_of(*script).key_by(0).window(TumblingWindows(milliseconds=10), allowed_lateness=0.005, late=LATE)
    sums = windowed.sum(1, name="sums")
    late = sums.side_output(LATE).map(lambda record: ("late", *record))
    assert sorted(run_inline(sums.union(late))) == [("a", 1), ("a", 3), ("a", 4), ("late", "a", 3), ("late", "a", 5)]
    result = execute_inline(sums._env)
    assert result.counters["sums"] == {"late": 2}


def test_late_records_are_counted_also_if_nobody_wants_them() -> None:
    sums = (
        stream_of(at(15, "a", 1), Watermark(12), at(2, "a", 2))
        .key_by(0)
        .window(TumblingWindows(milliseconds=10))
        .sum(1, name="s")
    )
    sums.print()
    assert execute_inline(sums._env).counters["s"] == {"late": 1, "late_dropped": 1}


@pytest.mark.parametrize("cut", [None, 1])
def test_sessions(cut: int | None) -> None:
    script = [at(0, "a", 1), at(2, "b", 1), at(4, "a", 2), at(20, "a", 3), Watermark(15), at(17, "a", 4), Watermark(40)]
    sessions = stream_of(*script, cut=cut).key_by(0).window(SessionWindows(0.005)).process(Seen(), name="sessions")
    assert sorted(run_inline(sessions)) == [("a", 0, 9, [1, 2]), ("a", 17, 25, [3, 4]), ("b", 2, 7, [1])]


def test_window_all_and_arrow() -> None:
    def total(key: None, window: TimeWindow, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"start": [window.start], "total": [pc.sum(batch["f1"]).as_py()]})

    stream = stream_of(*[at(n, "abc"[n % 3], n) for n in range(20)])
    totals = stream.window_all(TumblingWindows(milliseconds=10)).apply(total, name="totals")
    rows = stream.window_all(TumblingWindows(milliseconds=10)).aggregate(total=agg.sum(1), name="rows")
    assert sorted(run_inline(totals.union(rows)), key=repr) == [
        {"start": 0, "total": 45},
        {"start": 10, "total": 145},
        {"window_start": 0, "window_end": 10, "total": 45},
        {"window_start": 10, "window_end": 20, "total": 145},
    ]


def test_count_windows() -> None:
    stream = stream_of(*[at(n, "a", n) for n in range(7)])
    whole = stream.key_by(0).count_window(3).process(Seen(), name="whole")
    sliding = stream.key_by(0).count_window(3, 2).process(Seen(), name="sliding")
    assert sorted(row[3] for row in run_inline(whole.union(sliding))) == [[0, 1], [0, 1, 2], [1, 2, 3], [3, 4, 5], [3, 4, 5]]


class Mean(AggregateFunction[Any, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + 1, accumulator[1] + value[1])

    def result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]


class MergingMean(Mean):
    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] + right[1])


@pytest.mark.parametrize("mean", [Mean(), MergingMean()])
def test_an_aggregate_function_in_sessions(mean: Mean) -> None:
    stream = stream_of(at(0, "a", 1), at(9, "a", 5), at(4, "a", 3))
    means = stream.key_by(0).window(SessionWindows(0.005)).aggregate(mean, accumulator_type=tuple[int, int], name="means")
    kept = "incremental" if isinstance(mean, MergingMean) else "buffered"
    assert f"contents {kept}" in means._env.explain()
    assert run_inline(means) == [3.0]


def test_one_field() -> None:
    stream = stream_of(at(0, "a", 3, "x"), at(1, "a", 1, "y"), at(2, "a", 1, "z"), at(3, "a", 5, "w"))
    keyed = stream.key_by(0).window(TumblingWindows(milliseconds=10))
    results = [keyed.min(1), keyed.max(1), keyed.min_by(1), keyed.max_by(1), keyed.sum(1)]
    assert sorted(run_inline(results[0].union(*results[1:]))) == sorted(
        [("a", 1, "x"), ("a", 5, "x"), ("a", 1, "y"), ("a", 5, "w"), ("a", 10, "x")]
    )


class Firings(WindowFunction[str, Any, Any]):
    """State of the key outlives windows, state of a window does not."""

    of_key = ValueState[int](int, 0)
    of_window = per_window(ValueState[int](int, 0))

    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        self.of_key.update(self.of_key.value + 1)
        self.of_window.update(self.of_window.value + 1)
        yield (ctx.window.start, len(values), self.of_key.value, self.of_window.value)

    def clear(self, ctx: Any) -> None:
        ctx.output(OutputTag("closed"), (ctx.key, ctx.window.start, self.of_window.value))


@pytest.mark.parametrize("cut", [None, 1])
def test_state_of_windows_and_of_keys(cut: int | None) -> None:
    script = [at(n, "a", n) for n in (0, 1, 2, 3, 10, 11)]
    windowed = stream_of(*script, cut=cut).key_by(0).window(TumblingWindows(milliseconds=10), trigger=CountTrigger(2))
    results = windowed.process(Firings(), name="firings")
    closed = results.side_output(OutputTag[Any]("closed"))
    assert sorted(run_inline(results.union(closed)), key=repr) == [
        ("a", 0, 2),
        ("a", 10, 1),
        (0, 2, 1, 1),
        (0, 4, 2, 2),
        (10, 2, 3, 1),
    ]


def test_state_per_window_is_refused_where_windows_merge() -> None:
    with pytest.raises(PlanError, match="Firings has state per window, and its windows merge"):
        stream_of().key_by(0).window(SessionWindows(1)).process(Firings())


def test_processing_time_windows_fire_by_the_clock_and_at_the_end() -> None:
    script = [
        Record(("a", 1)),
        ProcessingTime(1_005),
        Record(("a", 2)),
        Record(("a", 3)),
        ProcessingTime(2_500),
        Record(("a", 4)),
    ]
    windowed = stream_of(*script).key_by(0).window(TumblingWindows(seconds=1, time="processing"))
    counts = windowed.process(Seen(), name="counts")
    assert run_inline(counts, clock=VirtualClock(0), until=9_000) == [
        ("a", 0, 1000, [1]),
        ("a", 1000, 2000, [2, 3]),
        ("a", 2000, 3000, [4]),
    ]


def test_ingestion_time_is_the_epochs() -> None:
    env = StreamEnvironment("ingestion")
    source = ScriptedSource([("a", 1), ProcessingTime(700), ("a", 2), ProcessingTime(1_900), ("a", 3), End()])
    windowed = env.from_source(source, watermarks=Watermarks.ingestion()).key_by(0).window(TumblingWindows(seconds=1))
    assert "watermarks ingestion time" in env.explain()
    assert run_inline(windowed.process(Seen(), name="seen"), clock=VirtualClock(0), until=9_000) == [
        ("a", 0, 1000, [1, 2]),
        ("a", 1000, 2000, [3]),
    ]


def test_punctuated_watermarks_close_windows() -> None:
    env = StreamEnvironment("punctuated")
    watermarks: Watermarks[Any] = Watermarks.punctuated(
        lambda record, time: time if record[0] == "mark" else None, timestamp=lambda record: record[1]
    )
    records = [("a", 1), ("a", 2), ("mark", 9), ("a", 3), ("a", 15)]
    stream = env.from_collection(records, watermarks=watermarks).key_by(0)
    counts = stream.window(TumblingWindows(milliseconds=10), late=LATE).process(Seen(), name="seen")
    late = counts.side_output(LATE).map(lambda record: ("late", *record))
    assert "watermarks punctuated" in env.explain()
    assert sorted(run_inline(counts.union(late)), key=repr) == [
        ("a", 0, 10, [1, 2]),
        ("a", 10, 20, [15]),
        ("late", "a", 3),
        ("mark", 0, 10, [9]),
    ]


def test_event_time_windows_need_timestamps() -> None:
    env = StreamEnvironment("none")
    for name, windows in {"tumbling": TumblingWindows(5), "sessions": SessionWindows(5)}.items():
        counts = env.from_collection([1, 2]).key_by(lambda n: n).window(windows).aggregate(count(), name=name)
        with pytest.raises(PlanError, match=f"step '{name}': a record without a timestamp came to event-time windows") as raised:
            run_inline(counts)
        assert "watermarks=Watermarks.bounded" in str(raised.value)
        env = StreamEnvironment("none")


def failing(left: Any, right: Any) -> Any:
    raise ValueError("no")


class Failing(WindowFunction[str, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        raise ValueError("no")


def test_errors_name_step_function_key_and_record() -> None:
    script = [at(1, "b", 0), at(1, "a", 1), at(2, "a", 2)]
    for windows in (TumblingWindows(5), SessionWindows(5)):
        with pytest.raises(UserCodeError) as raised:
            run_inline(stream_of(*script).key_by(0).window(windows).reduce(failing, name="r"))
        text = str(raised.value)
        assert text.startswith("step 'r': ValueError: no (key 'a')")
        assert "function: failing (" in text
        assert "record: ('a', 2)" in text
    with pytest.raises(UserCodeError, match="step 'p'") as raised:
        run_inline(stream_of(*script).key_by(0).window(TumblingWindows(5)).process(Failing(), name="p"))
    assert "Failing.process (" in str(raised.value)
    assert "'window': (0, 5000)" in str(raised.value)


def test_a_record_that_a_function_raises_on_can_be_set_aside() -> None:
    def cautious(left: Any, right: Any) -> Any:
        return (left[0], left[1] + right[1])

    script = [at(1, "a", 1), at(2, "a", "x"), at(3, "a", 2)]
    windowed = stream_of(*script).key_by(0).window(TumblingWindows(5))
    sums = windowed.reduce(cautious, name="sums", errors="dead_letter")
    letters = sums.dead_letters().map(lambda letter: (letter.record, letter.timestamp_ms))
    assert sorted(run_inline(sums.union(letters)), key=repr) == [("a", 3), (("a", "x"), 2)]


def test_what_was_emitted_stays_as_it_was() -> None:
    def mutating(left: Any, right: Any) -> Any:
        left["n"] += right["n"]
        return left

    script = [at(1, {"n": 1}), at(2, {"n": 2}), at(3, {"n": 4})]
    keyed = stream_of(*script).key_by(lambda record: 0)
    early = keyed.window(SlidingWindows(0.01, 0.005), trigger=CountTrigger(1)).reduce(mutating, name="early")
    assert sorted(record["n"] for record in run_inline(early)) == [1, 1, 3, 3, 7, 7]


@dataclass(frozen=True)
class Halves(WindowAssigner):
    """Windows of the user's own: even and odd seconds of a minute."""

    def assign(self, record: Any, timestamp: int | None, processing_time: int) -> list[TimeWindow]:
        assert timestamp is not None
        start = timestamp - timestamp % 60_000
        return [] if record[1] < 0 else [TimeWindow(start, start + 60_000)]


def test_windows_of_the_users_own() -> None:
    stream = stream_of(at(1, "a", 1), at(2, "a", -1), at(70_000, "a", 3))
    counts = stream.key_by(0).window(Halves()).process(Seen(), name="halves")
    assert run_inline(counts) == [("a", 0, 60_000, [1]), ("a", 60_000, 120_000, [3])]
    assert execute_inline(counts._env).counters["halves"] == {"unassigned": 1}


def test_delta_trigger() -> None:
    stream = stream_of(*[at(n, "a", v) for n, v in enumerate((0, 1, 5, 6, 20))])
    trigger = DeltaTrigger(3, lambda last, now: now[1] - last[1])
    fired = stream.key_by(0).window(GlobalWindows(), trigger=trigger).process(Seen(), name="fired")
    assert [row[3] for row in run_inline(fired)] == [[0, 1, 5], [0, 1, 5, 6, 20]]
    with pytest.raises(PlanError, match="does not work for windows that merge"):
        stream.key_by(0).window(SessionWindows(5), trigger=trigger)


def test_explain_shows_windows() -> None:
    stream = stream_of().key_by(0)
    stream.window(TumblingWindows(minutes=1), allowed_lateness=timedelta(seconds=5), late=LATE).aggregate(
        avg("t"), count(), name="averages"
    ).print()
    text = stream._env.explain()
    for line in (
        "    windows tumbling 60000 ms",
        "    trigger event time",
        "    late records update a window for 5000 ms after its end; later ones go to the side output 'late', and are counted",
        "    aggregates avg_t = avg(t); count = count()",
        "    contents a row for each key and slice of time, in chunks by key group",
        "    path over columns: aggregated before the exchange, by key and slices of 60000 ms",
    ):
        assert line in text.splitlines()


def test_mistakes_are_refused_when_they_are_made() -> None:
    keyed: Any = stream_of().key_by(0)
    mistakes: list[tuple[Callable[[], Any], str]] = [
        (lambda: keyed.window(TumblingWindows), "these are no windows"),
        (lambda: keyed.window(TumblingWindows(5), trigger=CountTrigger), "this is a class"),
        (lambda: keyed.window(TumblingWindows(5)).aggregate(), "nothing is not an aggregate"),
        (lambda: keyed.window(TumblingWindows(5)).aggregate(Mean), "this is a class"),
        (lambda: keyed.window(TumblingWindows(5)).aggregate(count(), Mean()), "is not an aggregate"),
        (lambda: keyed.window(TumblingWindows(5)).process(Seen), "this is a class"),
        (lambda: keyed.window(TumblingWindows(5)).process(5), "is not a WindowFunction"),
        (lambda: keyed.window(TumblingWindows(5)).apply(5), "this is not a function"),
    ]
    for mistake, message in mistakes:
        with pytest.raises(PlanError, match=message):
            mistake()


def test_watermark_lag_of_each_step() -> None:
    clock = VirtualClock(10_000)
    stream = stream_of(at(1, "a", 1), Watermark(4_000), ProcessingTime(11_000), at(5_000, "a", 2))
    stream.key_by(0).window(TumblingWindows(60)).aggregate(count(), name="counts").print(name="out")
    lags = [record.watermark_lag for record in execute_inline(stream._env, clock=clock, until=99_000).history]
    assert {"script": 6_000, "counts/partial": 6_000, "counts": 6_000, "out": 6_000} in lags
    assert lags[-1] == dict.fromkeys(("script", "counts/partial", "counts", "out"))


@pytest.mark.parametrize("cut", [None, 1])
def test_staggered_windows_begin_where_a_key_began(cut: int | None) -> None:
    script = [Record(("a", 1)), ProcessingTime(300), Record(("b", 2)), ProcessingTime(1_150), Record(("a", 3)), Record(("b", 4))]
    windows = TumblingWindows(seconds=1, time="processing", stagger="natural")
    seen = stream_of(*script, cut=cut).key_by(0).window(windows).process(Seen(), name="seen")
    assert sorted(run_inline(seen, clock=VirtualClock(200), until=9_000)) == [
        ("a", 200, 1_200, [1, 3]),
        ("b", 300, 1_300, [2, 4]),
    ]
    spread = [TumblingWindows(10, stagger="random").staggered(bytes([n]), 0) for n in range(5)]
    assert len(set(spread)) == 5
