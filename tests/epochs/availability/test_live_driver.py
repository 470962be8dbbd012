"""A job that is driven is not taken over by accident; one whose driver is gone starts without waiting."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.config import JobConfig
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.live_driver import check_not_driven
from penstock.errors import FencedError, JobDrivenError
from penstock.executors.inline import InlineExecutor
from penstock.jobs import paths
from penstock.jobs.lease import Lease, read_lease
from penstock.jobs.processes import born, has_died, this_machine
from penstock.jobs.terms import take_term
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import Storage, open_storage
from tests.laws.trying import Crash, Interrupted, check_exact, crash, program, run

LEASE = timedelta(seconds=4)
ROOT = Path(__file__).parents[3]


class Time:
    """A clock that a test moves; `beats`: what happens meanwhile."""

    def __init__(self, beats: Any = lambda: None) -> None:
        self.now = 0.0
        self._beats = beats

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._beats()

    def monotonic(self) -> float:
        return self.now


def ask(storage: Storage, beats: Any = lambda: None, **settings: Any) -> tuple[float, list[str]]:
    """How long a start waited, and what it said."""
    clock = Time(beats)
    told: list[str] = []
    config = JobConfig(name="numbers", storage=storage.uri, lease=LEASE, **settings)
    check_not_driven(storage, config, tell=told.append, monotonic=clock.monotonic, sleep=clock.sleep)
    return clock.now, told


class Held(InlineExecutor):
    """Waits before its third epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._runs = 0

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._runs += 1
        if self._runs == 3:
            self.reached.set()
            assert self.go_on.wait(60)
        return super().run(order)


class Driving:
    """A driver in a thread, held in its third epoch."""

    def __init__(self, folder: Path) -> None:
        self.held = Held()
        self.error: BaseException | None = None
        self._folder = folder
        self._thread = threading.Thread(target=self._drive)
        self._thread.start()
        assert self.held.reached.wait(60)

    def _drive(self) -> None:
        try:
            run(self._folder, self.held, lease=LEASE)
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self.held.go_on.set()
        self._thread.join(60)
        return self.error


@pytest.fixture
def driving(tmp_path: Path) -> Iterator[Driving]:
    driver = Driving(tmp_path)
    yield driver
    driver.ended()


def test_a_live_job_is_not_taken_over(tmp_path: Path, driving: Driving) -> None:
    terms = os.listdir(tmp_path / "storage" / "terms")
    with pytest.raises(JobDrivenError) as refused:
        run(tmp_path, lease=LEASE)
    text = str(refused.value)
    assert f"process {os.getpid()} on {socket.gethostname()}, since 20" in text
    assert f"`penstock stop {tmp_path}/storage`" in text
    assert "--take-over" in text
    assert "take_over=True" in text
    assert os.listdir(tmp_path / "storage" / "terms") == terms
    assert driving.ended() is None, "it has noticed nothing"
    check_exact(tmp_path)


def test_unless_that_is_wanted(tmp_path: Path, driving: Driving) -> None:
    assert run(tmp_path, take_over=True).finished
    assert isinstance(driving.ended(), FencedError)
    check_exact(tmp_path)


def test_a_driver_that_left_in_good_order_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(Crash):  # in this process, which lives on
        run(tmp_path, Interrupted(3, crash))
    assert ask(open_storage(tmp_path / "storage")) == (0.0, [])
    run(tmp_path)
    assert ask(open_storage(tmp_path / "storage")) == (0.0, [])


def test_nobody_has_ever_driven_it(tmp_path: Path) -> None:
    assert ask(open_storage(tmp_path / "storage")) == (0.0, [])


DRIVER = "import sys; from pathlib import Path; from tests.laws.trying import program; program(Path(sys.argv[1]), {}).execute()"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process of its own, slow."""
    script = DRIVER.format("max_records_per_epoch=1, first_records_per_epoch=1, epoch_interval=0.2, lease=1")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    started = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=environment, cwd=tmp_path)
    try:
        for _ in range(600):
            if (tmp_path / "storage" / "status.json").exists():
                break
            assert started.poll() is None
            time.sleep(0.1)
        yield started
    finally:
        started.kill()
        started.wait()


def test_a_process_of_this_host(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    """Refused while it lives; after a while if it is stopped; at once if it is killed."""
    storage = open_storage(tmp_path / "storage")
    with pytest.raises(JobDrivenError, match=f"process {process.pid} on"):
        ask(storage, lambda: time.sleep(0.1))
    os.kill(process.pid, signal.SIGSTOP)
    waited, told = ask(storage)
    assert waited == pytest.approx(2.0, abs=0.3)
    assert re.search("has not released it: watching for 2 s .*gave no sign of life", " ".join(told))
    process.kill()
    process.wait()
    assert ask(storage) == (0.0, [])


def elsewhere(storage: Storage, beat: int) -> None:
    """A beat of a driver on another host."""
    lease = Lease(1, take_term(storage) if beat == 1 else read_lease(storage).term, "far", 7, beat, 0, 4000)  # type: ignore[union-attr]
    storage.replace(paths.LEASE, msgspec.json.encode(msgspec.structs.replace(lease, machine="another", born=5)))


def test_a_driver_on_another_host_that_is_gone_is_waited_for_once(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    elsewhere(storage, 1)
    waited, told = ask(storage)
    assert waited == pytest.approx(2.0, abs=0.3)
    assert told[0] == "process 7 on far last drove the job and has not released it: watching for 2 s to see whether it is alive"


def test_a_driver_on_another_host_that_lives(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    elsewhere(storage, 1)
    with pytest.raises(JobDrivenError, match="process 7 on far"):
        ask(storage, lambda: elsewhere(storage, 2))
    assert ask(storage, take_over=True) == (0.0, [])


def test_a_number_that_another_process_has_now(tmp_path: Path) -> None:
    """The driver is dead, and its number was given to somebody else."""
    storage = open_storage(tmp_path)
    pid = os.getppid()
    for started, dead in ((born(pid), False), (born(pid) - 1, True), (0, False)):
        lease = Lease(1, take_term(storage), socket.gethostname(), pid, 1, 0, 4000, machine=this_machine(), born=started)
        assert has_died(lease) is dead


def test_a_driver_that_has_taken_a_term_and_not_beaten_yet(tmp_path: Path) -> None:
    """It is starting: what it may do next is seen."""
    storage = open_storage(tmp_path)
    life = SignOfLife(storage, JobConfig(name="numbers", storage=str(tmp_path), lease=LEASE))
    life.take_term(storage)
    storage.delete([paths.LEASE])
    try:
        with pytest.raises(JobDrivenError):
            ask(storage, life.renew)
    finally:
        life.close()
    assert ask(storage) == (0.0, [])


def test_rescaling_and_a_program_that_runs_again_do_not_wait(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "storage")
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(2, crash))
    assert program(tmp_path, lease=timedelta(hours=1)).execute().finished  # it would wait for half an hour
    assert ask(storage) == (0.0, [])
