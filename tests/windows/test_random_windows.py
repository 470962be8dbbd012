"""Random streams, windows, triggers and cuts into epochs, against a reference that recomputes everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    CountTrigger,
    DataStream,
    EventTimeTrigger,
    GlobalWindows,
    KeyedStream,
    OutputTag,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    Watermarks,
    WindowedStream,
    WindowFunction,
    count,
)
from penstock import aggregates as agg
from penstock.aggregates import collect, first, last
from penstock.testing import End, ScriptedSource, WindowHarness, run_inline
from penstock.windows import ContinuousEventTimeTrigger, CountEvictor, PurgingTrigger, TimeEvictor, Trigger, WindowAssigner
from tests.windows.naive import END, Case, Naive

LATE: OutputTag[Any] = OutputTag("late")


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def assigner_of(case: Case) -> WindowAssigner:
    kind, *numbers = case.windows
    time: Any = case.time
    if kind == "global":
        return GlobalWindows()
    if kind == "session":
        return SessionWindows(ms(numbers[0]), time=time)
    size, slide, offset = numbers
    if size == slide:
        return TumblingWindows(ms(size), offset=ms(offset), time=time)
    return SlidingWindows(ms(size), ms(slide), offset=ms(offset), time=time)


def trigger_of(case: Case) -> Trigger | None:
    what, number, purging = case.trigger
    trigger: Trigger
    if what == "default":
        if not purging:
            return None
        trigger = assigner_of(case).default_trigger()
    elif what == "count":
        trigger = CountTrigger(number)
    elif what == "continuous":
        trigger = ContinuousEventTimeTrigger(ms(number))
    else:
        trigger = EventTimeTrigger(early=CountTrigger(number))
    return PurgingTrigger(trigger) if purging else trigger


def evictor_of(case: Case) -> Any:
    if case.evictor is None:
        return None
    what, number, after = case.evictor
    return CountEvictor(number, after) if what == "count" else TimeEvictor(ms(number), after)


class Shown(WindowFunction[str, Any, Any]):
    """Shows key, window and result."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole

    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        result = [value[1] for value in values] if self.whole else values[0]
        yield (ctx.key, *ctx.window, result)


def reduced(windowed: WindowedStream[Any, Any]) -> DataStream[Any]:
    """Associative, as it must be where windows merge, and dependent on the order."""
    return windowed.reduce(lambda a, b: (a[0], f"{a[1]}{b[1]}", a[2]), process=Picked())


class Picked(WindowFunction[str, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield (ctx.key, *ctx.window, str(values[0][1]))


class FromRow(WindowFunction[str, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        row = values[0]
        yield (ctx.key, *ctx.window, (row["count"], row["total"], row["all"], row["earliest"], row["latest"]))


def joined(values: list[Any]) -> str:
    return "".join(str(number) for _, number, _ in values)


def plainly_declared(values: list[Any]) -> Any:
    """`min` and `max` take the first of equals, and the last is the first from behind."""
    numbers, times = [value[1] for value in values], [value[2] for value in values]
    earliest, latest = times.index(min(times)), len(times) - 1 - times[::-1].index(max(times))
    return len(values), sum(numbers), numbers, numbers[earliest], numbers[latest]


Compute = tuple[Callable[[Any], DataStream[Any]], Callable[[list[Any]], Any]]

COMPUTES: dict[str, Compute] = {
    "process": (lambda w: w.process(Shown(True)), lambda values: [value[1] for value in values]),
    "reduce": (reduced, joined),
    "fold": (
        lambda w: w.fold([], lambda held, value: [*held, value[1]], process=Shown(False)),
        lambda values: [value[1] for value in values],
    ),
    "declared": (
        lambda w: w.aggregate(
            count(), total=agg.sum(1), all=collect(1), earliest=first(1), latest=last(lambda record: record[1]), process=FromRow()
        ),
        plainly_declared,
    ),
}


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = ("tumbling", "sliding", "session", "global")) -> Case:
    kind = draw(st.sampled_from(kinds))
    time = "event" if kind == "global" else draw(st.sampled_from(("event", "event", "event", "processing")))
    windows: tuple[Any, ...]
    if kind == "tumbling":
        size = draw(st.integers(1, 12))
        windows = ("tumbling", size, size, draw(st.integers(1 - size, size - 1)))
    elif kind == "sliding":
        slide = draw(st.integers(1, 6))
        windows = ("sliding", draw(st.integers(1, 15)), slide, draw(st.integers(1 - slide, slide - 1)))
    else:
        windows = ("session", draw(st.integers(1, 6))) if kind == "session" else ("global",)
    whats = ("default", "default", "count", "continuous", "early") if time == "event" else ("default", "count")
    if kind == "global":
        whats = ("count", "early")
    trigger = (draw(st.sampled_from(whats)), draw(st.integers(1, 4)), draw(st.booleans()))
    evictors = st.tuples(st.sampled_from(("count", "time")), st.integers(1, 4), st.booleans())
    evictor = draw(st.one_of(st.none(), st.none(), evictors))
    lateness = draw(st.sampled_from((0, 0, 1, 3, 10))) if time == "event" else 0
    return Case(windows, time, trigger, evictor, lateness)


Event = tuple[Any, ...]


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Records out of order in batches, watermarks, the clock, snapshots and restores."""
    events: list[Event] = []
    watermark, clock = 0, 0
    for _ in range(draw(st.integers(1, 12))):
        what = draw(st.sampled_from(("records", "records", "records", "watermark", "clock", "snapshot", "restore")))
        if what == "records":
            records = st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(-8, 12))
            events.append(("records", [(k, v, watermark + d) for k, v, d in draw(st.lists(records, min_size=1, max_size=6))]))
        elif what == "watermark":
            watermark += draw(st.integers(0, 8))
            events.append(("watermark", watermark))
        elif what == "clock":
            clock += draw(st.integers(0, 8))
            events.append(("clock", clock))
        elif what == "snapshot":
            events.append(("snapshot",))
        else:
            events.append(("restore", draw(st.sampled_from((1, 1, 2, 3)))))
    return events


Outcome = tuple[list[Any], list[Any]]


def naively(case: Case, compute: Callable[[list[Any]], Any], events: list[Event]) -> Outcome:
    naive = Naive(case, compute)
    out = []
    for event in [*events, ("watermark", END)]:
        if event[0] == "records":
            for key, value, time in event[1]:
                naive.record(key, (key, value, time), time)
        elif event[0] == "watermark":
            naive.to_watermark(event[1])
        elif event[0] == "clock":
            naive.to_clock(event[1])
        out.append(sorted(naive.out, key=repr))
        naive.out = []
    return out, naive.late


def really(case: Case, compute: Callable[[Any], DataStream[Any]], events: list[Event]) -> Outcome:
    def windows(stream: KeyedStream[Any, Any]) -> DataStream[Any]:
        return compute(
            stream.window(
                assigner_of(case),
                trigger=trigger_of(case),
                evictor=evictor_of(case),
                allowed_lateness=ms(case.lateness),
                late=LATE,
            )
        )

    out, late = [], []
    with WindowHarness(windows, key=lambda value: value[0]) as harness:
        for event in [*events, ("watermark", END)]:
            if event[0] == "records":
                harness.send_all([((key, value, time), time) for key, value, time in event[1]])
            elif event[0] == "watermark":
                harness.watermark(event[1])
            elif event[0] == "clock":
                harness.processing_time(event[1])
            elif event[0] == "snapshot":
                harness.snapshot()
            else:
                harness.restore(harness.snapshot(), parallelism=event[1])
            out.append(sorted(harness.take(), key=repr))
            late += harness.side(LATE)
    return out, late


def check(case: Case, compute: str, events: list[Event]) -> None:
    engine, plainly = COMPUTES[compute]
    wanted, wanted_late = naively(case, plainly, events)
    found, found_late = really(case, engine, events)
    assert found == wanted
    assert sorted(found_late, key=repr) == sorted(wanted_late, key=repr)


@pytest.mark.parametrize("compute", sorted(COMPUTES))
@given(case=cases(("tumbling", "sliding")), events=streams())
def test_aligned_windows(compute: str, case: Case, events: list[Event]) -> None:
    check(case, compute, events)


@pytest.mark.parametrize("compute", sorted(COMPUTES))
@given(case=cases(("session", "session", "global")), events=streams())
def test_sessions_and_global_windows(compute: str, case: Case, events: list[Event]) -> None:
    check(case, compute, events)


# --- the cut into epochs ---------------------------------------------------------------------------------------------------


@st.composite
def in_time(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Records at most 5 ms out of order."""
    steps = st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 4), st.integers(0, 5))
    records, time = [], 0
    for key, value, step, behind in draw(st.lists(steps, min_size=1, max_size=25)):
        time += step
        records.append((key, value, time - behind))
    return records


def outcome(case: Case, records: list[tuple[str, int, int]], cut: int | None, parallelism: int) -> list[Any]:
    env = StreamEnvironment("cuts", parallelism=parallelism)
    watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(5), timestamp=lambda record: record[2], every=ms(1))
    stream = env.from_source(ScriptedSource([*records, End()], cut=cut), watermarks=watermarks)
    windowed = stream.key_by(0).window(assigner_of(case), trigger=trigger_of(case), allowed_lateness=ms(case.lateness), late=LATE)
    results = windowed.process(Counted(), name="windows")
    late = results.side_output(LATE).map(lambda record: ("late", record))
    return sorted(run_inline(results.union(late)), key=repr)


class Counted(WindowFunction[str, Any, Any]):
    """Every firing, with the number of the key's firings so far."""

    firings: ValueState[int] = ValueState(int, 0)

    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        self.firings.update(self.firings.value + 1)
        yield (ctx.key, *ctx.window, [value for _, value, _ in values], self.firings.value)


@given(case=cases(), records=in_time(), cuts=st.lists(st.integers(1, 6), min_size=1, max_size=2))
def test_results_do_not_depend_on_the_cut(case: Case, records: list[tuple[str, int, int]], cuts: list[int]) -> None:
    case = replace(case, time="event", evictor=None)
    if case.trigger[0] == "default" and case.windows[0] == "global":
        return
    whole = outcome(case, records, None, 1)
    assert not [result for result in whole if result[0] == "late"]
    for cut in cuts:
        assert outcome(case, records, cut, 2) == whole
