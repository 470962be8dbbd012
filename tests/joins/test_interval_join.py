"""Interval joins: both paths against double loops, whatever the cut, the parallelism, and where the job goes on."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import DataStream, OutputTag, PenstockError, ProcessFunction, RestartPolicy, StreamEnvironment, Watermarks
from penstock.errors import PlanError
from penstock.joins import JoinContext, ProcessJoinFunction
from penstock.testing import run_inline
from tests.joins.naive import Interval, in_order, ms, sides

LATE: tuple[OutputTag[Any], OutputTag[Any]] = (OutputTag("late left"), OutputTag("late right"))


class WithTime(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (*value, ctx.timestamp)


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process(self, left: Any, right: Any, ctx: JoinContext) -> Iterator[Any]:
        yield left, right


@dataclass(frozen=True)
class Job:
    left: list[dict[str, Any]]
    right: list[dict[str, Any]]
    join: Interval
    slack: int
    cut: int
    parallelism: int
    key: str

    def results(self, *, columnar: bool, parallelism: int | None = None) -> DataStream[Any]:
        """(left, right, time) of each result; ("late", side, row) of each late record."""
        env = StreamEnvironment(
            "joins", parallelism=parallelism or self.parallelism, max_records_per_epoch=self.cut, first_records_per_epoch=self.cut
        )
        watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(self.slack), timestamp="t")
        streams = [
            env.from_collection(rows, watermarks=watermarks, name=name)
            for rows, name in ((self.left, "left"), (self.right, "right"))
        ]
        left, right = (s.key_by("k") if self.key == "field" else s.key_by(lambda row: row["k"]) for s in streams)
        joined: Any = (
            left.interval_join(right).between(ms(self.join.lower), ms(self.join.upper)).late(left=LATE[0], right=LATE[1])
        )
        if self.join.how != "inner":
            joined = getattr(joined, self.join.how)()
        pairs: DataStream[Any]
        if columnar:
            columns = [{name: f"{side}{name}" for name in "ktv"} for side in "lr"]
            made = joined.select(left=columns[0], right=columns[1], name="join")
            pairs = made.map(taken_apart)
        else:
            made = joined.process(Pairs(), name="join")
            pairs = made
        late = [made.side_output(tag).map(lambda row, side=side: ("late", side, row)) for side, tag in enumerate(LATE)]
        timed: DataStream[Any] = pairs.process(WithTime())
        return timed.union(*late)

    def expected(self) -> Counter[str]:
        found, late = self.join.results(in_order(self.left, self.right, self.slack))
        return counted([*found, *(("late", side, row) for side, rows in enumerate(late) for row in rows)])


def taken_apart(row: dict[str, Any]) -> tuple[Any, Any]:
    left, right = ({name: row[f"{side}{name}"] for name in "ktv"} for side in "lr")
    return (None if left["k"] is None else left), (None if right["k"] is None else right)


def counted(found: list[Any]) -> Counter[str]:
    return Counter(map(repr, found))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    lower = draw(st.integers(-12, 12))
    return Job(
        left=draw(sides()),
        right=draw(sides()),
        join=Interval(lower, lower + draw(st.integers(0, 15)), draw(st.sampled_from(["inner", "left", "right", "full"]))),
        slack=draw(st.integers(0, 12)),
        cut=draw(st.sampled_from([3, 10, 100])),
        parallelism=draw(st.integers(1, 3)),
        key=draw(st.sampled_from(["field", "function"])),
    )


@given(jobs(), st.booleans(), st.none() | st.tuples(st.integers(1, 4), st.integers(1, 3)))
def test_results_are_those_of_double_loops(job: Job, columnar: bool, going_on: tuple[int, int] | None) -> None:
    """`going_on`: after so many epochs, at this parallelism."""
    if going_on is None:
        assert counted(run_inline(job.results(columnar=columnar))) == job.expected()
        return
    epochs, parallelism = going_on
    with tempfile.TemporaryDirectory() as storage:
        first = run_inline(job.results(columnar=columnar), storage=storage, epochs=epochs)
        rest = run_inline(job.results(columnar=columnar, parallelism=parallelism), storage=storage)
    assert counted([*first, *rest]) == job.expected()


def stream(env: StreamEnvironment, rows: list[dict[str, Any]], name: str) -> DataStream[Any]:
    return env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="t"), name=name)


ROWS = [{"k": key, "t": time, "v": key * 10 + time} for time in range(12) for key in range(4)]


@given(jobs())
def test_both_paths_give_the_same_in_the_same_order(job: Job) -> None:
    alone = Job(job.left, job.right, job.join, job.slack, job.cut, 1, "field")
    paths = [
        [found for found in run_inline(alone.results(columnar=columnar)) if found[0] != "late"] for columnar in (True, False)
    ]
    assert paths[0] == paths[1]


def test_without_names_all_columns_are_selected_and_a_common_key_once() -> None:
    env = StreamEnvironment("joins")
    left = stream(env, [{"k": 1, "t": 5, "a": 7}], "left")
    right = env.from_collection(
        [{"k": 1, "b": 8, "u": 6}, {"k": 2, "b": 9, "u": 9}], watermarks=Watermarks.monotonous(timestamp="u"), name="right"
    )
    for columnar in (True, False):
        joined = left.key_by("k").interval_join(right.key_by("k")).between(-1, 1).full().select(columnar=columnar)
        assert sorted(run_inline(joined), key=lambda row: row["k"]) == [
            {"k": 1, "t": 5, "a": 7, "b": 8, "u": 6},
            {"k": 2, "t": None, "a": None, "b": 9, "u": 9},
        ]


def test_columns_of_one_name_are_refused() -> None:
    env = StreamEnvironment("joins")
    left, right = stream(env, ROWS, "left").key_by("k"), stream(env, ROWS, "right").key_by("k")
    with pytest.raises(PlanError, match="both sides of the join have a column 't'"):
        left.interval_join(right).between(-1, 1).select()
    with pytest.raises(PlanError, match="the right records have no column 'price'"):
        left.interval_join(right).between(-1, 1).select(left=["v"], right=["price"])


def test_what_cannot_be_joined_is_refused() -> None:
    env = StreamEnvironment("joins")
    left, right = stream(env, ROWS, "left"), stream(env, ROWS, "right")
    with pytest.raises(PlanError, match="the other stream is not keyed"):
        left.key_by("k").interval_join(right)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="without bounds"):
        left.key_by("k").interval_join(right.key_by("k")).select(left=["v"])
    with pytest.raises(PlanError, match="the lower bound is above the upper one"):
        left.key_by("k").interval_join(right.key_by("k")).between(2, 1)
    with pytest.raises(PlanError, match="has keys of another type"):
        left.key_by("k", key_type=int).interval_join(right.key_by("k")).between(-1, 1).select(left=["v"])


@pytest.mark.parametrize("columnar", [True, False])
def test_changed_bounds_are_refused(columnar: bool) -> None:
    def job(env: StreamEnvironment, upper: int) -> DataStream[Any]:
        left, right = stream(env, ROWS, "left").key_by("k"), stream(env, ROWS, "right").key_by("k")
        near = left.interval_join(right).between(0, ms(upper))
        return near.select(left=["v"], right={"v": "w"}, columnar=columnar, name="join")

    with tempfile.TemporaryDirectory() as storage:
        env = StreamEnvironment("joins", max_records_per_epoch=10, first_records_per_epoch=10)
        run_inline(job(env, 5), storage=storage, epochs=2)
        env = StreamEnvironment("joins", restart=RestartPolicy(attempts=0))
        with pytest.raises(PenstockError, match="has changed since its state was written"):
            run_inline(job(env, 6), storage=storage)


def test_explain_says_which_path_is_taken() -> None:
    env = StreamEnvironment("joins", executor="inline")
    left, right = stream(env, ROWS, "left").key_by("k"), stream(env, ROWS, "right").key_by("k")
    near = left.interval_join(right).between(-1, 1)
    near.select(left=["v"], right={"v": "w"}, name="fast").print()
    near.apply(lambda a, b: (a, b), name="slow").print()
    text = env.explain()
    assert "path over columns: matched in bulk, by key and time" in text
    assert "path record by record, not over columns: a function sees the records" in text
    assert "join inner, right.time - left.time from -1000 to 1000 ms" in text


def test_how_much_is_kept_is_counted() -> None:
    env = StreamEnvironment("joins", executor="inline", parallelism=1)
    left, right = stream(env, ROWS, "left").key_by("k"), stream(env, ROWS, "right").key_by("k")
    left.interval_join(right).between(-1, 1).select(left=["v"], right={"v": "w"}, name="join").print()
    result = env.execute(max_records_per_epoch=20, first_records_per_epoch=20)
    assert result.counters["join"]["rows_left"] > 0
