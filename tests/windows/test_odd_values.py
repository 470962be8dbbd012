"""Values, times and fields that are not what they should be, or not quite."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import FileSource, StreamEnvironment, TumblingWindows, Watermarks, avg, count
from penstock import aggregates as agg
from penstock.aggregates import collect
from penstock.errors import PenstockError, PlanError
from penstock.testing import execute_inline, run_inline

both = pytest.mark.parametrize("columnar", [True, False])
DAY = TumblingWindows(timedelta(days=1))


def rows_of(*values: Any) -> list[dict[str, Any]]:
    return [{"k": "a", "t": number, "v": value} for number, value in enumerate(values)]


def windows(rows: list[dict[str, Any]]) -> Any:
    env = StreamEnvironment("odd", parallelism=2)
    stream = env.from_collection(rows, watermarks=Watermarks.bounded(seconds=1, timestamp="t"))
    return stream.key_by("k").window(DAY)


def test_a_rejected_record_leaves_nothing_behind() -> None:
    windowed = windows(rows_of(1, "x", 5))
    found = windowed.aggregate(count(), avg("v"), collect("v"), total=agg.sum("v"), errors="skip", name="w")
    (row,) = run_inline(found)
    assert (row["count"], row["avg_v"], row["collect_v"], row["total"]) == (2, 3.0, [1, 5], 6)


def test_a_policy_that_does_not_exist_is_refused() -> None:
    stream = StreamEnvironment("odd").from_collection(["1", "x"])
    with pytest.raises(PlanError, match="errors='deadletter'"):
        stream.map(int, errors="deadletter")  # type: ignore[arg-type]


@both
def test_nan_is_neither_least_nor_greatest(columnar: bool) -> None:
    for values, wanted in (((1.0, math.nan, 3.0), (1.0, 3.0)), ((math.nan, 2.0), (2.0, 2.0))):
        windowed = windows(rows_of(*values))
        (row,) = run_inline(windowed.aggregate(lo=agg.min("v"), hi=agg.max("v"), columnar=columnar, name="w"))
        assert (row["lo"], row["hi"]) == wanted
    windowed = windows(rows_of(math.nan))
    (row,) = run_inline(windowed.aggregate(lo=agg.min("v"), columnar=columnar, name="w"))
    assert math.isnan(row["lo"])


@both
def test_sums_of_any_size(columnar: bool) -> None:
    windowed = windows(rows_of(*[2**62] * 6))
    (row,) = run_inline(windowed.aggregate(total=agg.sum("v"), columnar=columnar, name="w"))
    assert row["total"] == 6 * 2**62


@both
@pytest.mark.parametrize("field", ["k", "v"])
def test_a_field_that_some_records_lack_is_named(columnar: bool, field: str) -> None:
    rows = rows_of(1, 2)
    del rows[1][field]
    windowed = windows(rows)
    with pytest.raises(PenstockError) as raised:
        run_inline(windowed.aggregate(agg.sum("v"), columnar=columnar, name="w"))
    assert "field" in str(raised.value) or "KeyError" in str(raised.value)
    assert repr(rows[1]) in str(raised.value)


@both
def test_keys_of_a_file_that_are_equal_are_one(columnar: bool, tmp_path: Path) -> None:
    columns = {"k": pa.array([0.0, -0.0]), "c": pa.array(["x", "x"]).dictionary_encode(), "t": pa.array([1, 2])}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    for key, wanted in (("k", 0.0), ("c", "x")):
        env = StreamEnvironment("odd", parallelism=2)
        stream = env.from_source(FileSource(str(tmp_path / "in.parquet")), watermarks=Watermarks.monotonous(timestamp="t"))
        (row,) = run_inline(stream.key_by(key).window(DAY).aggregate(count(), columnar=columnar, name="w"))
        assert (row[key], row["count"]) == (wanted, 2)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([date(2024, 1, 1), date(2024, 1, 2)]),
        pa.array([1_704_067_200_123_456, 1_704_153_600_000_001], type=pa.timestamp("us")),
        pa.array([1_704_067_200_000_000_001, 1_704_153_600_000_000_999], type=pa.timestamp("ns", tz="UTC")),
        pa.array([1_704_067_200, 1_704_153_600], type=pa.timestamp("s")),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_times(times: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a", "a"], "t": times}), tmp_path / "in.parquet")
    env = StreamEnvironment("odd")
    stream = env.from_source(FileSource(str(tmp_path / "in.parquet")), watermarks=Watermarks.monotonous(timestamp="t"))
    found = run_inline(stream.key_by("k").window(DAY).aggregate(count(), name="w"))
    days = [datetime.fromtimestamp(row["window_start"] / 1000, UTC).date() for row in found]
    assert sorted(days) == [date(2024, 1, 1), date(2024, 1, 2)]


def test_what_is_no_time_is_named_with_its_record() -> None:
    for time in (1.5, "2024-01-01", True):
        env = StreamEnvironment("odd")
        stream = env.from_collection([{"t": 1}, {"t": time}], watermarks=Watermarks.monotonous(timestamp="t"))
        with pytest.raises(PenstockError, match="is not a time") as raised:
            run_inline(stream)
        assert repr({"t": time}) in str(raised.value)


@pytest.mark.parametrize("cut", [1000, 100, 20])
def test_what_is_late_does_not_depend_on_where_files_end(cut: int, tmp_path: Path) -> None:
    """Two files, one after the other in time, read side by side; in each, a record 30 s behind."""
    for number in (0, 1):
        times = [(100 * number + second) * 1000 for second in range(100)]
        times.insert(60, (100 * number + 30) * 1000)
        pq.write_table(pa.table({"t": times}), tmp_path / f"{number}.parquet")
    env = StreamEnvironment("odd", parallelism=2, max_records_per_epoch=cut, first_records_per_epoch=cut)
    watermarks: Watermarks[Any] = Watermarks.bounded(seconds=1, timestamp="t", every=1)
    stream = env.from_source(FileSource(f"{tmp_path}/*.parquet"), watermarks=watermarks)
    stream.window_all(TumblingWindows(10)).aggregate(count(), name="w").print()
    assert execute_inline(env).counters["w"]["late"] == 1, "the first file, read to its end, still holds time back"


def test_count_windows_of_all_records() -> None:
    numbers = StreamEnvironment("counts").from_collection(list(range(7)))
    assert run_inline(numbers.count_window_all(3).reduce(lambda a, b: a + b, name="w")) == [0 + 1 + 2, 3 + 4 + 5]
    numbers = StreamEnvironment("counts").from_collection(list(range(6)))
    assert run_inline(numbers.count_window_all(3, 2).reduce(lambda a, b: a + b, name="w")) == [0 + 1, 1 + 2 + 3, 3 + 4 + 5]
