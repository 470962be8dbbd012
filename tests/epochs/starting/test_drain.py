"""Law: what a drained job has published is what a bounded run over the input that it has read publishes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    CollectSink,
    FileSink,
    GeneratorSource,
    Job,
    KeyedProcessFunction,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
    count,
    snapshots,
)
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.epochs.history import JobResult
from penstock.errors import ConfigError, DrainedError, PenstockError, UserCodeError
from penstock.ids import Epoch
from penstock.jobs import paths
from penstock.jobs.status import read_status
from penstock.storage import open_storage
from penstock.testing import ProcessingTime, Record, ScriptedSource, VirtualClock, Watermark, execute_inline, scripted_watermarks
from tests.epochs.starting.drained_program import COUNT, bounded, drain, events, files, output, program, put

PROGRAM = Path(__file__).parent / "drained_program.py"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    found = bounded(tmp_path_factory.mktemp("bounded"), events())
    assert all(found.values())
    return found


@pytest.mark.parametrize("cut", [1, 9, 1000])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_as_bounded_input(cut: int, parallelism: int, expected: dict[str, Counter[str]], tmp_path: Path) -> None:
    rows = events()
    put(tmp_path, rows[:25], "0")
    settings = {"parallelism": parallelism, "max_records_per_epoch": cut}
    before = program(tmp_path, files(tmp_path, watch=True), until_idle=True, **settings).execute()
    assert before.stopped
    assert not before.finished
    assert output(tmp_path) != expected
    put(tmp_path, rows[25:], "1")
    result = drain(tmp_path, **settings)
    assert (result.finished, result.drained) == (True, True)
    assert output(tmp_path) == expected


@pytest.mark.parametrize("settings", [{"guarantee": "at-least-once"}, {"guarantee": "at-most-once"}, {"checkpoint_interval": 5}])
@pytest.mark.parametrize("pipeline", [0, 3])
def test_guarantees_and_checkpoints(
    settings: dict[str, Any], pipeline: int, expected: dict[str, Counter[str]], tmp_path: Path
) -> None:
    put(tmp_path, events(), "0")
    result = drain(tmp_path, pipeline=pipeline, **settings)
    assert result.drained
    assert output(tmp_path) == expected
    newest = Job(tmp_path / "job").epochs()[-1]
    assert (newest.drained, newest.together, newest.records) == (newest.epoch - 1, 0, 0)  # an epoch of its own


def test_nothing_was_ever_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert drain(tmp_path).drained


@pytest.mark.parametrize(
    ("point", "pipeline"),
    [
        ("task:prepare", 0),
        ("epoch:ran", 2),
        ("manifest:before", 0),
        ("manifest:after", 2),
        ("manifest:after", 0),
        ("done:before", 0),
    ],
)
def test_killed_in_the_drain(point: str, pipeline: int, expected: dict[str, Counter[str]], tmp_path: Path) -> None:
    """SIGKILL, then the same command again, with another parallelism."""
    put(tmp_path, events(), "0")
    root = Path(__file__).parents[3]
    where = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        "SETTINGS": json.dumps({"pipeline": pipeline}),
    }
    killed = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), "2", point], env=where, timeout=120, check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    again = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), "3"], env=where, timeout=120, check=False, capture_output=True
    )
    assert again.returncode == 0, again.stderr.decode()
    assert output(tmp_path) == expected
    with pytest.raises(DrainedError):
        drain(tmp_path)


def test_a_drained_job_does_not_go_on(expected: dict[str, Counter[str]], tmp_path: Path) -> None:
    put(tmp_path, events()[:30], "0")
    last = drain(tmp_path).last_epoch
    assert last is not None
    put(tmp_path, events()[30:], "1")
    for start in ({}, {"restore_from": "latest"}, {"restore_from": f"{tmp_path / 'job'}@{last}"}):
        with pytest.raises(DrainedError, match=f"ended with epoch {last}") as caught:
            drain(tmp_path, **start)
        assert "every further record would be late" in caught.value.detail
        assert f"--from {Job(tmp_path / 'job').storage}@{last - 1}" in caught.value.hint
    # As the hint says: from the epoch before, what the drain had published is taken back.
    result = drain(tmp_path, restore_from=f"{Job(tmp_path / 'job').storage}@{last - 1}", parallelism=3)
    assert result.drained
    assert output(tmp_path) == expected


def test_the_epoch_before_the_drain_is_gone(tmp_path: Path) -> None:
    put(tmp_path, events(), "0")
    last = drain(tmp_path).last_epoch
    assert last is not None
    (tmp_path / "job" / paths.manifest(Epoch(last - 1))).unlink()
    with pytest.raises(DrainedError) as caught:
        drain(tmp_path)
    assert "is no longer kept" in caught.value.hint


def test_a_savepoint_after_the_drain(tmp_path: Path) -> None:
    """It holds what is left when time has ended, and nothing starts from it."""
    put(tmp_path, events(), "0")
    last = drain(tmp_path).last_epoch
    assert last is not None
    made = Job(tmp_path / "job").savepoint(tmp_path / "savepoint")
    assert (made.epoch, made.drained, made.finished) == (last, last - 1, True)
    with snapshots.read(made.uri) as snapshot:
        assert {state.step for state in snapshot.states() if len(state.to_arrow())} <= {"reminder"}
    elsewhere = program(tmp_path, files(tmp_path, watch=True), storage=str(tmp_path / "other"), until_idle=True)
    with pytest.raises(DrainedError, match="savepoint was drained") as caught:
        elsewhere.execute(restore_from=made.uri)
    assert f"--from {Job(tmp_path / 'job').storage}@{last - 1}" in caught.value.hint
    report = snapshots.check(elsewhere, made.uri)
    assert report.refused
    assert "drained" in report.problems[0]
    replayed = snapshots.replay(tmp_path / "job", last, env=program(tmp_path, files(tmp_path, watch=True)))
    assert replayed.reproduced, replayed.verdict


def test_drain_is_for_jobs_that_run_until_idle(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="waits for more"):
        program(tmp_path, files(tmp_path, watch=True)).execute(drain=True)


def test_bounded_input_ends_by_itself(tmp_path: Path) -> None:
    put(tmp_path, events(), "0")
    result = program(tmp_path, files(tmp_path, watch=False), until_idle=True, drain=True).execute()
    assert result.finished
    assert not result.drained


# --- stop --drain ------------------------------------------------------------------------------------------------------------


class Endless:
    """A job with an endless generator, in a thread."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        env = StreamEnvironment("endless", executor="inline", parallelism=2, storage=str(folder / "job"), **settings)
        source = GeneratorSource(lambda n: {"key": n % 3, "time": n * 100}, rate=500, partitions=2)
        marks: Watermarks[Any] = Watermarks.bounded(seconds=1, timestamp="time")
        stream = env.from_source(source, watermarks=marks, name="numbers").key_by("key")
        windows = stream.window(TumblingWindows(seconds=60)).aggregate(count(), name="counts")
        windows.sink_to(FileSink(str(folder / "out")), name="out")
        self.env = env
        self.stream = stream
        self.results: list[JobResult] = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        with contextlib.suppress(UserCodeError):
            self.results.append(self.env.execute())

    def __enter__(self) -> Job:
        self.thread.start()
        begun = time.time()
        for _ in range(1500):
            status = read_status(open_storage(self.folder / "job"))
            if status is not None and status.updated_ms >= begun * 1000:
                break
            time.sleep(0.02)
        return self.env.job

    def __exit__(self, *raised: object) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_stop_and_drain(tmp_path: Path) -> None:
    endless = Endless(tmp_path)
    with endless as job:
        stopped = job.stop(drain=True, savepoint=tmp_path / "savepoint")
    (result,) = endless.results
    assert stopped.drained
    assert result.drained
    assert result.finished
    assert stopped.message == f"drained by epoch {stopped.epoch}, and stopped"
    assert stopped.savepoint is not None
    assert stopped.savepoint.drained == stopped.epoch - 1
    rows = read_rows(tmp_path / "out")
    counts = Counter({(row["key"], row["window_start"]): row["count"] for row in rows})
    assert counts.total() == result.records_in
    read = [{"key": n % 3, "time": n * 100} for n in range(result.records_in)]
    assert counts == Counter((row["key"], row["time"] // 60_000 * 60_000) for row in read)
    with pytest.raises(DrainedError):
        endless.env.execute()
    with pytest.raises(PenstockError, match="not running") as caught:
        endless.env.job.stop(drain=True)
    assert "--until-idle --drain" in caught.value.hint


def test_stop_without_drain_leaves_windows_open(tmp_path: Path) -> None:
    endless = Endless(tmp_path)
    with endless as job:
        assert not job.stop().drained
    assert not endless.results[0].finished


class Fragile(KeyedProcessFunction[int, dict[str, int], dict[str, int]]):
    """Fails at the end of time, while the file is there."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def process(self, value: dict[str, int], ctx: Any) -> None:
        ctx.timers.register_event_time(10**15)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[dict[str, int]]:
        if self.flag.exists():
            raise ValueError("not today")
        yield {"key": ctx.key}


def test_a_drain_that_fails_has_not_happened(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    endless = Endless(tmp_path, restart=NO_RESTART)
    endless.stream.process(Fragile(flag), name="fragile").sink_to(FileSink(str(tmp_path / "fired")), name="fired")
    with endless as job, pytest.raises(PenstockError, match="the job failed when it was asked to stop") as caught:
        job.stop(drain=True)
    assert "not today" in caught.value.detail
    assert not endless.results
    flag.unlink()
    again = Endless(tmp_path)
    again.stream.process(Fragile(flag), name="fragile").sink_to(FileSink(str(tmp_path / "fired")), name="fired")
    with again as job:
        assert job.stop(drain=True).drained
    assert sorted(row["key"] for row in read_rows(tmp_path / "fired")) == [0, 1, 2]


# --- time ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 10])
@pytest.mark.parametrize("idle", [None, 1])
def test_idle_partitions_do_not_hold_the_drain_back(cut: int, idle: int | None, tmp_path: Path) -> None:
    """One partition has only one record, one none at all; with `idle` both have fallen idle before the drain."""
    later = ProcessingTime(3_000)
    scripts = [
        [Record(("a", 1), 1_000), Watermark(2_000)],
        [],
        [Record(("a", 2), 1_500), Watermark(1_600), later, Record(("a", 3), 12_500), Watermark(12_600)],
    ]

    def program() -> tuple[StreamEnvironment, CollectSink]:
        env = StreamEnvironment("idle", parallelism=2, storage=str(tmp_path))
        stream = env.from_source(ScriptedSource.of(*scripts, cut=cut), watermarks=scripted_watermarks(idle=idle), name="script")
        sink = CollectSink()
        stream.key_by(0).window(TumblingWindows(seconds=10)).aggregate(count(), name="counts").sink_to(sink)
        return env, sink

    clock = VirtualClock()
    counts = []
    for how in ({"until": 5_000}, {"drain": True}):
        env, sink = program()
        assert execute_inline(env, clock=clock, **how).drained == ("drain" in how)
        counts += [row["count"] for row in sink.results()]
        states = snapshots.read(str(tmp_path)).sources["script"]
        assert len(states.idle) == (0 if idle is None else 3)
    assert counts == [2, 1]


def test_every_record_that_was_read_is_in_the_result(expected: dict[str, Counter[str]]) -> None:
    sliding = [json.loads(row) for row in expected["sliding"].elements()]
    assert sum(row["count"] for row in sliding) == 4 * COUNT
