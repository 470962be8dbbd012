"""A stateful job on real Spark: straight, rescaled, with failing tasks, with a lost session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import StreamEnvironment
from penstock.errors import UserCodeError
from penstock.executors.spark.executor import SparkExecutor
from penstock.runtime.messages import EpochOrder, TaskReport
from tests.laws.trying import Crash, check_exact, crash, run
from tests.spark.launching import launch

pytestmark = pytest.mark.spark


class Stopping(SparkExecutor):
    """Does something before its n-th epoch."""

    def __init__(self, spark: SparkSession, at: int = 0, action: Callable[[], None] = crash) -> None:
        super().__init__("numbers", None, {}, spark)
        self._left = at
        self._action = action

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._left -= 1
        if self._left == 0:
            self._action()
        return super().run(order)


def test_straight(spark: SparkSession, tmp_path: Path) -> None:
    result = run(tmp_path, Stopping(spark), max_records_per_epoch=50)
    assert result.finished
    check_exact(tmp_path)


def test_restored_at_another_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    for parallelism in (1, 3):
        with pytest.raises(Crash):
            run(tmp_path, Stopping(spark, 4), parallelism=parallelism, max_records_per_epoch=30)
    run(tmp_path, Stopping(spark), parallelism=2, max_records_per_epoch=60)
    check_exact(tmp_path)


def test_a_killed_worker_costs_a_task_not_the_epoch(spark: SparkSession, tmp_path: Path) -> None:
    marker = str(tmp_path / "killed")

    def deadly(n: int) -> int:
        if n == 57 and not os.path.exists(marker):
            with open(marker, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    env = StreamEnvironment("deadly", spark=spark, storage=str(tmp_path / "storage"), parallelism=2, max_records_per_epoch=40)
    totals = env.from_collection(range(120)).map(deadly).map(lambda n: (n % 7, 1)).key_by(0).sum(1).execute_and_collect()
    assert os.path.exists(marker)
    assert sorted(totals) == sorted((k, n) for k in range(7) for n in range(1, len(range(k, 120, 7)) + 1))


def test_an_error_of_the_user_names_step_function_and_record(spark: SparkSession, tmp_path: Path) -> None:
    def halve(n: int) -> float:
        return 10 / (n - 17)

    env = StreamEnvironment("wrong", spark=spark, storage=str(tmp_path), parallelism=2)
    stream = env.from_collection(range(40)).map(halve, name="halve")
    with pytest.raises(UserCodeError) as caught:
        stream.execute_and_collect()
    text = str(caught.value)
    assert "halve" in text
    assert "17" in text
    assert "ZeroDivisionError" in text
    assert f"{Path(__file__).name}:" in text


def test_shuffle_files_are_released(spark: SparkSession, tmp_path: Path, shuffle_folder: Path) -> None:
    before = set(shuffle_folder.rglob("shuffle_*"))
    result = run(tmp_path, Stopping(spark), max_records_per_epoch=3)
    assert result.epochs >= 100
    check_exact(tmp_path)
    left = [path for path in set(shuffle_folder.rglob("shuffle_*")) - before if path.is_file()]
    assert len(left) < 20, f"{len(left)} files after {result.epochs} epochs"


def test_a_lost_session_is_made_anew(tmp_path: Path) -> None:
    assert "finished=True killed=1 restarts=1" in launch("lost_session", tmp_path, str(tmp_path / "job"))


def test_classes_of_the_main_program_travel(tmp_path: Path) -> None:
    assert "rows 50" in launch("main_classes", tmp_path)
