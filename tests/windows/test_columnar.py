"""Windows over columns give what windows record by record give."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    DataStream,
    FileSink,
    FileSource,
    OutputTag,
    PenstockError,
    RestartPolicy,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
    avg,
    count,
)
from penstock import aggregates as agg
from penstock.aggregates import first, last, stddev
from penstock.compile.rewrites import rewrite
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import PlanError, UserCodeError
from penstock.runtime.operators.source import SourceStep
from penstock.testing import execute_inline, run_inline
from penstock.windows import WindowAssigner
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.merge import MergeStep
from penstock.windows.columnar.partial import PartialStep

LATE: OutputTag[Any] = OutputTag("late")


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


@dataclass
class Reading:
    k: Any
    t: int
    v: Any


@dataclass(frozen=True)
class Job:
    rows: list[tuple[Any, int, Any]]
    windows: tuple[WindowAssigner, ...]
    lateness: int
    slack: int
    every: int | None
    cut: int
    shape: str
    key: str
    parallelism: int

    def run(self, *, columnar: bool) -> Counter[str]:
        return counted(run_inline(self.results(self.environment(self.parallelism), columnar=columnar)))

    def part(self, storage: str, parallelism: int, epochs: int | None) -> Counter[str]:
        """What the next epochs give, of a job with this storage."""
        results = self.results(self.environment(parallelism), columnar=True)
        return counted(run_inline(results, storage=storage, epochs=epochs))

    def environment(self, parallelism: int) -> StreamEnvironment:
        return StreamEnvironment(
            "windows", parallelism=parallelism, max_records_per_epoch=self.cut, first_records_per_epoch=self.cut
        )

    def results(self, env: StreamEnvironment, *, columnar: bool) -> DataStream[Any]:
        makes: dict[str, Any] = {
            "dict": lambda k, t, v: {"k": k, "t": t, "v": v},
            "class": Reading,
            "tuple": lambda k, t, v: (k, t, v),
        }
        records = [makes[self.shape](*row) for row in self.rows]
        fields: tuple[Any, ...] = (0, 1, 2) if self.shape == "tuple" else ("k", "t", "v")
        timestamp: Any = (lambda r: r[1]) if self.shape == "tuple" else "t"
        watermarks: Watermarks[Any] = Watermarks.bounded(
            slack=ms(self.slack), timestamp=timestamp, every=None if self.every is None else ms(self.every)
        )
        stream = env.from_collection(records, watermarks=watermarks, name="in")
        keyed = stream.key_by(fields[0])
        if self.key == "function":
            keyed = stream.key_by(lambda r: r[0] if isinstance(r, tuple) else r["k"] if isinstance(r, dict) else r.k)
        elif self.key == "two":
            keyed = stream.key_by(fields[0], fields[1])
        outputs = []
        for number, assigner in enumerate(self.windows):
            name = f"window-{number}"
            value = fields[2]
            results = keyed.window(assigner, allowed_lateness=ms(self.lateness), late=LATE).aggregate(
                count(),
                some=count(value),
                mean=avg(value),
                spread=stddev(value),
                total=agg.sum(value),
                least=agg.min(value),
                most=agg.max(value),
                earliest=first(value),
                latest=last(value),
                columnar=columnar,
                name=name,
            )
            outputs.append(results.map(partial(marked, name)))
            outputs.append(results.side_output(LATE).map(partial(marked, f"{name} late")))
        return outputs[0].union(*outputs[1:])


def marked(name: str, row: Any) -> tuple[str, Any]:
    return name, row


def counted(found: list[Any]) -> Counter[str]:
    return Counter(repr(rounded(row)) for row in found)


def rounded(value: Any) -> Any:
    """What differs by the order of additions only is the same, and so are 1 and 1.0 (but not as a key)."""
    if isinstance(value, dict):
        return {key: item if key in ("k", "f0", "key") else rounded(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    if isinstance(value, float):
        near = float(f"{value:.9g}")
        return int(near) if near.is_integer() and abs(near) < 1e9 else f"{near:.9g}"
    return value


keys = {
    "str": st.sampled_from(["a", "b", "c", "dd"]),
    "int": st.integers(0, 5),
    "mixed": st.sampled_from(["a", 1, 1.0, True, None, "1"]),
}
values = {
    "int": st.integers(-5, 5),
    "float": st.integers(-8, 8).map(lambda n: n / 4),
    "some": st.one_of(st.none(), st.integers(-5, 5)),
    "both": st.sampled_from([1, 2.5, None, -3, 0.25]),
    "large": st.sampled_from([2**57, -(2**57), 2**53 + 1, 3]),  # their sums fit the 64 bits that state can hold
    "decimal": st.sampled_from([Decimal("1.5"), Decimal(-2), None]),
}


@st.composite
def assigners(draw: st.DrawFn) -> WindowAssigner:
    size, slide = draw(st.integers(1, 30)), draw(st.integers(1, 20))
    if draw(st.booleans()):
        return SessionWindows(ms(size))
    if draw(st.booleans()):
        return TumblingWindows(ms(size), offset=ms(draw(st.integers(1 - size, size - 1))))
    return SlidingWindows(ms(size), ms(slide), offset=ms(draw(st.integers(1 - slide, slide - 1))))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    key, value = draw(st.sampled_from(sorted(keys))), draw(st.sampled_from(sorted(values)))
    steps = draw(st.lists(st.tuples(keys[key], st.integers(-25, 8), values[value]), min_size=1, max_size=60))
    rows, now = [], draw(st.integers(-20, 20))
    for k, step, v in steps:
        rows.append((k, now + step, v))
        now += max(step, 0)
    if value == "decimal":  # squares of Decimals and floats do not mix
        rows = [(k, t, None if v is None else float(v)) for k, t, v in rows]
    return Job(
        rows=rows,
        windows=tuple(draw(st.lists(assigners(), min_size=1, max_size=2))),
        lateness=draw(st.sampled_from([0, 0, 5, 25])),
        slack=draw(st.integers(0, 15)),
        every=draw(st.sampled_from([None, 1, 4])),
        cut=draw(st.sampled_from([3, 10, 100])),
        shape=draw(st.sampled_from(["dict", "class", "tuple"])) if key != "mixed" else "tuple",
        key=draw(st.sampled_from(["field", "function", "two"])) if key != "mixed" else "field",
        parallelism=draw(st.integers(1, 3)),
    )


@given(jobs())
def test_both_paths_are_equal(job: Job) -> None:
    assert job.run(columnar=True) == job.run(columnar=False)


def test_the_path_is_the_one_asked_for() -> None:
    job = Job([("a", 1, 2)], (TumblingWindows(ms(5)), TumblingWindows(ms(15))), 0, 0, None, 10, "dict", "field", 2)
    for columnar in (True, False):
        env = StreamEnvironment("windows", executor="inline")
        job.results(env, columnar=columnar)
        made = [type(node.definition).__mro__[1] for node in rewrite(env.graph)]
        assert made.count(PartialStep) == (1 if columnar else 0), "both windows share one partial aggregation"
        assert made.count(MergeStep) == (2 if columnar else 0)


@pytest.mark.parametrize("columnar", [True, False])
def test_large_sums_are_exact(columnar: bool) -> None:
    rows = [("a", 1, 2**62), ("a", 2, 2**62), ("a", 3, -(2**62)), ("a", 4, 2**53 + 1)]
    job = Job(rows, (TumblingWindows(ms(10)),), 0, 0, None, 2, "dict", "field", 1)
    ((row, _),) = job.run(columnar=columnar).items()
    assert f"'total': {2**62 + 2**53 + 1}" in row


@pytest.mark.parametrize("assigner", [TumblingWindows(ms(100)), SessionWindows(ms(100))])
def test_changed_aggregates_are_refused(assigner: WindowAssigner) -> None:
    def job(env: StreamEnvironment, total: Aggregate) -> DataStream[Any]:
        rows = [{"k": "a", "t": 1, "v": 1}, {"k": "a", "t": 2, "v": 2}]
        stream = env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="t"), name="in")
        return stream.key_by("k").window(assigner).aggregate(total=total, name="windows")

    with tempfile.TemporaryDirectory() as storage:
        env = StreamEnvironment("windows", max_records_per_epoch=1, first_records_per_epoch=1)
        assert run_inline(job(env, agg.sum("v")), storage=storage, epochs=1) == []
        env = StreamEnvironment("windows", restart=RestartPolicy(attempts=0))
        with pytest.raises(PenstockError) as refusal:
            run_inline(job(env, agg.max("v")), storage=storage)
        assert "has changed since its state was written" in str(refusal.value)
        env = StreamEnvironment("windows")
        (row,) = run_inline(job(env, agg.sum("v")), storage=storage)
        assert row["total"] == 3


@given(jobs(), st.integers(1, 4), st.integers(1, 8))
def test_state_is_found_again_at_another_parallelism(job: Job, parallelism: int, epochs: int) -> None:
    whole = job.run(columnar=True)
    with tempfile.TemporaryDirectory() as storage:
        first = job.part(storage, job.parallelism, epochs)
        rest = job.part(storage, parallelism, None)
    assert first + rest == whole


@pytest.mark.parametrize("columnar", [True, False])
def test_windowed_results_can_be_windowed_again(columnar: bool) -> None:
    """The busiest key of each 40 ms, by its counts in windows of 10 ms."""
    rows = [{"k": "abc"[number * number % 3], "t": number} for number in range(200)]
    env = StreamEnvironment("chain", parallelism=2, max_records_per_epoch=30, first_records_per_epoch=30)
    stream = env.from_collection(rows, watermarks=Watermarks.bounded(slack=ms(5), timestamp="t"))
    small = stream.key_by("k").window(TumblingWindows(ms(10))).aggregate(n=count(), columnar=columnar, name="small")
    large = small.key_by("k").window(TumblingWindows(ms(40))).aggregate(n=agg.sum("n"), columnar=columnar, name="large")
    found = {(row["k"], row["window_start"]): row["n"] for row in run_inline(large)}
    assert found == Counter((row["k"], int(str(row["t"])) // 40 * 40) for row in rows)


def test_arithmetic_on_words_is_explained() -> None:
    env = StreamEnvironment("words", restart=RestartPolicy(attempts=0))
    stream = env.from_collection([{"k": 1, "t": 1, "v": "x"}], watermarks=Watermarks.monotonous(timestamp="t"))
    with pytest.raises(UserCodeError, match=r"step 'spread': stddev_v = stddev\(v\) cannot be computed: ValueError"):
        run_inline(stream.key_by("k").window(TumblingWindows(1)).aggregate(stddev("v"), name="spread"))


def test_staggered_windows_are_not_computed_over_columns() -> None:
    env = StreamEnvironment("staggered")
    stream = env.from_collection([{"k": 1, "t": 1}], watermarks=Watermarks.monotonous(timestamp="t"))
    stream.key_by("k").window(TumblingWindows(1, stagger="random")).aggregate(count())
    assert not any(isinstance(node.definition, PartialStep) for node in rewrite(env.graph))


def test_what_is_no_aggregate_is_refused() -> None:
    stream = StreamEnvironment("refused").from_collection([1])
    with pytest.raises(PlanError, match="neither an AggregateFunction nor a declared aggregate"):
        stream.key_by(lambda n: n).window(TumblingWindows(1)).aggregate(max)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="window needs a keyed stream"):
        stream.window(TumblingWindows(1))


def test_windows_of_all_records_make_no_python_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": range(1000), "v": [1.5] * 1000, "unused": ["x"] * 1000}), tmp_path / "in.parquet")
    monkeypatch.setattr("penstock.records.RowType.records", lambda *_: pytest.fail("a batch became records"))
    env = StreamEnvironment("all")
    stream = env.from_source(FileSource(f"{tmp_path}/in.parquet"), watermarks=Watermarks.monotonous(timestamp="t"), name="in")
    totals = stream.window_all(TumblingWindows(ms(1000))).aggregate(n=count(), total=agg.sum("v"))
    totals.sink_to(FileSink(f"{tmp_path}/out", format="parquet"))
    execute_inline(env)
    source = next(node.definition for node in rewrite(env.graph) if isinstance(node.definition, SourceStep))
    assert list(source.source.columns) == ["t", "v"], "nothing else is read"
    monkeypatch.undo()
    assert list(read_rows(f"{tmp_path}/out")) == [{"window_start": 0, "window_end": 1000, "n": 1000, "total": 1500.0}]
