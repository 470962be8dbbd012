"""`first` and `last`: by event time, of equal times by arrival; whatever the path, the cut into epochs and the parallelism."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import SessionWindows, SlidingWindows, StreamEnvironment, TumblingWindows, Watermarks, snapshots
from penstock import aggregates as agg
from penstock.aggregates import first, last
from penstock.compile.rewrites import rewrite
from penstock.ids import StepId
from penstock.testing import Cut, End, Record, ScriptedSource, Watermark, run_inline, scripted_watermarks
from penstock.windows import WindowAssigner
from penstock.windows.columnar.merge import MergeStep

Row = tuple[str, int, Any]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def program(rows: list[Row], assigner: WindowAssigner, columnar: bool, parallelism: int, cut: int, slack: int) -> Any:
    env = StreamEnvironment("ends", parallelism=parallelism, max_records_per_epoch=cut, first_records_per_epoch=cut)
    records = [{"k": k, "t": t, "v": v} for k, t, v in rows]
    stream = env.from_collection(records, watermarks=Watermarks.bounded(slack=ms(slack), timestamp="t"), name="in")
    return stream.key_by("k").window(assigner).aggregate(first("v"), last("v"), columnar=columnar, name="ends")


def naive(rows: list[Row], assigner: WindowAssigner) -> list[Row]:
    """Nothing is late."""
    kept: dict[tuple[str, tuple[int, int]], list[Row]] = {}
    for key in {k for k, _, _ in rows}:
        mine = [row for row in rows if row[0] == key]
        if isinstance(assigner, SessionWindows):
            assert assigner.gap_ms is not None
            windows: list[tuple[int, int]] = []
            for _, t, _ in sorted(mine, key=lambda row: row[1]):
                if windows and t <= windows[-1][1]:
                    windows[-1] = (windows[-1][0], t + assigner.gap_ms)
                else:
                    windows.append((t, t + assigner.gap_ms))
        else:
            windows = sorted({tuple(w) for row in mine for w in assigner.assign(row, row[1], 0)})  # type: ignore[misc]
        for window in windows:
            kept[key, window] = [row for row in mine if window[0] <= row[1] < window[1]]
    found = []
    for (key, window), mine in kept.items():
        ordered = [row[2] for row in sorted(mine, key=lambda row: row[1]) if row[2] is not None]  # stable
        found.append((key, window[0], (ordered[0], ordered[-1]) if ordered else (None, None)))
    return sorted(found, key=repr)


def shown(results: list[Any]) -> list[Row]:
    return sorted(((row["k"], row["window_start"], (row["first_v"], row["last_v"])) for row in results), key=repr)


ASSIGNERS = st.one_of(
    st.integers(2, 20).map(lambda size: TumblingWindows(ms(size))),
    st.tuples(st.integers(2, 20), st.integers(1, 9))
    .filter(lambda n: n[0] >= n[1])
    .map(lambda n: SlidingWindows(ms(n[0]), ms(n[1]))),
    st.integers(1, 6).map(lambda gap: SessionWindows(ms(gap))),
)
VALUES = {
    "numbers": st.integers(0, 99),
    "some": st.one_of(st.none(), st.integers(0, 99)),
    "words": st.text("abc", max_size=3),
    "fractions": st.integers(0, 99).map(lambda n: n / 4),
}


@st.composite
def inputs(draw: st.DrawFn) -> list[Row]:
    """Few different times: many are equal."""
    values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    return draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), values), min_size=1, max_size=30))


@given(
    rows=inputs(),
    assigner=ASSIGNERS,
    columnar=st.booleans(),
    parallelism=st.integers(1, 3),
    cut=st.sampled_from([1, 3, 100]),
)
def test_against_a_naive_reference(rows: list[Row], assigner: WindowAssigner, columnar: bool, parallelism: int, cut: int) -> None:
    assert shown(run_inline(program(rows, assigner, columnar, parallelism, cut, slack=20))) == naive(rows, assigner)


@given(rows=inputs(), assigner=ASSIGNERS, parallelisms=st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_stopped_and_started_at_another_parallelism(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], assigner: WindowAssigner, parallelisms: list[int]
) -> None:
    storage = str(tmp_path_factory.mktemp("job"))
    found = []
    for epochs, parallelism in zip((2, 2, None), parallelisms, strict=True):
        found += run_inline(program(rows, assigner, True, parallelism, 4, slack=20), storage=storage, epochs=epochs)
    assert shown(found) == naive(rows, assigner)


@pytest.mark.parametrize("columnar", [True, False])
@pytest.mark.parametrize("assigner", [TumblingWindows(ms(100)), SessionWindows(ms(50))])
def test_a_large_epoch_after_small_ones(assigner: WindowAssigner, columnar: bool) -> None:
    """Chunks of several sizes: the order of arrival is not that of their levels."""
    sizes = [1, 1, 40, 1, 300, 2, 1]
    script: list[Any] = []
    number = 0
    for size in sizes:
        for _ in range(size):
            key = f"k{number % max(1, size // 2)}"
            script.append(Record({"k": key, "v": number}, 7))
            number += 1
        script.append(Cut())
    env = StreamEnvironment("levels", parallelism=1)
    stream = env.from_source(ScriptedSource([*script, Watermark(1000)]), watermarks=scripted_watermarks())
    found = run_inline(stream.key_by("k").window(assigner).aggregate(first("v"), last("v"), columnar=columnar))
    expected: dict[str, list[int]] = {}
    for record in script:
        if isinstance(record, Record):
            expected.setdefault(record.value["k"], []).append(record.value["v"])
    assert {row["k"]: (row["first_v"], row["last_v"]) for row in found} == {k: (v[0], v[-1]) for k, v in expected.items()}


def test_late_updates() -> None:
    """A record within the allowed lateness may be the new first, or come too late to be the last."""
    rows = [Record({"k": "a", "v": 1}, 3), Record({"k": "a", "v": 2}, 8), Watermark(12), Record({"k": "a", "v": 3}, 8)]
    rows += [Record({"k": "a", "v": 4}, 1), Record({"k": "a", "v": 5}, 2)]
    for columnar in (True, False):
        env = StreamEnvironment("late", parallelism=1)
        stream = env.from_source(ScriptedSource(rows), watermarks=scripted_watermarks())
        windows = stream.key_by("k").window(TumblingWindows(ms(10)), allowed_lateness=ms(100))
        found = run_inline(windows.aggregate(first("v"), last("v"), columnar=columnar))
        assert [(row["first_v"], row["last_v"]) for row in found] == [(1, 2), (1, 3), (4, 3), (4, 3)]


def test_they_are_computed_over_columns_where_that_is_possible() -> None:
    stream = program([("a", 1, 2)], TumblingWindows(ms(5)), True, 1, 10, 0)
    node = rewrite(stream._env.graph).nodes[StepId("ends")]
    assert isinstance(node.definition, MergeStep)


def test_records_without_times_go_by_arrival() -> None:
    stream = StreamEnvironment("plain", parallelism=1).from_collection([("a", 3), ("a", 1), ("a", 2)])
    (row,) = run_inline(stream.key_by(0).count_window(3).aggregate(first(1), last(1)))
    assert (row["first_f1"], row["last_f1"]) == (3, 2)


@pytest.mark.parametrize("columnar", [True, False])
def test_whole_records(columnar: bool) -> None:
    """Of a record itself there is no column: it is not taken for a number of records."""
    env = StreamEnvironment("whole", parallelism=1)
    stream = env.from_source(ScriptedSource([Record(5, 2), Record(7, 1), End()]), watermarks=scripted_watermarks())
    windows = stream.window_all(TumblingWindows(ms(10)))
    (row,) = run_inline(windows.aggregate(first(), last(), total=agg.sum(), most=agg.max(), columnar=columnar))
    assert (row["first"], row["last"], row["total"], row["most"]) == (7, 5, 12, 7)


def test_state_can_be_read(tmp_path: Path) -> None:
    rows = [Record({"k": "a", "v": 10}, 1), Cut(), Record({"k": "a", "v": 11}, 1), Record({"k": "b", "v": 12}, 2)]
    for name, assigner in (("slices", TumblingWindows(ms(100))), ("session runs", SessionWindows(ms(50)))):
        env = StreamEnvironment("ends", parallelism=1)
        stream = env.from_source(ScriptedSource(rows), watermarks=scripted_watermarks(), name="in")
        storage = str(tmp_path / name)
        assert (
            run_inline(stream.key_by("k").window(assigner).aggregate(first("v"), last("v"), name="ends"), storage=storage) == []
        )
        differences = snapshots.diff(f"{storage}@2", storage)
        (changed,) = [one for one in differences.states if one.name == name]
        after = {change.entry["key"]: change.after for change in changed.examples}
        assert after == {"a": {"first('v')": 10, "last('v')": 11}, "b": {"first('v')": 12, "last('v')": 12}}
