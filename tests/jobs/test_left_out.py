"""What is not in the results is counted: input = output + shed, and a job that lost input never says that all is processed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import FileSink, FileSource, GeneratorSource, JobResult, StreamEnvironment, TumblingWindows, count, read_output
from penstock.cli.app import app
from penstock.cli.commands.jobs import describe_job
from penstock.config import NO_RESTART
from penstock.connectors.protocol import Split
from penstock.epochs.history import ALL_PROCESSED
from penstock.errors import PenstockError
from penstock.failpoints import InjectedError, arm
from penstock.ids import Epoch, JobId
from penstock.jobs.left_out import LeftOut, input_of
from penstock.jobs.manifest import load_manifest
from penstock.jobs.source_order import SourceOrder
from penstock.jobs.status import read_status
from penstock.storage import LocalStorage
from penstock.testing import (
    CollectSink,
    Crash,
    Cut,
    End,
    ProcessingTime,
    Record,
    ScriptedSource,
    execute_inline,
    scripted_watermarks,
)
from penstock.testing import Watermark as At

NUMBERS = list(range(20))


@pytest.fixture(autouse=True)
def nothing_armed() -> Any:
    yield
    arm("")


def at_most_once(source: Any, sink: Any, **settings: Any) -> StreamEnvironment:
    settings = {"parallelism": 1, "guarantee": "at-most-once"} | settings
    env = StreamEnvironment("most", **settings)
    env.from_source(source, name="numbers").sink_to(sink)
    return env


def written(out: Path) -> int:
    return len(read_output(str(out)))


def rows(result: JobResult) -> dict[str, str]:
    return dict(result.rows())


def test_an_overloaded_job_counts_what_it_sheds(tmp_path: Path) -> None:
    sink = CollectSink()
    source = ScriptedSource([*range(100), ProcessingTime(50), 100, 101, Cut(), End()])
    env = at_most_once(source, sink, max_records_per_epoch=2, storage=str(tmp_path))
    result = execute_inline(env, until=10**6)
    assert result.finished
    assert result.shed > 90
    assert result.records_in + result.shed == 102
    assert len(sink.results()) == result.records_out
    assert sum(record.shed for record in result.history) == result.shed
    assert rows(result)["outcome"] == f"finished: the input has ended, but not all of it is in the results: shed {result.shed}"
    assert rows(result)["shed records"] == str(result.shed)
    assert ALL_PROCESSED not in str(result)


def test_a_job_of_which_most_is_shed_does_not_say_that_all_is_processed() -> None:
    """19,998 of 20,000: the rate is far above what epochs take."""
    env = StreamEnvironment(
        "most", executor="inline", parallelism=1, guarantee="at-most-once", max_records_per_epoch=1, first_records_per_epoch=1
    )
    env.from_source(GeneratorSource(lambda n: n, count=20_000, rate=10**9), name="numbers").sink_to(CollectSink())
    result = env.execute()
    assert result.finished
    assert result.records_in + result.shed == 20_000
    assert result.shed > 19_000
    assert ALL_PROCESSED not in str(result)
    assert f"shed={result.shed}" in repr(result)


def test_input_of_a_failed_epoch_is_counted() -> None:
    sink = CollectSink()
    result = execute_inline(at_most_once(ScriptedSource([*NUMBERS[:7], Crash(), *NUMBERS[7:], End()], cut=4), sink), until=10**6)
    assert (result.finished, result.restarts, result.shed) == (True, 1, 4)
    assert len(sink.results()) + result.shed == len(NUMBERS)
    assert ALL_PROCESSED not in str(result)


def test_input_of_the_last_epoch_is_counted_though_none_follows_that_reads() -> None:
    sink = CollectSink()
    result = execute_inline(at_most_once(ScriptedSource([1, 2, Cut(), 3, Crash(), 4, End()]), sink), until=10**6)
    assert result.finished
    assert result.shed == 2
    assert sink.results() == [1, 2]


@pytest.mark.parametrize("point", ["task:prepare=raise@2", "manifest:before=raise@3", "manifest:after=raise@3"])
def test_what_a_driver_lost_that_died_is_counted_by_the_next(tmp_path: Path, point: str) -> None:
    """Between the note of an epoch's input and its output: whatever is not published counts."""
    out, storage = tmp_path / "out", LocalStorage(tmp_path / "storage")
    source = ScriptedSource([*NUMBERS, End()], cut=5)

    def env() -> StreamEnvironment:
        return at_most_once(source, FileSink(str(out), format="json"), storage=storage.root, restart=NO_RESTART)

    arm(point)
    with pytest.raises((InjectedError, PenstockError)):
        execute_inline(env(), until=10**6)
    arm("")
    result = execute_inline(env(), until=10**6)
    assert result.finished
    assert result.shed > 0
    assert written(out) + result.shed == len(NUMBERS)
    assert describe_job(storage).left_out.shed == result.shed
    again = execute_inline(env(), until=10**6)
    assert (again.shed, again.left_out) == (0, result.left_out)  # of the run, and of the job
    assert ALL_PROCESSED not in str(again)
    assert rows(again)["shed records"].endswith(f"{result.shed} since the job began")


KILLED = """
import os, signal, sys
from penstock import FileSink, StreamEnvironment
from penstock.testing import End, ScriptedSource, execute_inline

def die_at_eleven(n):
    if n == 11 and sys.argv[3] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return n

env = StreamEnvironment("most", parallelism=1, guarantee="at-most-once", storage=sys.argv[2])
stream = env.from_source(ScriptedSource([*range(20), End()], cut=5)).map(die_at_eleven)
stream.sink_to(FileSink(sys.argv[1], format="json"))
print(execute_inline(env, until=10**6).shed)
"""


def test_a_driver_that_is_killed_loses_one_epoch_and_says_so(tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    command = [sys.executable, str(program), str(tmp_path / "out"), str(tmp_path / "storage")]
    killed = subprocess.run([*command, "die"], timeout=60, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert describe_job(LocalStorage(tmp_path / "storage")).left_out.shed == 5  # it is known before the job starts again
    lived = subprocess.run([*command, "live"], timeout=60, capture_output=True, text=True)
    assert lived.stdout.split() == ["5"], lived.stderr
    assert written(tmp_path / "out") == 15


# --- what is not known is not made up ------------------------------------------------------------------------------------------


def test_of_text_files_the_number_is_about(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("".join(f"{n:04}\n" for n in range(1000)))
    sink = CollectSink()
    env = StreamEnvironment("files", parallelism=1, guarantee="at-most-once", max_records_per_epoch=300)
    failures = iter([True])

    def once(line: str) -> str:
        if line == "0400" and next(failures, False):
            raise OSError("not now")
        return line

    env.from_source(FileSource(str(tmp_path / "in"), format="text")).map(once).sink_to(sink)
    result = execute_inline(env, until=10**6)
    assert result.finished
    assert result.left_out.estimated
    assert abs(len(sink.results()) + result.shed - 1000) <= 5
    assert rows(result)["shed records"].startswith("about ")


def test_splits_whose_records_nobody_knows_are_counted_as_pieces() -> None:
    unread = input_of(SourceOrder(tasks=[[Split("0", None), Split("1", None, records=3)], [Split("2", None)]]))
    assert unread == LeftOut(shed=3, pieces=2)
    assert unread.shed_text() == "3 and 2 pieces of input whose records were not counted"
    assert LeftOut(pieces=1).sentence() == "shed 1 piece of input whose records were not counted"
    result = JobResult(name="x", job=JobId("1"), storage="s", finished=True, left_out=LeftOut(pieces=1))
    assert ALL_PROCESSED not in str(result)


# --- late, skipped, dead letters ------------------------------------------------------------------------------------------------


def everything(storage: Path) -> JobResult:
    """One late record, two that are skipped, one dead letter."""
    env = StreamEnvironment("all", parallelism=1, storage=str(storage))
    script = [
        Record("1", 1_000),
        At(30_000),
        Record("2", 2_000),
        Record("x", 31_000),
        Record("y", 31_000),
        Record("0", 31_000),
        End(),
    ]
    words = env.from_source(ScriptedSource(script), watermarks=scripted_watermarks(), name="words")
    numbers = words.map(int, name="parse", errors="skip")
    numbers.map(lambda n: 1 // n, name="divide", errors="dead_letter").print()
    numbers.key_by(lambda n: 0).window(TumblingWindows(seconds=10)).aggregate(count(), name="counts").print()
    return execute_inline(env, until=10**6)


def test_late_skipped_and_dead_letters_are_told_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = LocalStorage(tmp_path / "storage")
    result = everything(tmp_path / "storage")
    assert (result.late, result.skipped, result.dead_letters, result.shed) == (1, 2, 1, 0)
    assert result.left_out == LeftOut(late=1, skipped=2, dead_letters=1)
    told = rows(result)
    assert (told["late records"], told["skipped records"], told["dead letters"]) == ("1", "2", "1")
    assert "shed records" not in told
    assert result.outcome.endswith("not all of it is in the results: late 1, skipped 2, dead letters 1")
    assert load_manifest(storage, Epoch(result.last_epoch or 0)).left_out_in_all == result.left_out
    shown = CliRunner().invoke(app, ["jobs", str(tmp_path)])
    assert "late 1, skipped 2, dead letters 1" in shown.stdout
    as_json = json.loads(CliRunner().invoke(app, ["jobs", str(tmp_path), "--json"]).stdout)
    assert as_json[0]["left_out"] == {"late": 1, "skipped": 2, "dead_letters": 1}
    again = everything(tmp_path / "storage")
    assert (again.late, again.left_out) == (0, result.left_out)
    assert ALL_PROCESSED not in str(again)


def test_the_status_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = StreamEnvironment("skips", executor="inline", parallelism=1, storage=str(tmp_path))
    env.from_collection(["1", "x", "2"]).map(int, errors="skip").print()
    env.execute()
    status = read_status(LocalStorage(tmp_path))
    assert status is not None
    assert (status.skipped, status.left_out) == (1, LeftOut(skipped=1))


def test_bad_records_that_a_source_skips_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\nnot json\n{"n": 2}\n')
    sink = CollectSink()
    env = StreamEnvironment("bad", parallelism=1)
    env.from_source(FileSource(str(tmp_path), format="json", on_bad_record="skip")).sink_to(sink)
    result = execute_inline(env, until=10**6)
    assert (len(sink.results()), result.skipped) == (2, 1)
    assert ALL_PROCESSED not in str(result)


def test_a_job_that_left_out_nothing_says_so_in_a_few_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = StreamEnvironment("whole", executor="inline", parallelism=1, storage=str(tmp_path / "job"))
    env.from_collection([1, 2]).print()
    result = env.execute()
    assert result.outcome == ALL_PROCESSED
    assert list(rows(result)) == ["outcome", "epochs", "records in, out", "restarts", "storage"]
    assert "not in results" not in CliRunner().invoke(app, ["jobs", str(tmp_path)]).stdout
    assert json.loads(CliRunner().invoke(app, ["jobs", str(tmp_path), "--json"]).stdout)[0]["left_out"] == {}
