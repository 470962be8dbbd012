"""Savepoints of jobs: they hold what the epoch holds, whoever makes them, wherever, whatever the job does meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import CollectSink, GeneratorSource, Job, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.errors import ConfigError, NotFoundError, PenstockError, StateError
from penstock.failpoints import InjectedError, arm
from penstock.ids import Epoch
from penstock.jobs import paths
from penstock.jobs.manifest import load_manifest
from penstock.jobs.terms import find_head
from penstock.snapshots.savepoint import savepoint as savepoints
from penstock.snapshots.savepoint.format import read_info
from penstock.snapshots.savepoint.savepoint import LARGE_BYTES, SavepointProgress, Staffing, make_savepoint, staff
from penstock.snapshots.view.content import state_of
from penstock.state.encoding.keys import encode_key
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.storage import open_storage
from penstock.testing import execute_inline
from tests.snapshots.saving import committed, contents, visits


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any state is worth a process."""
    monkeypatch.setattr(savepoints, "LARGE_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def head(folder: Path) -> Any:
    return find_head(open_storage(folder)).manifest


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("compact_after", [1, 3, 100])
def test_a_savepoint_holds_what_the_epoch_holds(tmp_path: Path, parallelism: int, compact_after: int) -> None:
    for epochs, partitions in ((4, parallelism), (3, 3)):  # the second run has put its chains together from other files
        execute_inline(visits(tmp_path / "job", parallelism=partitions, compact_after=compact_after), epochs=epochs)
        manifest = head(tmp_path / "job")
        info = make_savepoint(open_storage(tmp_path / "job"))
        assert contents(info) == committed(open_storage(tmp_path / "job"), manifest)
        assert info.rows > 100
        assert (info.epoch, info.sources, info.watermarks) == (manifest.epoch, manifest.sources, manifest.watermarks)
        assert (info.job.uuid, info.job.name, info.max_parallelism) == (manifest.job, "visits", 16)
        assert (info.processing_time, info.finished) == (manifest.processing_time, False)
        assert read_info(open_storage(info.uri)) == info
        due = {state.info.name: state.next_due for state in info.states}
        assert due["timers:event"] == 1_000_000
        assert {name for name, time in due.items() if time is None} == set(due) - {"timers:event"}


def test_of_an_earlier_epoch_and_of_a_finished_job(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "job")
    execute_inline(visits(tmp_path / "job"), until=10**9)
    newest = head(tmp_path / "job")
    info = make_savepoint(storage)
    assert (info.epoch, info.finished) == (newest.epoch, True)
    earlier = load_manifest(storage, Epoch(newest.epoch - 3))
    info = make_savepoint(storage, earlier.epoch)
    assert (info.epoch, info.finished) == (earlier.epoch, False)
    assert contents(info) == committed(storage, earlier) != committed(storage, newest)
    with pytest.raises(ConfigError, match="epoch 1 of"):
        make_savepoint(storage, 1)
    assert not list(storage.list(paths.PINS))


def test_where_there_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no job"):
        Job(tmp_path)


def test_savepoints_below_the_job_are_no_jobs_and_stay(tmp_path: Path) -> None:
    execute_inline(visits(tmp_path / "job"), epochs=2)
    made = [Job(tmp_path / "job").savepoint() for _ in range(2)]
    assert len({info.uri for info in made}) == 2
    execute_inline(visits(tmp_path / "job", keep=1, compact_after=1))
    for info in made:
        assert info.uri.startswith(open_storage(tmp_path / "job").uri + "/savepoints/")
        assert contents(info)["visits", "seen"]


# --- processes -------------------------------------------------------------------------------------------------------------


def test_who_writes() -> None:
    assert staff(LARGE_BYTES - 1, 8, 8, driven=False) == Staffing(0, False)
    assert staff(LARGE_BYTES, 8, 4, driven=False) == Staffing(4, False)
    assert staff(LARGE_BYTES, 2, 4, driven=False) == Staffing(2, False)
    assert staff(LARGE_BYTES, 8, 4, driven=True) == Staffing(1, True)


@pytest.mark.usefixtures("large")
def test_several_processes_write_several_files(tmp_path: Path) -> None:
    execute_inline(visits(tmp_path / "job", parallelism=3), epochs=4)
    told: list[SavepointProgress] = []
    info = make_savepoint(open_storage(tmp_path / "job"), told=told.append, driven=False)
    assert contents(info) == committed(open_storage(tmp_path / "job"), head(tmp_path / "job"))
    files = {state.info.name: [file.path for file in state.files] for state in info.states}
    assert files["seen"] == ["state/4-visits-seen.000.parquet", "state/4-visits-seen.001.parquet"]
    assert files["timers:processing"] == ["state/6-visits-timers-processing.parquet"]  # it has no entries
    assert (told[-1].groups, told[-1].of_groups, told[-1].rows) == (16, 16, info.rows)


@pytest.mark.usefixtures("large")
def test_one_process_beside_a_running_job(tmp_path: Path) -> None:
    execute_inline(visits(tmp_path / "job", parallelism=3), epochs=4)
    info = make_savepoint(open_storage(tmp_path / "job"), driven=True)
    assert contents(info) == committed(open_storage(tmp_path / "job"), head(tmp_path / "job"))
    assert {len(state.files) for state in info.states} == {1}


class Seen(KeyedProcessFunction[Any, int, int]):
    seen = ValueState(int, default=0)

    def process(self, value: int, ctx: KeyedContext[Any]) -> list[int]:
        self.seen.update(self.seen.value + 1)
        return []


@pytest.mark.usefixtures("large")
def test_files_of_a_state_have_the_same_columns(tmp_path: Path) -> None:
    """Keys whose type nobody declared have one type in one partition and another in the other: one process has to decide."""
    env = StreamEnvironment("mixed", storage=str(tmp_path / "job"), parallelism=2, max_parallelism=16)
    texts = [text for text in map(str, range(1000)) if _group(text) < 8][:50]
    numbers = [number for number in range(1000) if _group(number) >= 8][:50]
    keys: list[Any] = [*texts, *numbers]
    stream = env.from_source(GeneratorSource(int, count=100), name="numbers")
    stream.key_by(lambda number: keys[number]).process(Seen(), name="seen").sink_to(CollectSink(), name="out")
    execute_inline(env)
    info = make_savepoint(open_storage(tmp_path / "job"), driven=False)
    assert contents(info) == committed(open_storage(tmp_path / "job"), head(tmp_path / "job"))
    assert len(state_of(info, "seen", "seen").files) == 1


def _group(key: Any) -> int:
    return KeyGroups(16, NEW_JOBS).of(encode_key(key))


@pytest.mark.usefixtures("large")
def test_a_process_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute_inline(visits(tmp_path / "job", parallelism=3), epochs=4)
    manifest = head(tmp_path / "job")
    monkeypatch.setenv("PENSTOCK_FAILPOINTS", "savepoint:state=kill@2")
    with pytest.raises(StateError, match="process that writes the savepoint died"):
        Job(tmp_path / "job").savepoint(tmp_path / "place")
    monkeypatch.delenv("PENSTOCK_FAILPOINTS")
    assert not list(open_storage(tmp_path / "place").list())
    damaged = tmp_path / "job" / manifest.state.chains[1][0][-1].name
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(PenstockError, match="cannot be used"):
        Job(tmp_path / "job").savepoint(tmp_path / "place")
    assert not list(open_storage(tmp_path / "place").list())
    assert not list(open_storage(tmp_path / "job").list(paths.PINS))


# --- fail-points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["savepoint:state=raise@3", "savepoint:before-json=raise"])
def test_a_maker_that_fails_leaves_nothing(tmp_path: Path, point: str) -> None:
    execute_inline(visits(tmp_path / "job"), epochs=3)
    arm(point)
    try:
        with pytest.raises(InjectedError):
            Job(tmp_path / "job").savepoint(tmp_path / "place")
    finally:
        arm("")
    assert not list(open_storage(tmp_path / "place").list())
    assert not list(open_storage(tmp_path / "job").list(paths.PINS))
    with pytest.raises(NotFoundError, match="holds no savepoint"):
        read_info(open_storage(tmp_path / "place"))
    info = Job(tmp_path / "job").savepoint(tmp_path / "place")
    assert contents(info) == committed(open_storage(tmp_path / "job"), head(tmp_path / "job"))


# --- beside a job that runs ------------------------------------------------------------------------------------------------


class Running:
    """A job in another thread; stopped at the end of the block if it was not before."""

    def __init__(self, env: StreamEnvironment) -> None:
        self._env = env
        self._thread = threading.Thread(target=self._run)
        self.result: Any = None

    def _run(self) -> None:
        self.result = self._env.execute()

    def __enter__(self) -> Job:
        self._thread.start()
        for _ in range(1000):
            try:
                job = self._env.job
                if job.running and job.savepoint().epoch > 3:
                    return job
            except ConfigError:
                pass
            time.sleep(0.01)
        raise AssertionError("the job did not start")

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(PenstockError):  # it is stopped already
            self._env.job.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


def endless(folder: Path, **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment(
        "endless",
        storage=str(folder / "job"),
        executor="inline",
        parallelism=2,
        keep=1,
        local_dir=str(folder / "local"),
        **settings,
    )
    numbers = env.from_source(GeneratorSource(int, rate=2000), name="numbers")
    numbers.key_by(lambda number: number % 101).process(Seen(), name="seen").sink_to(CollectSink(), name="out")
    return env


def test_of_a_running_job(tmp_path: Path) -> None:
    """Each savepoint is of one epoch: it has counted every number that the source is past, and no other."""
    running = Running(endless(tmp_path, epoch_interval=0.02, compact_after=2))
    with running as job:
        made = [job.savepoint() for _ in range(4)]
        assert job.running
        stopped = job.stop(savepoint=True)
    assert stopped.savepoint is not None
    assert (stopped.epoch, stopped.savepoint.epoch) == (running.result.last_epoch, running.result.last_epoch)
    assert running.result.stopped
    for info in [*made, stopped.savepoint]:
        counted = sum(map(msgspec.msgpack.decode, contents(info)["seen", "seen"].values()))
        assert counted == info.sources["numbers"].position["next"] > 0
    epochs = [info.epoch for info in [*made, stopped.savepoint]]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]  # they went on
    with pytest.raises(PenstockError, match="is not running"):
        job.stop()


def test_where_the_savepoint_cannot_be_the_job_goes_on(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "notes.txt").write_text("mine")
    with Running(endless(tmp_path)) as job:
        with pytest.raises(ConfigError, match="is not empty"):
            job.stop(savepoint=tmp_path / "place")
        assert job.running
        assert job.stop().savepoint is None
    assert job.running is False
