"""A running job is rescaled: by a request through its storage, in the same process, with the same output."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import failpoints
from penstock.executors.inline import InlineExecutor
from penstock.jobs import requests
from penstock.jobs.requests import Answer, ask, wait_for_answer
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import open_storage
from tests.laws.test_atomic_epochs import _die
from tests.laws.trying import Crash, check_exact, program


class Asked(InlineExecutor):
    """Asks for other parallelisms while it runs, and notes which there were."""

    def __init__(self, folder: Path, wanted: list[Any]) -> None:
        super().__init__()
        self._folder = folder
        self._wanted = wanted
        self.seen: list[int] = []
        self.asked: list[str] = []

    def run(self, order: EpochOrder) -> list[TaskReport]:
        assert self._job is not None
        self.seen.append(self._job.parallelism)
        if self._wanted and len(self.seen) % 3 == 0:
            self.asked.append(ask(open_storage(self._folder / "storage"), "rescale", parallelism=self._wanted.pop(0)))
        return super().run(order)

    def answers(self) -> list[Answer]:
        found = [wait_for_answer(open_storage(self._folder / "storage"), identity, 1) for identity in self.asked]
        return [answer for answer in found if answer is not None]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_EVERY_S", 0.0)


@pytest.mark.parametrize("way", [{}, {"pipeline": 3}])
def test_the_output_is_the_same(tmp_path: Path, way: dict[str, Any]) -> None:
    executor = Asked(tmp_path, [4, 1, 3])
    result = program(tmp_path, **way).execute(executor=executor)
    check_exact(tmp_path)
    assert result.finished
    assert result.records_in == 300
    assert list(dict.fromkeys(executor.seen)) == [2, 4, 1, 3]
    answers = executor.answers()
    assert [answer.result["parallelism"] for answer in answers] == [4, 1, 3]
    assert all(answer.ok and answer.message.startswith("rescaled from") for answer in answers)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    executor = Asked(tmp_path, [0, 2, 129, "four"])
    program(tmp_path).execute(executor=executor)
    check_exact(tmp_path)
    assert set(executor.seen) == {2}
    assert [(answer.ok, answer.message) for answer in executor.answers()] == [
        (False, "cannot rescale to parallelism 0: choose 1 to max_parallelism (128)"),
        (True, "the job already has 2 partitions"),
        (False, "cannot rescale to parallelism 129: choose 1 to max_parallelism (128)"),
        (False, "cannot rescale to parallelism 'four': choose 1 to max_parallelism (128)"),
    ]


def test_one_partition_is_one(tmp_path: Path) -> None:
    executor = Asked(tmp_path, [1, 1])
    program(tmp_path).execute(executor=executor)
    assert executor.answers()[-1].message == "the job already has 1 partition"


@pytest.mark.parametrize("place", ["rescale:stopped", "rescale:taken-over"])
def test_a_crash_in_between_is_an_ordinary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(failpoints, "_act", _die)
    failpoints.arm(f"{place}=crash@1")
    try:
        with pytest.raises(Crash):
            program(tmp_path).execute(executor=Asked(tmp_path, [4]))
    finally:
        failpoints.arm("")
    program(tmp_path).execute()
    check_exact(tmp_path)


def test_a_job_in_another_thread(tmp_path: Path) -> None:
    """As `Job.rescale` does it: the asker waits for the answer while the job goes on."""
    started = threading.Event()
    go_on = threading.Event()

    class Held(InlineExecutor):
        def run(self, order: EpochOrder) -> list[TaskReport]:
            started.set()
            go_on.wait(20)
            return super().run(order)

    thread = threading.Thread(target=lambda: program(tmp_path).execute(executor=Held()))
    thread.start()
    assert started.wait(20)
    storage = open_storage(tmp_path / "storage")
    identity = ask(storage, "rescale", parallelism=5)
    go_on.set()
    answer = wait_for_answer(storage, identity, 20)
    thread.join()
    assert answer is not None
    assert answer.ok
    assert answer.result["downtime_ms"] >= 0
    check_exact(tmp_path)
