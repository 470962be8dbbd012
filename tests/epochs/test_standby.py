"""Leases and those who stand by: decided by fake clocks, and carried out by drivers in threads."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import paths
from penstock.config import JobConfig
from penstock.epochs import control
from penstock.epochs.control import ask, wait_for_answer
from penstock.epochs.fencing import take_term
from penstock.epochs.history import EpochRecord, JobResult
from penstock.epochs.lease import VERSION, Lease, Released, SignOfLife, read_lease
from penstock.epochs.standby import End, Seen, TakeOver, Wait, Watch, observe
from penstock.errors import ConfigError, FencedError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Term
from penstock.runtime.orders import EpochOrder, TaskReport
from penstock.storage import open_storage
from tests.laws.trying import Crash, Interrupted, check_exact, crash, manifests, program

LEASE = timedelta(milliseconds=300)


def _seen(term: int, beat: int | None, *, released: Released = "", lease_ms: int = 10_000) -> Seen:
    lease = None if beat is None else Lease(VERSION, Term(term), "there", 7, beat, 0, lease_ms, released)
    return Seen(term=Term(term), lease=lease)


# --- deciding -----------------------------------------------------------------------------------------------------------------


def test_a_beat_that_changes_is_waited_for() -> None:
    watch = Watch(10)
    assert all(isinstance(watch.look(_seen(1, beat), 9.0 * beat), Wait) for beat in range(20))


def test_a_beat_that_stands_still_is_over_after_a_lease() -> None:
    watch = Watch(10)
    assert isinstance(watch.look(_seen(3, 5), 100.0), Wait)
    assert isinstance(watch.look(_seen(3, 5), 109.9), Wait)
    verdict = watch.look(_seen(3, 5), 110.0)
    assert verdict == TakeOver(Term(3), "process 7 on there has given no sign of life for 10.0 s")


def test_a_new_term_is_a_sign_of_life() -> None:
    watch = Watch(10)
    watch.look(_seen(3, 5), 0.0)
    assert isinstance(watch.look(_seen(4, None), 10.0), Wait)
    assert isinstance(watch.look(_seen(4, None), 19.0), Wait)
    assert isinstance(watch.look(_seen(4, None), 20.0), TakeOver)


def test_the_longer_lease_counts() -> None:
    """A driver that promised to beat every quarter of a minute is not dead after ten seconds."""
    watch = Watch(10)
    watch.look(_seen(1, 1, lease_ms=60_000), 0.0)
    assert isinstance(watch.look(_seen(1, 1, lease_ms=60_000), 59.0), Wait)
    assert isinstance(watch.look(_seen(1, 1, lease_ms=60_000), 60.0), TakeOver)


def test_how_a_driver_left() -> None:
    assert Watch(10).look(_seen(2, 9, released="finished"), 0.0) == End(
        "the job is finished; its driver was process 7 on there", True
    )
    assert isinstance(Watch(10).look(_seen(2, 9, released="stopped"), 0.0), End)
    assert isinstance(Watch(10).look(_seen(2, 9, released="handed-over"), 0.0), TakeOver)
    assert isinstance(Watch(10).look(_seen(2, 9, released="failed"), 0.0), TakeOver)


def test_a_job_that_nobody_drives() -> None:
    watch = Watch(10)
    assert isinstance(watch.look(Seen(term=Term(0)), 0.0), Wait)
    assert watch.look(Seen(term=Term(0)), 10.0) == TakeOver(Term(0), "nobody drives the job")


# --- beats --------------------------------------------------------------------------------------------------------------------


def _life(folder: Path, now: list[float], **settings: Any) -> SignOfLife:
    config = JobConfig(name="numbers", storage=str(folder), lease=timedelta(seconds=10), **settings)
    return SignOfLife(open_storage(folder), config, monotonic=lambda: now[0])


def test_a_loop_that_hangs_has_no_beat(tmp_path: Path) -> None:
    now = [0.0]
    life = _life(tmp_path, now, hang_after=timedelta(seconds=30))
    life.take_term(open_storage(tmp_path))
    now[0] = 1_000.0
    assert life.renew(), "it has not taken over yet: that takes as long as it takes"
    life.ready()
    now[0] += 30.0
    assert life.renew()
    now[0] += 0.1
    assert not life.renew()
    life.touch()
    assert life.renew()
    life.close()


def test_a_driver_that_was_replaced_writes_no_more(tmp_path: Path) -> None:
    storage, now = open_storage(tmp_path), [0.0]
    old, new = _life(tmp_path, now), _life(tmp_path, now)
    assert (old.take_term(storage), new.take_term(storage)) == (1, 2)
    assert not old.renew()
    old.release("stopped")
    found = read_lease(storage)
    assert found is not None
    assert (found.term, found.released) == (2, "")
    new.release("finished")
    found = read_lease(storage)
    assert found is not None
    assert found.released == "finished"


def test_one_of_two_who_saw_the_same_takes_over(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    seen = observe(storage)
    assert take_term(storage, after=seen.term) == 1
    with pytest.raises(FencedError, match="another driver has taken the job over with term 1"):
        take_term(storage, after=seen.term)


def test_a_lease_of_an_older_term_says_nothing(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    life = _life(tmp_path, [0.0])
    life.take_term(storage)
    life.release("stopped")
    take_term(storage)
    seen = observe(storage)
    assert (seen.term, seen.lease) == (2, None)
    assert seen.taken is not None


def test_a_lease_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.replace(paths.LEASE, b"{}")
    assert read_lease(storage) is None
    storage.replace(paths.LEASE, msgspec.json.encode(Lease(VERSION + 1, Term(1), "there", 7, 1, 0, 10, "")))
    assert read_lease(storage) is None


def test_what_a_standby_refuses() -> None:
    with pytest.raises(ConfigError, match="a standby is to start from a snapshot again"):
        JobConfig(name="numbers", standby=True, restore_again=True)
    with pytest.raises(ConfigError, match="hang_after is shorter than the lease"):
        JobConfig(name="numbers", hang_after=timedelta(seconds=1))


# --- drivers ------------------------------------------------------------------------------------------------------------------


class Heard:
    """What a standby says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, record: EpochRecord) -> None:
        pass

    def standing_by(self, name: str, text: str) -> None:
        self.lines.append(text)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.01)


class Standby:
    """A standby in a thread."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.heard = Heard()
        self.result: JobResult | None = None
        self._folder = folder
        self._settings = settings
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        env = program(self._folder, **{"standby": True, "lease": LEASE, **self._settings})
        self.result = env.execute(listener=self.heard)

    def ended(self) -> JobResult:
        self._thread.join(30)
        assert self.result is not None, self.heard.lines
        return self.result


class Held(InlineExecutor):
    """Waits in its third epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._epochs = 0

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._epochs += 1
        if self._epochs == 3:
            self.reached.set()
            assert self.go_on.wait(30)
        return super().run(order)


def test_a_dead_driver_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(5, crash))
    standby = Standby(tmp_path)
    result = standby.ended()
    check_exact(tmp_path)
    assert result.finished
    assert any("has given no sign of life" in line for line in standby.heard.lines)
    assert standby.heard.lines[-1].startswith("has taken over, in ")


def test_a_hung_driver_is_replaced_and_commits_nothing(tmp_path: Path) -> None:
    held, errors = Held(), []

    def drive() -> None:
        try:
            program(tmp_path, lease=LEASE, hang_after=timedelta(milliseconds=600)).execute(executor=held)
        except FencedError as error:
            errors.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    assert held.reached.wait(20)
    standby = Standby(tmp_path)
    standby.heard.wait_for("stands by: process")
    result = standby.ended()
    before = {path.name for path in (tmp_path / "storage" / "epochs").glob("*.done")}
    held.go_on.set()
    thread.join(20)
    assert len(errors) == 1
    assert {path.name for path in (tmp_path / "storage" / "epochs").glob("*.done")} == before
    assert result.finished
    lease = read_lease(open_storage(tmp_path / "storage"))
    assert lease is not None
    assert (lease.term, lease.released) == (2, "finished")
    check_exact(tmp_path)


def test_a_driver_that_works_is_left_alone(tmp_path: Path) -> None:
    """Its epoch takes several leases, but it does not hang."""
    held = Held()
    thread = threading.Thread(target=lambda: program(tmp_path, lease=LEASE).execute(executor=held))
    thread.start()
    assert held.reached.wait(20)
    standby = Standby(tmp_path)
    time.sleep(3 * LEASE.total_seconds())
    held.go_on.set()
    thread.join(20)
    result = standby.ended()
    assert result.finished
    assert result.epochs == 0
    assert standby.heard.lines[-1].startswith("stands by no more: the job is finished")
    assert {manifest.term for manifest in manifests(tmp_path)} == {1}
    check_exact(tmp_path)


def test_a_job_that_is_stopped_stays_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LOOK_EVERY_S", 0.0)
    held = Held()
    thread = threading.Thread(target=lambda: program(tmp_path, lease=LEASE).execute(executor=held))
    thread.start()
    assert held.reached.wait(20)
    standby = Standby(tmp_path)
    identity = ask(open_storage(tmp_path / "storage"), "stop")
    held.go_on.set()
    assert wait_for_answer(open_storage(tmp_path / "storage"), identity, 20) is not None
    thread.join(20)
    result = standby.ended()
    assert result.stopped
    assert not result.finished
    assert "was stopped on purpose" in standby.heard.lines[-1]
    program(tmp_path).execute()
    check_exact(tmp_path)


def test_of_several_standbys_one_takes_over(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(5, crash))
    standbys = [Standby(tmp_path, lease=10 * LEASE) for _ in range(4)]  # no machine is so busy that the winner seems to hang
    results = [standby.ended() for standby in standbys]
    assert sum(result.epochs > 0 for result in results) == 1
    assert {manifest.term for manifest in manifests(tmp_path)} == {2}
    check_exact(tmp_path)
