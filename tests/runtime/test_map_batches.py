"""map_batches: whatever a function does with rows, each keeps the timestamp of the row it came from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSource, ProcessFunction, RestartPolicy, StreamEnvironment, Watermarks
from penstock.errors import ConfigError, PlanError, ReturnedValueError, UserCodeError
from penstock.testing import End, Record, ScriptedSource, run_inline, scripted_watermarks

pd = pytest.importorskip("pandas")

TIMES = [50, 10, 30, 40, 20, 60]
ROWS = [{"n": n, "k": "ab"[n % 2], "tags": list(range(n % 3))} for n in (5, 3, 1, 4, 2, 0)]
TIME_OF = {row["n"]: time for row, time in zip(ROWS, TIMES, strict=True)}


class Stamped(ProcessFunction[Any, Any]):
    """Each record with its timestamp."""

    def process(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp_ms


def timed(cut: int | None = None, parallelism: int = 1, rows: list[Any] | None = None, times: list[int] | None = None) -> Any:
    env = StreamEnvironment("batches", parallelism=parallelism)
    rows, times = ROWS if rows is None else rows, TIMES if times is None else times
    script = [Record(row, time) for row, time in zip(rows, times, strict=True)]
    return env.from_source(ScriptedSource([*script, End()], cut=cut), watermarks=scripted_watermarks(), name="in")


def stamped(function: Callable[[Any], Any], **options: Any) -> list[tuple[Any, int]]:
    return run_inline(timed().map_batches(function, name="step", **options).process(Stamped()))


PANDAS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda d: d[d["n"] > 3],
    "sort": lambda d: d.sort_values("n"),
    "sort and select": lambda d: d.sort_values("n")[["n"]],
    "reversed": lambda d: d.iloc[::-1],
    "concat": lambda d: pd.concat([d[d["n"] > 2], d]),
    "explode": lambda d: d.explode("tags"),
    "explode and reset": lambda d: d.explode("tags").reset_index(),
    "reset": lambda d: d.sort_values("n").reset_index(),
    "sample": lambda d: d.sample(frac=2.0, replace=True, random_state=1),
    "first of each": lambda d: d.groupby("k").head(1),
    "applied to groups": lambda d: d.groupby("k")[["n"]].apply(lambda group: group.nlargest(2, "n")),
    "a new frame of series": lambda d: pd.DataFrame({"n": d["n"], "twice": d["n"] * 2}).sort_values("twice"),
    "a new frame with the index": lambda d: pd.DataFrame({"n": d["n"].to_numpy()}, index=d.index),
    "rename": lambda d: d.rename(columns={"k": "key"}).query("n > 1"),
    "drop duplicates": lambda d: d.drop_duplicates("k", keep="last"),
    "as a table": lambda d: pa.Table.from_pandas(d.sort_values("n")),
    "label slice": lambda d: d.loc[1:4],
    "by label": lambda d: d[d.index > 2],
    "joined": lambda d: d.join(pd.DataFrame({"other": range(6)})).sort_values("other", ascending=False),
}

ARROW: dict[str, Callable[[Any], Any]] = {
    "filter": lambda b: b.filter(pc.greater(b["n"], 3)),
    "sort": lambda b: b.sort_by("n"),
    "slice": lambda b: b.slice(2, 3),
    "take": lambda b: b.take(pa.array([3, 3, 0])),
    "concat": lambda b: pa.concat_tables([pa.Table.from_batches([b]), pa.Table.from_batches([b.slice(1, 2)])]),
    "several chunks": lambda b: pa.Table.from_batches([b.slice(3, 3), b.slice(0, 2)]),
    "append": lambda b: b.append_column("twice", pc.multiply(b["n"], 2)).sort_by("twice"),
    "untouched column": lambda b: pa.record_batch({"n": b["n"], "twice": pc.multiply(b["n"], 2)}),
    "untouched column of a table": lambda b: pa.Table.from_batches([b]).select(["k", "n"]).append_column("x", [b["n"]]),
    "join": lambda b: pa.Table.from_batches([b.drop_columns(["tags"])]).join(
        pa.table({"k": ["a"], "z": [1]}), "k", join_type="inner"
    ),
    "through python": lambda b: pa.RecordBatch.from_pylist(sorted(b.to_pylist(), key=lambda row: row["n"])),
    "dicts": lambda b: [row for row in reversed(b.to_pylist()) if row["n"] > 1],
    "through pandas": lambda b: b.to_pandas().sort_values("n").reset_index(drop=True),
    "nothing": lambda b: None,
    "no rows": lambda b: pa.record_batch({"n": pa.array([], pa.int64())}),
}


def check(found: list[tuple[Any, int]]) -> None:
    assert [time for _, time in found] == [TIME_OF[row["n"]] for row, _ in found]
    assert not any(name.startswith("_penstock") for row, _ in found for name in row)


@pytest.mark.parametrize("name", PANDAS)
def test_a_row_of_a_frame_keeps_its_time(name: str) -> None:
    found = stamped(PANDAS[name], format="pandas")
    assert found
    check(found)


@pytest.mark.parametrize("name", ARROW)
def test_a_row_of_a_batch_keeps_its_time(name: str) -> None:
    found = stamped(ARROW[name])
    assert bool(found) == (name not in ("nothing", "no rows"))
    check(found)


LOST: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "reset and dropped": ("pandas", lambda d: d.sort_values("n").reset_index(drop=True)),
    "ignore_index": ("pandas", lambda d: d.sort_values("n", ignore_index=True)),
    "merge": ("pandas", lambda d: d.merge(pd.DataFrame({"k": ["b", "a"]}))),
    "group": ("pandas", lambda d: d.groupby("k", as_index=False)[["n"]].sum()),
    "group by number": ("pandas", lambda d: d.groupby(np.arange(len(d)) // 2)[["n"]].sum()),
    "a new frame": ("pandas", lambda d: pd.DataFrame({"n": sorted(d["n"])})),
    "another index": ("pandas", lambda d: d.set_axis(range(len(d)))),
    "a row more": ("pandas", lambda d: pd.concat([d, pd.DataFrame({"n": [7]}, index=[3])])),
    "a plain list": ("pandas", lambda d: d["n"].tolist()),
    "select": ("arrow", lambda b: b.sort_by("n").select(["n"])),
    "fresh arrays": ("arrow", lambda b: pa.record_batch({"n": pc.multiply(b["n"], 2)})),
    "grouped": ("arrow", lambda b: pa.Table.from_batches([b]).group_by("k").aggregate([("n", "sum")])),
    "null marks": (
        "arrow",
        lambda b: pa.concat_tables([pa.Table.from_batches([b]), pa.table({"n": [1]})], promote_options="default"),
    ),
    "values": ("arrow", lambda b: b["n"].to_pylist()),
}


@pytest.mark.parametrize("name", LOST)
def test_rows_of_which_nothing_is_known_are_refused(name: str) -> None:
    format, function = LOST[name]
    with pytest.raises(UserCodeError) as caught:
        stamped(function, format=format)
    text = str(caught.value)
    assert text.startswith("step 'step': the timestamps of the rows that the function returned are not known: ")
    assert re.search(r"function: \S+ \(\S*test_map_batches.py:\d+\)", text)
    assert "rows given: 6; returned: " in text
    assert all(part in text for part in ("timestamp=", "aligned=True", "index" if format == "pandas" else "_penstock_row"))


def test_rows_of_which_nothing_is_known_are_not_tried_again_and_again() -> None:
    calls = []

    def anew(frame: Any) -> Any:
        calls.append(len(frame))
        return pd.DataFrame({"n": [1]})

    policy = RestartPolicy(attempts=5, first_delay=timedelta(0))
    env = StreamEnvironment("batches", executor="inline", parallelism=1, restart=policy)
    stream = env.from_collection([{"n": 1, "at": 0}], watermarks=Watermarks.monotonous(timestamp="at"))
    with pytest.raises(UserCodeError, match="are not known"):
        stream.map_batches(anew, format="pandas").execute_and_collect()
    assert calls == [1, 1]


@pytest.mark.parametrize("format", ["arrow", "pandas"])
@pytest.mark.parametrize("give", [lambda batch: iter([batch]), lambda batch: [batch, batch]], ids=["yielded", "listed"])
def test_batches_in_place_of_rows_are_refused(give: Any, format: Any) -> None:
    env = StreamEnvironment("batches", executor="inline", parallelism=1, restart=RestartPolicy(attempts=0))
    stream: Any = env.from_collection([{"n": 1}, {"n": 2}]).map_batches(give, format=format)
    with pytest.raises(ReturnedValueError, match="several batches of rows, where one is returned"):
        stream.execute_and_collect()


def test_rows_kept_from_an_earlier_batch_are_not_taken_for_this_ones() -> None:
    kept: list[Any] = []

    def delayed(batch: Any) -> Any:
        kept.append(batch)
        return kept[-2] if len(kept) > 1 else None

    for format in ("arrow", "pandas"):
        kept.clear()
        with pytest.raises(UserCodeError, match="timestamps of the rows that the function returned are not known"):
            run_inline(timed(cut=2).map_batches(delayed, format=format, name="step"))


def test_the_index_cannot_be_computed_with() -> None:
    with pytest.raises(UserCodeError, match="TypeError") as caught:
        stamped(lambda d: d.groupby(d.index // 2)[["n"]].sum(), format="pandas")
    assert "the index says which row a row came from" in str(caught.value)
    with pytest.raises(UserCodeError, match="no kernel") as caught:
        stamped(
            lambda b: pa.RecordBatch.from_arrays([pc.add(column, 1) for column in b.columns[:1] + b.columns[-1:]], ["n", "x"])
        )
    assert "the last column, '_penstock_row', says which row" in str(caught.value)


def test_a_frame_behaves_as_usual() -> None:
    def work(frame: Any) -> Any:
        assert list(frame.columns) == ["n", "k", "tags"]
        assert frame[["n"]].sum().tolist() == [15]
        assert (frame.loc[2, "n"], frame.iloc[0]["n"]) == (1, 5)
        frame["series"] = pd.Series(range(len(frame)))  # by label
        frame["array"] = np.arange(len(frame))
        frame.loc[frame["n"] > 3, "large"] = True
        return frame

    found = stamped(work, format="pandas")
    check(found)
    assert [row["series"] for row, _ in found] == [row["array"] for row, _ in found] == list(range(6))


def test_a_promise_that_rows_are_aligned() -> None:
    seen: list[list[str]] = []

    def twice(batch: Any) -> Any:
        seen.append(batch.schema.names)
        return pa.record_batch({"twice": pc.multiply(batch["n"], 2)})

    assert stamped(twice, aligned=True) == [({"twice": 2 * row["n"]}, time) for row, time in zip(ROWS, TIMES, strict=True)]
    assert seen == [["n", "k", "tags"]]
    assert stamped(lambda b: b["n"].to_pylist(), aligned=True)[0] == (5, 50)
    assert stamped(lambda d: pd.DataFrame({"m": d["n"].to_numpy()}), format="pandas", aligned=True)[0] == ({"m": 5}, 50)
    with pytest.raises(UserCodeError, match="aligned=True promises a row for each row") as caught:
        stamped(lambda b: b.slice(0, 2), aligned=True)
    assert "rows given: 6; returned: 2" in str(caught.value)


def test_times_from_a_column() -> None:
    def hours(batch: Any) -> Any:
        return pa.record_batch({"k": ["a", "b"], "at": [7, 9]})

    assert stamped(hours, timestamp="at") == [({"k": "a", "at": 7}, 7), ({"k": "b", "at": 9}, 9)]
    assert [time for _, time in stamped(hours, timestamp="at", unit="s")] == [7000, 9000]
    assert [time for _, time in stamped(lambda b: [{"at": 3}], timestamp="at")] == [3]
    summed = stamped(lambda d: d.groupby("k", as_index=False)["n"].agg(n="sum", at="max"), format="pandas", timestamp="at")
    assert sorted(time for _, time in summed) == [4, 5]
    with pytest.raises(UserCodeError, match="assigning timestamps") as caught:
        stamped(hours, timestamp="when")
    assert "timestamp: 'when', unit 'ms'" in str(caught.value)
    without = StreamEnvironment("plain", parallelism=1).from_collection(ROWS)
    assert run_inline(without.map_batches(hours, timestamp="at").process(Stamped()))[1] == ({"k": "b", "at": 9}, 9)


def test_a_stream_without_times_needs_no_ceremony() -> None:
    def fresh(batch: Any) -> Any:
        names = list(batch.columns) if hasattr(batch, "iloc") else batch.schema.names
        assert names == ["n", "k", "tags"]
        return batch["n"].to_numpy().tolist()[::-1][:3]

    for format in ("arrow", "pandas"):
        stream = StreamEnvironment("plain", parallelism=1).from_collection(ROWS)
        assert run_inline(stream.map_batches(fresh, format=format)) == [0, 2, 4]


@dataclass
class Pair:
    n: int
    twice: int


def test_schema_and_columns(tmp_path: Any) -> None:
    def twice(batch: Any) -> Any:
        assert [name for name in batch.schema.names if not name.startswith("_")] == ["n"]
        return batch.append_column("twice", pc.multiply(batch["n"], 2))

    assert stamped(twice, columns=["n"], schema=Pair)[1] == (Pair(3, 6), 10)
    (tmp_path / "in.json").write_text('{"n": 1, "k": "a"}\n{"n": 2, "k": "b"}\n')
    stream = StreamEnvironment("files", parallelism=1).from_source(FileSource(str(tmp_path / "in.json")))
    assert run_inline(stream.map_batches(twice, columns=["n"], schema=Pair)) == [Pair(1, 2), Pair(2, 4)]
    with pytest.raises(UserCodeError, match="the result has no column 'twice'"):
        stamped(lambda b: b, schema=Pair)
    with pytest.raises(UserCodeError, match="the input has no column 'm'"):
        stamped(twice, columns=["m"])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"format": "polars"}, PlanError, "format='polars'"),
        ({"columns": "n"}, PlanError, "columns='n'"),
        ({"timestamp": "at", "aligned": True}, PlanError, "both timestamp= and aligned=True"),
        ({"unit": "s"}, ConfigError, "unit='s' without timestamp="),
        ({"timestamp": "at", "unit": "h"}, ConfigError, "unit='h'"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        timed().map_batches(lambda b: b, **options)


# --- at random --------------------------------------------------------------------------------------------------------------

Ops = list[tuple[str, int]]
OPS = st.lists(
    st.tuples(st.sampled_from(["filter", "sort", "reverse", "repeat", "slice", "twice", "add"]), st.integers(0, 5)), max_size=5
)


def in_pandas(ops: Ops) -> Callable[[Any], Any]:
    def work(frame: Any) -> Any:
        for op, by in ops:
            if op == "filter":
                frame = frame[frame["n"] % 3 != by % 3]
            elif op == "sort":
                frame = frame.sort_values(["v", "n"], kind="stable") if by % 2 else frame.sort_values(["n"], kind="stable")
            elif op == "reverse":
                frame = frame.iloc[::-1]
            elif op == "repeat":
                frame = frame.assign(many=[list(range(n % 3)) or [0] for n in frame["n"]]).explode("many").drop(columns="many")
            elif op == "slice":
                frame = frame.iloc[by:]
            elif op == "twice":
                frame = pd.concat([frame, frame.head(by)])
            else:
                frame = frame.assign(v=frame["v"] + by)
        return frame

    return work


def in_arrow(ops: Ops) -> Callable[[Any], Any]:
    def work(batch: Any) -> Any:
        table = pa.Table.from_batches([batch])
        for op, by in ops:
            rest = table["n"].to_numpy() % 3
            if op == "filter":
                table = table.filter(pa.array(rest != by % 3))
            elif op == "sort":
                order = np.lexsort((table["n"].to_numpy(), table["v"].to_numpy()) if by % 2 else (table["n"].to_numpy(),))
                table = table.take(order)
            elif op == "reverse":
                table = table.take(np.arange(len(table))[::-1])
            elif op == "repeat":
                table = table.take(np.repeat(np.arange(len(table)), np.maximum(rest, 1)))
            elif op == "slice":
                table = table.slice(by)
            elif op == "twice":
                table = pa.concat_tables([table, table.slice(0, by)])
            else:
                table = table.set_column(table.schema.get_field_index("v"), "v", pc.add(table["v"], by))
        return table

    return work


def row_by_row(rows: list[tuple[int, int, int]], ops: Ops) -> list[tuple[int, int, int]]:
    """The same on rows that hold their time: (n, v, time)."""
    for op, by in ops:
        if op == "filter":
            rows = [row for row in rows if row[0] % 3 != by % 3]
        elif op == "sort":
            rows = sorted(rows, key=(lambda row: (row[1], row[0])) if by % 2 else (lambda row: row[0]))
        elif op == "reverse":
            rows = rows[::-1]
        elif op == "repeat":
            rows = [row for row in rows for _ in range(row[0] % 3 or 1)]
        elif op == "slice":
            rows = rows[by:]
        elif op == "twice":
            rows = rows + rows[:by]
        else:
            rows = [(n, v + by, time) for n, v, time in rows]
    return rows


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1000)), min_size=1, max_size=12),
    ops=OPS,
    cut=st.sampled_from([None, 1, 3]),
    format=st.sampled_from(["arrow", "pandas"]),
)
def test_random_functions(rows: list[tuple[int, int, int]], ops: Ops, cut: int | None, format: str) -> None:
    stream = timed(cut, 1, [{"n": n, "v": v} for n, v, _ in rows], [time for _, _, time in rows])
    function = in_pandas(ops) if format == "pandas" else in_arrow(ops)
    found = run_inline(stream.map_batches(function, format=format).process(Stamped()))
    parts = [rows[start : start + cut] for start in range(0, len(rows), cut)] if cut else [rows]
    expected = [row for part in parts for row in row_by_row(part, ops)]
    assert [(row["n"], row["v"], time) for row, time in found] == expected


def test_windows_behind_a_filter_are_right() -> None:
    """What the issue was about: rows behind a filter were all put at the end of their batch."""
    from penstock import TumblingWindows, count

    env = StreamEnvironment("windows", parallelism=1)
    rows = [{"k": "a", "n": n, "at": n * 1000} for n in range(20)]
    stream = env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="at"))
    kept: Any = stream.map_batches(lambda d: d[d["n"] > 3], format="pandas")
    found = run_inline(kept.key_by("k").window(TumblingWindows(seconds=5)).aggregate(count()))
    assert [(row["window_start"], row["count"]) for row in found] == [(0, 1), (5000, 5), (10_000, 5), (15_000, 5)]
