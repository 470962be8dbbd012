"""Timestamps in seconds, milliseconds, microseconds and nanoseconds; and the warning when the unit is probably another one."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import FileSource, ProcessFunction, StreamEnvironment, Watermarks
from penstock.errors import ConfigError, UserCodeError
from penstock.records import NO_TIMESTAMP, timestamps_of
from penstock.testing import execute_inline, run_inline
from penstock.timing import WatermarkGenerator
from penstock.timing.timestamps import likely_unit

NOW = 1_700_000_000
UNITS: dict[Any, int] = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class Stamp(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        yield None if ctx.timestamp_ms == NO_TIMESTAMP else ctx.timestamp_ms


def of_values(times: list[Any], **options: Any) -> Any:
    env = StreamEnvironment("units", parallelism=1)
    rows = [{"at": time} for time in times]
    return env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="at", **options), name="in")


def of_files(times: list[Any], folder: Any, **options: Any) -> Any:
    pq.write_table(pa.table({"at": times}), folder / "in.parquet")
    env = StreamEnvironment("units", parallelism=1)
    return env.from_source(FileSource(str(folder / "in.parquet")), watermarks=Watermarks.monotonous(timestamp="at", **options))


@pytest.mark.parametrize("unit", UNITS)
def test_whole_numbers_in_a_unit(unit: Any, tmp_path: Any) -> None:
    times = [NOW * UNITS[unit], (NOW + 1) * UNITS[unit], None]
    expected = [NOW * 1000, NOW * 1000 + 1000, None]
    assert run_inline(of_values(times, unit=unit).process(Stamp())) == expected
    assert run_inline(of_files(times, tmp_path, unit=unit).process(Stamp())) == expected


def test_digits_below_a_millisecond(tmp_path: Any) -> None:
    assert run_inline(of_values([NOW + 0.1234], unit="s").process(Stamp())) == [NOW * 1000 + 123]
    assert run_inline(of_files([NOW + 0.1236, NOW + 0.5], tmp_path, unit="s").process(Stamp())) == [
        NOW * 1000 + 124,
        NOW * 1000 + 500,
    ]
    assert run_inline(of_values([NOW * 1_000_000 + 999], unit="us").process(Stamp())) == [NOW * 1000]
    assert timestamps_of(pa.array([-1]), "us").tolist() == [-1]


def test_moments_need_no_unit() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    expected = [int(moment.timestamp() * 1000)]
    for unit in UNITS:
        assert run_inline(of_values([moment], unit=unit).process(Stamp())) == expected
        assert run_inline(of_values([date(2024, 1, 1)], unit=unit).process(Stamp())) == expected
        assert timestamps_of(pa.array([moment]), unit).tolist() == expected


def test_every_strategy_takes_a_unit() -> None:
    strategies: list[Watermarks[Any]] = [
        Watermarks.monotonous(timestamp="at", unit="s"),
        Watermarks.bounded(seconds=1, timestamp="at", unit="s"),
        Watermarks.punctuated(lambda record, time: time, timestamp="at", unit="s"),
        Watermarks.custom(WatermarkGenerator, timestamp="at", unit="s"),
        Watermarks.none(timestamp="at", unit="s"),
    ]
    for watermarks in strategies:
        env = StreamEnvironment("units", parallelism=1)
        assert run_inline(env.from_collection([{"at": NOW}], watermarks=watermarks).process(Stamp())) == [NOW * 1000]


def test_what_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="unit='minutes'"):
        Watermarks.monotonous(timestamp="at", unit="minutes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unit='s' without timestamp="):
        Watermarks.monotonous(unit="s")
    for times, unit in (([0.5], "ms"), ([float("nan")], "s"), (["x"], "s"), ([1 << 60], "s")):
        with pytest.raises(UserCodeError, match="assigning timestamps"):
            run_inline(of_files(times, tmp_path, unit=unit))


# --- the warning ------------------------------------------------------------------------------------------------------------


def warnings_of(stream: Any, caplog: Any, **options: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "penstock"):
        run_inline(stream, **options)
    return [record.getMessage() for record in caplog.records]


def test_seconds_that_are_taken_for_milliseconds(caplog: Any, tmp_path: Any) -> None:
    expected = (
        "step 'in': the first timestamp in 'at', 1700000000, is taken for milliseconds since 1970: January 1970; "
        "if these are seconds, say unit='s' beside timestamp="
    )
    assert warnings_of(of_values([NOW, NOW + 1]), caplog) == [expected]
    assert len(warnings_of(of_values([0, None, NOW]), caplog)) == 1
    assert len(warnings_of(of_files([NOW], tmp_path), caplog)) == 1
    assert warnings_of(of_values([NOW, NOW + 1], unit="s"), caplog) == []
    by_function: Watermarks[Any] = Watermarks.none(timestamp=lambda record: record["at"])
    stream = StreamEnvironment("units", parallelism=1).from_collection([{"at": NOW}], watermarks=by_function, name="in")
    assert warnings_of(stream, caplog) == [expected.replace(" in 'at'", "")]


def test_once_for_a_job(caplog: Any, tmp_path: Any) -> None:
    """Not for each partition and epoch, and not when the job goes on."""
    env = StreamEnvironment("units", parallelism=2, storage=str(tmp_path / "job"))
    rows = [{"at": NOW + n} for n in range(12)]
    env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="at"), name="in").print()
    with caplog.at_level(logging.WARNING, "penstock"):
        execute_inline(env, epochs=1, max_records_per_epoch=4)
        assert len([record for record in caplog.records if "unit='s'" in record.getMessage()]) == 1
        execute_inline(env)
    assert len([record for record in caplog.records if "unit='s'" in record.getMessage()]) == 1


def test_batches_with_new_times(caplog: Any) -> None:
    def later(batch: Any) -> Any:
        return pa.record_batch({"at": pa.array([NOW])})

    stream = StreamEnvironment("units", parallelism=1).from_collection([1])
    (text,) = warnings_of(stream.map_batches(later, timestamp="at", name="later"), caplog)
    assert text.startswith("step 'later': the first timestamp in 'at', 1700000000, is taken for milliseconds")


DAY = 86_400_000


@pytest.mark.parametrize(
    "times",
    [
        [0, 10_000, 60_000],
        [0, DAY, 30 * DAY],
        [n * DAY for n in range(1, 40)],
        [1, 3 * DAY],
        [NOW * 1000],
        [None],
        [-5000],
        [datetime(1970, 1, 20, tzinfo=UTC)],
        [157_766_400_000],  # 1975
    ],
)
def test_times_that_are_meant_so(times: list[Any], caplog: Any) -> None:
    assert warnings_of(of_values(times), caplog) == []


def test_the_likely_unit() -> None:
    pairs: list[Any] = [("ms", "s"), ("ms", "us"), ("ms", "ns"), ("us", "ms"), ("ns", "us"), ("s", "ms"), ("s", "us")]
    for declared, meant in pairs:
        times = np.asarray([NOW * UNITS[meant] * 1000 // UNITS[declared]])
        assert likely_unit(times, declared) == meant
    for unit in UNITS:
        assert likely_unit(np.asarray([NOW * 1000]), unit) is None
    for year in range(1980, 2100):
        assert likely_unit(np.asarray([int(datetime(year, 1, 1, tzinfo=UTC).timestamp())]), "ms") == "s"
