"""Random keyed programs: the engine gives what the reference gives, however it is cut, spread, stopped and rescaled."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import StreamEnvironment
from penstock.testing import (
    CollectSink,
    KeyedHarness,
    ProcessingTime,
    Record,
    ScriptedSource,
    VirtualClock,
    Watermark,
    execute_inline,
    run_reference,
    scripted_watermarks,
)
from tests.runtime.random_programs import Interpreter, scripts
from tests.state.kinds import INSTALLED

START = 1000
random_settings = settings(phases=[Phase.explicit, Phase.generate])


class Tagged(Interpreter):
    """Emits (key, value), to tell the keys apart at the sink."""

    def process(self, value: Any, ctx: Any) -> Any:
        return [(ctx.key, emitted) for emitted in super().process(value, ctx)]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return [(ctx.key, emitted) for emitted in super().on_timer(timestamp, ctx)]


def by_key(emitted: list[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in emitted:
        found[key].append(value)
    return dict(found)


def expected(script: list[Any]) -> dict[Any, list[Any]]:
    return by_key(run_reference(Interpreter(), script, key=lambda v: v[0], now=START))


def program(script: list[Any], cut: int | None, sink: CollectSink) -> StreamEnvironment:
    env = StreamEnvironment("random", compact_after=3)
    stream = env.from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks(), name="in")
    stream.key_by(lambda v: v[0]).process(Tagged(), name="interpreter").sink_to(sink, name="out")
    return env


def run(
    script: list[Any],
    cut: int | None,
    parallelism: list[int],
    epochs: int | None,
    stores: Sequence[str] = ("lmdb",),
    pipeline: int = 0,
) -> dict[Any, list[Any]]:
    """The output; with `epochs`, the job is stopped after so many and started again with the next parallelism and store."""
    sink = CollectSink()
    clock = VirtualClock(START)
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as local:
        for turn in range(500):
            result = execute_inline(
                program(script, cut, sink),
                clock=clock,
                until=100_000,
                epochs=epochs,
                storage=storage,
                local_dir=local,
                parallelism=parallelism[turn % len(parallelism)],
                state_store=stores[turn % len(stores)],
                pipeline=pipeline,
            )
            if result.finished:
                break
        else:
            raise AssertionError("the job does not come to an end")
    found = by_key(sink.results())
    sink.discard()
    return found


@random_settings
@given(script=scripts(), cut=st.sampled_from([None, 1, 2, 3, 7]), parallelism=st.integers(1, 4))
def test_the_cut_and_the_parallelism_do_not_matter(script: list[Any], cut: int | None, parallelism: int) -> None:
    assert run(script, cut, [parallelism], None) == expected(script)


@random_settings
@given(
    script=scripts(max_size=8),
    cut=st.sampled_from([1, 2, 5]),
    parallelism=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    epochs=st.integers(1, 3),
)
def test_restarts_and_rescaling_do_not_matter(script: list[Any], cut: int, parallelism: list[int], epochs: int) -> None:
    assert run(script, cut, parallelism, epochs) == expected(script)


@random_settings
@given(
    store=st.sampled_from(INSTALLED),
    script=scripts(max_size=20),
    cut=st.sampled_from([1, 2, 5]),
    parallelism=st.integers(1, 3),
    pipeline=st.sampled_from([0, 2]),
)
def test_the_store_does_not_matter(store: str, script: list[Any], cut: int, parallelism: int, pipeline: int) -> None:
    assert run(script, cut, [parallelism], None, [store], pipeline) == expected(script)


@random_settings
@given(
    stores=st.lists(st.sampled_from(INSTALLED), min_size=1, max_size=3),
    script=scripts(max_size=6),
    cut=st.sampled_from([2, 3]),  # a start opens a store for each partition: few starts, so that an example stays cheap
    parallelism=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    epochs=st.integers(1, 3),
)
def test_another_store_at_each_start_does_not_matter(
    stores: list[str], script: list[Any], cut: int, parallelism: list[int], epochs: int
) -> None:
    assert run(script, cut, parallelism, epochs, stores) == expected(script)


@random_settings
@given(
    script=scripts(),
    parallelism=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    snapshots=st.lists(st.sampled_from(["no", "snapshot", "restore"]), min_size=1, max_size=8),
)
def test_snapshots_anywhere_do_not_matter(script: list[Any], parallelism: list[int], snapshots: list[str]) -> None:
    """The same, on the harness: an epoch may end anywhere, also between a record and the watermark after it."""
    with KeyedHarness(Tagged(), key=lambda v: v[0], parallelism=parallelism[0], processing_time=START) as harness:
        now = START
        for step, item in enumerate(script):
            match item:
                case Record():
                    harness.send(item.value, item.timestamp)
                case Watermark():
                    harness.watermark(item.time)
                case ProcessingTime():
                    for moment in range(now, item.time + 1):
                        harness.processing_time(moment)
                    now = item.time
                case _:
                    harness.end()
            what = snapshots[step % len(snapshots)]
            if what != "no":
                snapshot = harness.snapshot()
                if what == "restore":
                    harness.restore(snapshot, parallelism=parallelism[step % len(parallelism)])
        found = by_key([value for value, _ in harness.take()])
    assert found == expected(script)
