"""Random programs: every kept epoch is reproduced exactly, whatever kind of step changed state; the job is not touched."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import (
    CountTrigger,
    OutputTag,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    aggregates,
    snapshots,
)
from penstock.storage import open_storage
from penstock.testing import (
    CollectSink,
    Cut,
    End,
    Record,
    ScriptedSource,
    VirtualClock,
    Watermark,
    execute_inline,
    scripted_watermarks,
)
from tests.runtime.random_programs import Interpreter, scripts

START = 1000
LATE: OutputTag[Any] = OutputTag("late")
random_settings = settings(phases=[Phase.explicit, Phase.generate])


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def replay_all(env: StreamEnvironment, storage: str) -> list[snapshots.Replay]:
    """Every kept epoch, each as it was."""
    before = contents(storage)
    replays = []
    for one in snapshots.replayable(open_storage(storage)):
        replays.append(snapshots.replay(storage, one.epoch, env=env))
        assert replays[-1].failure is None
        assert replays[-1].reproduced, (one.epoch, replays[-1].verdict)
    assert contents(storage) == before
    return replays


def run_and_replay(env: StreamEnvironment, parallelism: list[int], epochs: int | None) -> list[snapshots.Replay]:
    clock = VirtualClock(START)
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as local:
        for turn in range(500):
            result = execute_inline(
                env,
                clock=clock,
                until=100_000,
                epochs=epochs,
                storage=storage,
                local_dir=local,
                parallelism=parallelism[turn % len(parallelism)],
                keep=1000,
            )
            if result.finished:
                break
        else:
            raise AssertionError("the job does not come to an end")
        return replay_all(env, storage)


@random_settings
@given(
    script=scripts(max_size=7),
    cut=st.sampled_from([1, 3, 7]),
    parallelism=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    epochs=st.sampled_from([None, 2]),
)
def test_keyed_functions(script: list[Any], cut: int, parallelism: list[int], epochs: int | None) -> None:
    env = StreamEnvironment("random", compact_after=3)
    stream = env.from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks(), name="in")
    stream.key_by(lambda v: v[0]).process(Interpreter(), name="interpreter").sink_to(CollectSink(), name="out")
    replays = run_and_replay(env, parallelism, epochs)
    events = [event for one in replays for event in one.step("interpreter").events]
    records = [item for item in script if isinstance(item, Record)]
    assert sum(event.kind == "record" for event in events) == len(records)
    assert sum(one.step("interpreter").timers for one in replays) == sum(event.kind == "timer" for event in events)


@st.composite
def numbers(draw: Any) -> list[Any]:
    items: list[Any] = []
    time = 0
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["record"] * 5 + ["watermark", "cut"]))
        if kind == "record":
            items.append(
                Record((draw(st.sampled_from("abc")), draw(st.integers(-5, 5))), max(0, time + draw(st.integers(-30, 20))))
            )
        elif kind == "watermark":
            time += draw(st.integers(0, 25))
            items.append(Watermark(time))
        elif items and isinstance(items[-1], Record):
            items.append(Cut())
    return [*items, End()]


def ms(n: int) -> timedelta:
    return timedelta(milliseconds=n)


def doubled(batch: pa.RecordBatch) -> list[Any]:
    return [(key, 2 * n) for key, n in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def all_kinds(script: list[Any], cut: int | None) -> StreamEnvironment:
    """One step of each kind."""
    env = StreamEnvironment("kinds", compact_after=3)
    stream = env.from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks(), name="in")
    even = stream.filter(lambda v: v[1] % 2 == 0, name="even")
    many = stream.flat_map(lambda v: [v] * (abs(v[1]) % 3), name="many").rebalance()
    mapped = many.map(lambda v: (v[0], v[1] + 1), name="plus").union(even)
    keyed = mapped.key_by(0)
    keyed.sum(1, name="sums").sink_to(CollectSink(), name="out-sums")
    keyed.reduce(lambda a, b: (a[0], a[1] - b[1]), name="differences").sink_to(CollectSink(), name="out-differences")
    keyed.max_by(1, name="best").sink_to(CollectSink(), name="out-best")
    tumbling = keyed.window(TumblingWindows(milliseconds=10), allowed_lateness=ms(5), late=LATE)
    fold = tumbling.fold(0, lambda n, v: n + v[1], name="aligned")
    fold.sink_to(CollectSink(), name="out-aligned")
    fold.side_output(LATE).sink_to(CollectSink(), name="out-late")
    keyed.window(SlidingWindows(size=ms(20), slide=ms(5))).aggregate(
        aggregates.sum(1, name="sum"), aggregates.collect(1, name="all"), name="columns"
    ).sink_to(CollectSink(), name="out-columns")
    keyed.window(SessionWindows(gap=ms(8))).aggregate(aggregates.avg(1), name="session-columns").sink_to(
        CollectSink(), name="out-session-columns"
    )
    keyed.window(SessionWindows(gap=ms(8))).reduce(lambda a, b: (a[0], a[1] + b[1]), name="sessions").sink_to(
        CollectSink(), name="out-sessions"
    )
    keyed.window(TumblingWindows(milliseconds=15), trigger=CountTrigger(2)).process(
        lambda values, ctx: [(ctx.key, len(values))],  # type: ignore[arg-type]
        name="buffered",
    ).sink_to(CollectSink(), name="out-buffered")
    stream.map_batches(doubled, aligned=True, name="batches").sink_to(CollectSink(), name="out-batches")
    return env


@random_settings
@given(script=numbers(), cut=st.sampled_from([None, 2, 5]), parallelism=st.lists(st.integers(1, 3), min_size=1, max_size=2))
def test_all_kinds_of_steps(script: list[Any], cut: int | None, parallelism: list[int]) -> None:
    replays = run_and_replay(all_kinds(script, cut), parallelism, 3)
    for one in replays:
        for step in one.steps.values():
            assert len([e for e in step.events if e.kind == "record"]) == step.records_in, step.step
            if step.kind != "source script of 1 partition":
                made = sum(sum(o.tag is None for o in e.outputs) for e in step.events)
                assert made == step.records_out, step.step
