"""A run as it is told: the last line, the summary, rates, late records, event time of old data; and what a result prints as."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock import EpochRecord, JobResult, StreamEnvironment, TumblingWindows, Watermarks, count
from penstock.cli import app
from penstock.cli.commands.jobs import describe_job, rate_now
from penstock.cli.screen.progress import Progress, event_time
from penstock.epochs.rates import WINDOW_S, RecentBusy, RecentRate
from penstock.epochs.status_writer import StatusWriter
from penstock.ids import Epoch, JobId, Term
from penstock.jobs.status import Status, read_status
from penstock.jobs.terms import TermInfo
from penstock.storage import LocalStorage

RECORD = EpochRecord(
    epoch=Epoch(7),
    started_ms=0,
    committed_ms=1_800_000_000_000,
    seconds=0.5,
    run_seconds=0.4,
    records_in=100,
    records_out=90,
    skipped=0,
    watermark_ms=None,
    state_entries=None,
    local_hits=0,
    rebuilt=0,
    shed=0,
)


def result(**changes: Any) -> JobResult:
    return replace(JobResult(name="shop", job=JobId("1"), storage="file:///jobs/shop", last_epoch=Epoch(9)), **changes)


def told(*records: EpochRecord, width: int | None = None, ended: JobResult | None, error: Exception | None = None) -> str:
    file = StringIO()
    progress = Progress(Console(file=file, width=width or 10_000, force_terminal=width is not None, color_system=None))
    progress.started("shop", "file:///jobs/shop")
    for record in records:
        progress(record)
    progress.ended(ended, error)
    return file.getvalue()


def test_the_last_progress_line_is_not_lost() -> None:
    lines = told(RECORD, replace(RECORD, epoch=Epoch(8)), ended=result(finished=True)).splitlines()
    assert [line for line in lines if line.startswith("epoch ")][-1].startswith("epoch 8, records/s ")
    assert "records in 200, records out 180" in lines[1]


@pytest.mark.parametrize("width", [None, 60])
def test_how_far_a_failed_job_came_is_told(width: int | None) -> None:
    said = told(RECORD, width=width, ended=None, error=RuntimeError())
    assert "epoch 7, records/s" in said.splitlines()[-1]


def test_a_job_without_epochs_says_nothing_of_them() -> None:
    assert "records/s" not in told(ended=None, error=RuntimeError())


def test_the_summary_is_not_wrapped_off_a_terminal() -> None:
    long = "file:///" + "/".join(["a-folder"] * 40)
    assert long in told(RECORD, ended=result(storage=long))
    assert "outcome  stopped after epoch 9" in told(RECORD, width=30, ended=result())


def test_lag_of_old_data_is_where_its_time_is() -> None:
    assert event_time(RECORD) == ("watermark lag", "-")
    recent = replace(RECORD, watermark_ms=RECORD.committed_ms - 3_000)
    assert event_time(recent) == ("watermark lag", "3.0 s")
    old = replace(RECORD, watermark_ms=1_760_011_200_000)
    assert event_time(old) == ("event time", "2025-10-09 12:00:00")
    assert "event time 2025-10-09 12:00:00" in told(old, ended=result())


def test_the_busiest_step_is_named(tmp_path: Path) -> None:
    busy = replace(RECORD, busy={"tax": 0.125, "reminders": 0.614, "out": 0.0})
    assert "latency 500 ms, busiest step reminders 61%, watermark lag -" in told(busy, ended=result())
    assert "busiest" not in told(RECORD, ended=result())
    writer = StatusWriter(LocalStorage(tmp_path), "shop")
    writer(busy)
    status = read_status(LocalStorage(tmp_path))
    assert status is not None
    assert status.busy == {"tax": 0.125, "reminders": 0.614, "out": 0.0}


def test_a_small_epoch_does_not_say_who_is_busy() -> None:
    busy = RecentBusy()
    busy.add(2.0, {"tax": 0.5, "out": 0.25})
    busy.add(0.01, {"tax": 0.0, "out": 1.0})
    assert busy.shares() == {"tax": 0.498, "out": 0.254}
    busy.add(WINDOW_S + 1, {"out": 0.1})
    assert busy.shares() == {"out": 0.1}


def test_a_status_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    StatusWriter(LocalStorage(tmp_path), "shop")(RECORD)
    path = tmp_path / "status.json"
    data = json.loads(path.read_text())
    del data["busy"]
    path.write_text(json.dumps(data))
    status = read_status(LocalStorage(tmp_path))
    assert status is not None
    assert (status.epoch, status.busy) == (7, {})


def test_how_busy_the_steps_of_a_running_job_are_is_listed(tmp_path: Path) -> None:
    listed: list[str] = []

    def look(record: EpochRecord) -> None:
        if record.epoch > 2:
            listed.append(CliRunner(env={"COLUMNS": "300"}).invoke(app, ["jobs", str(tmp_path)]).stdout)
            listed.append(CliRunner().invoke(app, ["jobs", str(tmp_path), "--json"]).stdout)

    env = StreamEnvironment("naps", executor="inline", parallelism=1, storage=str(tmp_path), max_records_per_epoch=10)
    stream = env.from_collection(range(30), name="numbers").map(lambda n: time.sleep(0.005), name="nap")
    stream.map(lambda n: n, name="same").print(name="out")
    env.execute(listener=look)
    assert re.search(r"busiest step.*\bnap \d\d%", listed[0], re.DOTALL)
    busy = json.loads(listed[1])[0]["busy"]
    assert busy.keys() == {"numbers", "nap", "same", "out"}
    assert 1 >= busy["nap"] > 0.3 > busy["same"]
    assert describe_job(LocalStorage(tmp_path)).busy == {}  # it runs no more


# --- rates ---------------------------------------------------------------------------------------------------------------------


def test_a_rate_is_of_this_run() -> None:
    rate = RecentRate()
    assert rate.at(100.0) == 0
    rate.add(100.0, 1_000, took=2.0)  # the first epoch: over the time that it took, neither zero nor huge
    assert rate.at(100.0) == 500
    rate.add(101.0, 500, took=1.0)
    assert rate.at(101.0) == 500
    assert rate.at(100.0 + WINDOW_S + 0.5) == 100  # of the last seconds only
    assert rate.at(200.0) == 0


def test_the_status_has_a_rate_from_the_first_epoch_on(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    writer = StatusWriter(storage, "shop")
    writer(RECORD)
    status = read_status(storage)
    assert status is not None
    assert 100 < status.records_per_second <= 200
    writer(replace(RECORD, records_in=10))
    writer.ended(result(), None)  # at once: not ten records over a millisecond
    status = read_status(storage)
    assert status is not None
    assert status.records_per_second < 250
    assert status.records_in == 110


def test_the_rate_of_the_run_before_is_not_shown() -> None:
    term = TermInfo(term=Term(2), host="here", pid=11, started_ms=50_000)
    status = Status("shop", "running", "here", 10, 49_000, records_per_second=900.0)
    assert rate_now(status, term, 51.0) is None  # of another process
    same = Status("shop", "running", "here", 11, 49_000, records_per_second=900.0)
    assert rate_now(same, term, 51.0) is None  # of the same, before it began anew
    now = Status("shop", "running", "here", 11, 52_000, records_per_second=900.0)
    rate = rate_now(now, term, 53.0)
    assert rate is not None
    assert (rate.present, str(rate)) == (900, "900")
    assert rate_now(None, term, 53.0) is None


def test_a_rate_that_was_told_a_while_ago_says_so() -> None:
    term = TermInfo(term=Term(2), host="here", pid=11, started_ms=50_000)
    status = Status("shop", "running", "here", 11, 52_000, records_per_second=12_000.0)
    shown = {age: rate for age in (1, 5, 40) if (rate := rate_now(status, term, 52.0 + age)) is not None}
    assert {age: str(rate) for age, rate in shown.items()} == {1: "12,000", 5: "12,000, 5.0 s ago", 40: "12,000, 40.0 s ago"}
    assert {age: rate.present for age, rate in shown.items()} == {1: 12_000, 5: 12_000, 40: 0}  # nothing is committed


def test_a_second_run_counts_anew(tmp_path: Path) -> None:
    env = StreamEnvironment("numbers", executor="inline", parallelism=1, storage=str(tmp_path), max_records_per_epoch=10)
    env.from_collection(range(40), name="numbers").print()
    first = env.execute(listener=lambda record: time.sleep(0.001))
    assert (first.records_in, first.epochs) == (40, 4)
    again = env.execute()
    assert (again.records_in, again.epochs, again.finished) == (0, 0, True)
    assert describe_job(LocalStorage(tmp_path)).records_per_second is None


# --- results -------------------------------------------------------------------------------------------------------------------


def late_windows(**settings: Any) -> JobResult:
    """Over columns (`count`) and by record (a reducing function): three records are late for each."""
    env = StreamEnvironment("late", executor="inline", parallelism=1, max_records_per_epoch=1, **settings)
    times = [1_000, 30_000, 2_000, 3_000, 31_000, 4_000]
    stream = env.from_collection(times, watermarks=Watermarks.monotonous(timestamp=lambda t: t), name="times")
    windows = stream.key_by(lambda t: 0).window(TumblingWindows(seconds=10))
    windows.aggregate(count(), name="counts").print()
    windows.reduce(max, name="greatest").print()
    return env.execute()


def test_late_records_are_in_the_result_and_in_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    found = late_windows()
    assert found.late == 6
    assert "late records     6" in str(found)
    assert "│ late records    │ 6" in told(RECORD, ended=found)
    assert "late 3" in told(replace(RECORD, late=3), ended=result())
    assert "late records" not in told(RECORD, ended=result())
    both = told(replace(RECORD, shed=7), replace(RECORD, shed=5, skipped=1, dead_letters=2), width=200, ended=None)
    assert "shed 12, skipped 1, dead letters 2" in both


def test_a_result_prints_as_a_short_table() -> None:
    shown = result(finished=True, records_in=12_345, records_out=7, epochs=3)
    assert str(shown).splitlines() == [
        "job shop",
        "  outcome          finished: all input is processed",
        "  epochs           3",
        "  records in, out  12,345, 7",
        "  restarts         0",
        "  storage          file:///jobs/shop",
    ]
    assert repr(shown).startswith(
        "JobResult(name='shop', finished=True, stopped=False, drained=False, epochs=3, records_in=12345,"
    )
    assert "history" not in repr(shown)
    assert "<th>records in, out</th><td>12,345, 7</td>" in shown._repr_html_()
    assert "&lt;b&gt;" in replace(shown, name="<b>")._repr_html_()
    assert result(drained=True, finished=True).outcome == "drained: event time has ended, with epoch 9"


def test_two_runs_as_one() -> None:
    both = result(late=2, skipped=1, epochs=3).followed_by(result(late=5, skipped=1, epochs=4))
    assert (both.late, both.skipped, both.epochs) == (7, 2, 7)
