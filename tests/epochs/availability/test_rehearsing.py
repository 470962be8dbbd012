"""A standby's rehearsal, and what an executor is begun for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, GeneratorSource, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.config import JobConfig
from penstock.epochs.availability.rehearsing import rehearse
from penstock.epochs.setup import Setup
from penstock.errors import JobDrivenError, StateError
from penstock.executors.inline import InlineExecutor
from penstock.jobs.terms import read_job
from penstock.runtime.job import CompiledJob, load_job
from penstock.storage import open_storage
from tests.laws.trying import Crash, Interrupted, check_exact, crash, program, run

LEASE = timedelta(milliseconds=300)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _rehearse(folder: Path, env: StreamEnvironment) -> CompiledJob | None:
    config = JobConfig(name="numbers", storage=str(folder / "storage"), parallelism=2)
    storage = open_storage(folder / "storage")
    return rehearse(Setup(graph=env._graph, config=config, storage=storage, executor=InlineExecutor()))


def test_it_compiles_what_is_committed_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        program(tmp_path).execute(executor=Interrupted(3, crash))
    before = _files(tmp_path / "storage")
    job = _rehearse(tmp_path, program(tmp_path))
    assert _files(tmp_path / "storage") == before
    assert job is not None
    assert job.job == read_job(open_storage(tmp_path / "storage")).job
    assert len(load_job(job.dumps()).stages) == len(job.stages) == 2


def test_there_is_nothing_to_rehearse_before_there_is_a_job(tmp_path: Path) -> None:
    assert _rehearse(tmp_path, program(tmp_path)) is None
    assert not (tmp_path / "storage" / "job.json").exists()


class Other(KeyedProcessFunction[int, int, int]):
    other: ValueState[int] = ValueState(int)

    def process(self, value: int, ctx: Any) -> list[int]:
        return []


def test_a_program_that_would_be_refused_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    env = StreamEnvironment("numbers", storage=str(tmp_path / "storage"), executor="inline", parallelism=2)
    numbers = env.from_source(GeneratorSource(int, count=1, partitions=2), name="numbers")
    numbers.key_by(int).process(Other(), name="another").sink_to(FileSink(str(tmp_path / "out")), name="out")
    with pytest.raises(StateError, match="number"):
        _rehearse(tmp_path, env)


class Slow(InlineExecutor):
    """An executor that takes a while to start."""

    def __init__(self, storage: Path) -> None:
        super().__init__()
        self._terms = storage / "terms"
        self.begun: list[tuple[int, int]] = []
        self.rehearsed: list[CompiledJob | None] = []

    def begin(self, parallelism: int) -> None:
        taken = len(list(self._terms.glob("*.json"))) if self._terms.exists() else 0
        self.begun.append((parallelism, taken))

    def prepare(self, parallelism: int, rehearse: Callable[[], CompiledJob | None]) -> None:
        self.rehearsed.append(rehearse())


def test_an_executor_is_begun_before_anything_of_the_job_is_read(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "storage")
    run(tmp_path, executor=slow)
    assert slow.begun == [(2, 0)]
    check_exact(tmp_path)


def test_it_is_not_begun_for_a_start_that_is_refused(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "storage")

    def start() -> None:
        with pytest.raises(JobDrivenError):
            run(tmp_path, executor=slow)

    run(tmp_path, executor=Interrupted(3, start))
    assert slow.begun == []


def test_a_standby_hands_its_executor_a_rehearsal(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(3, crash))
    slow = Slow(tmp_path / "storage")
    assert program(tmp_path, standby=True, lease=LEASE).execute(executor=slow).finished
    assert slow.rehearsed
    assert slow.rehearsed[0] is not None
    assert slow.begun == [(2, 1)]
    check_exact(tmp_path)
