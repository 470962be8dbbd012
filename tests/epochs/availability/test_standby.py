"""Leases and those who stand by: decided by fake clocks, and carried out by drivers in threads."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import GeneratorSource, StreamEnvironment
from penstock.config import NO_RESTART, JobConfig, RestartPolicy
from penstock.connectors.twophase import PublishId, WriteAheadSink
from penstock.epochs.availability import lease_holder
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.standby import End, Seen, TakeOver, Verdict, Wait, Watch, observe, rest_s
from penstock.epochs.availability.standing_by import stand_by
from penstock.epochs.committing.commit_protocol import write_manifest
from penstock.epochs.history import EpochRecord, JobResult
from penstock.errors import ConfigError, FencedError, StorageError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch, Term
from penstock.jobs import paths, requests
from penstock.jobs.lease import VERSION, Lease, Released, read_lease
from penstock.jobs.requests import ask, wait_for_answer
from penstock.jobs.terms import find_head, open_job, take_term
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import LocalStorage, Storage, open_storage
from tests.laws.trying import COUNT, Crash, Interrupted, check_exact, crash, manifests, program, run

LEASE = timedelta(milliseconds=300)
LONG_LEASE = 5 * LEASE
"""No machine is so busy that a driver that works seems to hang."""
PATIENCE_S = 120


def _lease(term: int, beat: int, *, released: Released = "", lease_ms: int = 10_000, pid: int = 7) -> Lease:
    return Lease(VERSION, Term(term), "there", pid, beat, 0, lease_ms, released)


def _seen(term: int, beat: int | None, *, released: Released = "", lease_ms: int = 10_000) -> Seen:
    return Seen(term=Term(term), lease=None if beat is None else _lease(term, beat, released=released, lease_ms=lease_ms))


def _watched(watch: Watch, seen: Seen, start: float, end: float) -> Verdict:
    """The last verdict of looks a second apart."""
    now, verdict = start, watch.look(seen, start)
    while now < end and isinstance(verdict, Wait):
        now = min(now + 1.0, end)
        verdict = watch.look(seen, now)
    return verdict


# --- deciding -----------------------------------------------------------------------------------------------------------------


def test_a_beat_that_changes_is_waited_for() -> None:
    watch = Watch(10)
    assert all(isinstance(_watched(watch, _seen(1, beat), 9.0 * beat, 9.0 * beat + 8.0), Wait) for beat in range(20))


def test_a_beat_that_stands_still_is_over_after_a_lease() -> None:
    watch = Watch(10)
    assert isinstance(_watched(watch, _seen(3, 5), 100.0, 109.9), Wait)
    verdict = watch.look(_seen(3, 5), 110.0)
    assert verdict == TakeOver(Term(3), "process 7 on there has given no sign of life for 10.0 s", _lease(3, 5))


def test_a_new_term_is_a_sign_of_life() -> None:
    watch = Watch(10)
    _watched(watch, _seen(3, 5), 0.0, 9.0)
    assert isinstance(_watched(watch, _seen(4, None), 10.0, 19.0), Wait)
    assert isinstance(watch.look(_seen(4, None), 20.0), TakeOver)


def test_the_longer_lease_counts() -> None:
    """A driver that promised to beat every quarter of a minute is not dead after ten seconds."""
    watch = Watch(10)
    assert isinstance(_watched(watch, _seen(1, 1, lease_ms=60_000), 0.0, 59.0), Wait)
    assert isinstance(watch.look(_seen(1, 1, lease_ms=60_000), 60.0), TakeOver)


def test_a_look_that_fails_proves_nothing() -> None:
    """The storage does not answer for a while: then the whole lease begins anew."""
    watch = Watch(10)
    assert isinstance(_watched(watch, _seen(3, 5), 0.0, 9.0), Wait)
    watch.blind()
    assert isinstance(watch.look(_seen(3, 5), 60.0), Wait)
    assert isinstance(_watched(watch, _seen(3, 5), 61.0, 69.0), Wait)
    assert isinstance(watch.look(_seen(3, 5), 70.0), TakeOver)


def test_a_look_that_takes_long_proves_nothing() -> None:
    watch = Watch(10)
    assert isinstance(_watched(watch, _seen(3, 5), 0.0, 9.0), Wait)
    assert isinstance(watch.look(_seen(3, 5), 10.0, 15.1), Wait)
    assert isinstance(_watched(watch, _seen(3, 5), 16.0, 25.0), Wait)
    assert isinstance(watch.look(_seen(3, 5), 25.2), TakeOver)
    for start in range(0, 100, 6):
        assert isinstance(watch.look(_seen(4, 5), 30.0 + start, 35.1 + start), Wait), "a storage that is always slow"


def test_a_watcher_that_was_stopped_has_seen_nothing() -> None:
    """The whole machine was suspended, driver and all."""
    watch = Watch(10)
    assert isinstance(_watched(watch, _seen(3, 5), 0.0, 3.0), Wait)
    assert isinstance(_watched(watch, _seen(3, 5), 3600.0, 3609.0), Wait)
    assert isinstance(watch.look(_seen(3, 5), 3610.0), TakeOver)


def test_during_a_take_over_two_are_watched() -> None:
    """The driver that is to be replaced may live; so may the process that is to replace it."""
    for driver_beats, taker_beats in ((True, False), (False, True)):
        watch = Watch(10)
        for now in range(40):
            lease, attempt = _lease(3, now * driver_beats), _lease(4, now * taker_beats, pid=8)
            verdict = watch.look(Seen(term=Term(4), lease=lease, attempt=attempt), float(now))
            assert isinstance(verdict, Wait)
        assert verdict.because == f"process {'7 on there drives' if driver_beats else '8 on there is taking'} the job" + (
            "" if driver_beats else " over"
        )
        both = Seen(term=Term(4), lease=lease, attempt=attempt)
        assert isinstance(_watched(watch, both, 40.0, 48.9), Wait)
        assert isinstance(watch.look(both, 49.0), TakeOver)


@pytest.mark.parametrize(
    ("driver", "attempt", "overtaken", "at_once", "then"),
    [
        ("", "abandoned", False, Wait, TakeOver),
        ("handed-over", "abandoned", False, TakeOver, TakeOver),
        ("failed", "abandoned", False, TakeOver, TakeOver),
        ("stopped", "abandoned", False, End, End),
        ("handed-over", "", False, Wait, TakeOver),
        ("stopped", "", False, Wait, End),
        ("finished", "", False, Wait, End),
        ("stopped", "", True, Wait, TakeOver),
    ],
)
def test_a_take_over_that_was_left(
    driver: Released, attempt: Released, overtaken: bool, at_once: type[Verdict], then: type[Verdict]
) -> None:
    """How the driver before left counts as if the take-over had not been tried, once that is known to be given up."""
    watch = Watch(10)
    lease, tried = _lease(3, 5, released=driver), _lease(4, 1, released=attempt)
    seen = Seen(term=Term(4), lease=lease, attempt=tried, overtaken=overtaken)
    assert isinstance(watch.look(seen, 0.0), at_once)
    verdict = _watched(watch, seen, 1.0, 10.0)
    assert isinstance(verdict, then)
    if isinstance(verdict, TakeOver):
        assert verdict.after == 4


def test_how_long_a_standby_rests() -> None:
    assert [rest_s(number, "machine", 10.0) for number in (1, 2, 3, 4, 5, 1000)] == [2.5, 5.0, 10.0, 10.0, 10.0, 10.0]
    assert rest_s(1000, "deterministic", 10.0) == rest_s(9, "configuration", 10.0) == 300.0


def test_how_a_driver_left() -> None:
    assert Watch(10).look(_seen(2, 9, released="finished"), 0.0) == End(
        "the job is finished; its driver was process 7 on there", True
    )
    assert isinstance(Watch(10).look(_seen(2, 9, released="stopped"), 0.0), End)
    assert isinstance(Watch(10).look(_seen(2, 9, released="handed-over"), 0.0), TakeOver)
    assert isinstance(Watch(10).look(_seen(2, 9, released="failed"), 0.0), TakeOver)


def test_a_job_that_nobody_drives() -> None:
    watch = Watch(10)
    assert isinstance(_watched(watch, Seen(term=Term(0)), 0.0, 9.0), Wait)
    assert watch.look(Seen(term=Term(0)), 10.0) == TakeOver(Term(0), "no process drives the job")


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


def _found(storage: Storage) -> tuple[int, Released]:
    found = read_lease(storage)
    assert found is not None
    return found.term, found.released


def test_a_driver_that_was_replaced_writes_no_more(tmp_path: Path) -> None:
    storage, now = open_storage(tmp_path), [0.0]
    old, new = _life(tmp_path, now), _life(tmp_path, now)
    assert (old.take_term(storage), new.take_term(storage)) == (1, 2)
    old.committed()
    new.committed()
    assert not old.renew()
    old.release("stopped")
    assert _found(storage) == (2, "")
    new.release("finished")
    assert _found(storage) == (2, "finished")


def test_a_driver_keeps_its_lease_until_the_take_over_is_committed(tmp_path: Path) -> None:
    storage, now = open_storage(tmp_path), [0.0]
    driver, other = _life(tmp_path, now), _life(tmp_path, now)
    driver.take_term(storage)
    driver.committed()
    other.take_term(storage)
    seen = observe(storage)
    assert (seen.term, seen.lease and seen.lease.term, seen.attempt and seen.attempt.term) == (2, 1, 2)
    assert driver.renew()
    other.release("failed")
    seen = observe(storage)
    assert seen.attempt is not None
    assert seen.attempt.released == "abandoned"
    assert _found(storage) == (1, "")
    assert driver.renew()
    driver.release("handed-over")
    assert Watch(10).look(observe(storage), 0.0) == TakeOver(
        Term(2), f"process {os.getpid()} on {socket.gethostname()} has handed the job over", read_lease(storage)
    )


def test_a_standby_leaves_the_job_to_a_driver_that_lives_again(tmp_path: Path) -> None:
    storage, now = open_storage(tmp_path), [0.0]
    driver = _life(tmp_path, now)
    driver.take_term(storage)
    driver.committed()
    driver.close()
    config = JobConfig(name="numbers", storage=str(tmp_path), lease=timedelta(hours=1))
    standby = SignOfLife(storage, config, after=Term(1), watched=read_lease(storage))
    assert standby.gives_way
    standby.take_term(storage)
    standby.check_silent()
    driver.renew()
    with pytest.raises(FencedError, match="gives signs of life again, and keeps the job"):
        standby.check_silent()
    standby.close()
    started = _life(tmp_path, now)
    started.take_term(storage)
    started.check_silent()
    assert not started.gives_way, "a driver that was started takes the job over"
    started.close()


def test_a_storage_that_hangs_does_not_hold_up_a_driver_that_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_holder, "LEAVE_S", 0.05)
    answers, asked = threading.Event(), threading.Event()
    life = _life(tmp_path, [0.0])
    life.take_term(open_storage(tmp_path))
    life.committed()
    whole = LocalStorage.replace

    def replace(storage: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        asked.set()
        assert answers.wait(PATIENCE_S)
        whole(storage, path, data, durable=durable)

    monkeypatch.setattr(LocalStorage, "replace", replace)
    life.release("stopped")
    assert asked.wait(PATIENCE_S)
    assert _found(open_storage(tmp_path)) == (1, "")
    answers.set()


def test_a_beat_that_fails_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(tmp_path)
    life = SignOfLife(storage, JobConfig(name="numbers", storage=str(tmp_path), lease=timedelta(milliseconds=40)))
    life.take_term(storage)
    life.committed()
    failures = [0]
    whole = LocalStorage.replace

    def replace(storage: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        failures[0] += 1
        if failures[0] <= 4:
            raise [StorageError("no answer"), OSError(5, "trouble")][failures[0] % 2]
        whole(storage, path, data, durable=durable)

    monkeypatch.setattr(LocalStorage, "replace", replace)
    storage.delete([paths.LEASE])
    deadline = time.monotonic() + PATIENCE_S
    while read_lease(storage) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    life.close()


@pytest.mark.parametrize("error", [StorageError("no answer"), OSError(5, "trouble")])
def test_a_last_word_that_fails_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Or a standby would take over a job that was stopped on purpose, because its storage was away for a second."""
    life = _life(tmp_path, [0.0], restart=RestartPolicy(attempts=3, first_delay=timedelta(milliseconds=5)))
    life.take_term(open_storage(tmp_path))
    life.committed()
    failures = iter(range(3))
    whole = LocalStorage.replace

    def replace(storage: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        if next(failures, None) is not None:
            raise error
        whole(storage, path, data, durable=durable)

    monkeypatch.setattr(LocalStorage, "replace", replace)
    life.release("stopped")
    assert _found(open_storage(tmp_path)) == (1, "stopped")


def test_a_last_word_is_not_said_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_holder, "LEAVE_S", 0.05)
    life = _life(tmp_path, [0.0], restart=RestartPolicy(attempts=10**6, first_delay=timedelta(milliseconds=5)))
    life.take_term(open_storage(tmp_path))
    life.committed()
    (thread,) = [one for one in threading.enumerate() if one.name == "penstock-lease"]

    def replace(storage: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        raise StorageError("no answer")

    monkeypatch.setattr(LocalStorage, "replace", replace)
    life.release("stopped")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert _found(open_storage(tmp_path)) == (1, "")


def test_what_an_earlier_version_wrote_is_read(tmp_path: Path) -> None:
    """It wrote `lease.json` as soon as it had taken a term, and knew no other file."""
    storage = open_storage(tmp_path)
    take_term(storage)
    storage.replace(
        paths.LEASE,
        b'{"version":1,"term":1,"host":"there","pid":7,"beat":3,"renewed_ms":5,"lease_ms":10000,"released":"handed-over"}',
    )
    seen = observe(storage)
    assert (seen.term, seen.lease and seen.lease.beat, seen.driver) == (1, 3, "process 7 on there")
    assert isinstance(Watch(10).look(seen, 0.0), TakeOver)


def test_one_of_two_who_saw_the_same_takes_over(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    seen = observe(storage)
    assert take_term(storage, after=seen.term) == 1
    with pytest.raises(FencedError, match="another driver has taken the job over with term 1"):
        take_term(storage, after=seen.term)


def test_a_job_that_was_stopped_and_is_started_again_is_not_over(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "storage")
    run(tmp_path)
    life = _life(tmp_path / "storage", [0.0])
    take_term(storage)
    seen = observe(storage)
    assert (seen.term, seen.lease and seen.lease.released, seen.overtaken) == (2, "finished", False)
    assert seen.taken is not None
    watch = Watch(10)
    assert isinstance(watch.look(seen, 0.0), Wait), "it is being started again"
    assert life.take_term(storage) == 3
    life.close()
    assert isinstance(watch.look(observe(storage), 1.0), End), "that was given up: the job is as finished as it was"
    head = find_head(storage).manifest
    assert head is not None
    write_manifest(storage, msgspec.structs.replace(head, epoch=Epoch(head.epoch + 1), term=Term(3)))
    assert observe(storage).overtaken


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
        deadline = time.monotonic() + PATIENCE_S
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.01)


class Standby:
    """A standby in a thread."""

    def __init__(self, folder: Path, make: Callable[[], StreamEnvironment] | None = None, **settings: Any) -> None:
        self.heard = Heard()
        self.result: JobResult | None = None
        self._make = make or (lambda: program(folder, **{"standby": True, "lease": LEASE, **settings}))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.result = self._make().execute(listener=self.heard)

    def ended(self) -> JobResult:
        self._thread.join(PATIENCE_S)
        assert self.result is not None, self.heard.lines
        return self.result


class Held(InlineExecutor):
    """Waits in its third epoch."""

    def __init__(self, at: int = 3) -> None:
        super().__init__()
        self._at = at
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._epochs = 0

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._epochs += 1
        if self._epochs == self._at:
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)
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
    assert held.reached.wait(PATIENCE_S)
    standby = Standby(tmp_path)
    standby.heard.wait_for("stands by: process")
    result = standby.ended()
    before = {path.name for path in (tmp_path / "storage" / "epochs").glob("*.done")}
    held.go_on.set()
    thread.join(PATIENCE_S)
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
    thread = threading.Thread(target=lambda: program(tmp_path, lease=LONG_LEASE).execute(executor=held))
    thread.start()
    assert held.reached.wait(PATIENCE_S)
    standby = Standby(tmp_path, lease=LONG_LEASE)
    time.sleep(2 * LONG_LEASE.total_seconds())
    held.go_on.set()
    thread.join(PATIENCE_S)
    result = standby.ended()
    assert result.finished
    assert result.epochs == 0
    assert standby.heard.lines[-1].startswith("no longer stands by: the job is finished")
    assert {manifest.term for manifest in manifests(tmp_path)} == {1}
    check_exact(tmp_path)


def test_a_job_that_is_stopped_stays_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_EVERY_S", 0.0)
    held = Held()
    thread = threading.Thread(target=lambda: program(tmp_path, lease=LONG_LEASE).execute(executor=held))
    thread.start()
    assert held.reached.wait(PATIENCE_S)
    standby = Standby(tmp_path, lease=LONG_LEASE)
    identity = ask(open_storage(tmp_path / "storage"), "stop")
    held.go_on.set()
    assert wait_for_answer(open_storage(tmp_path / "storage"), identity, PATIENCE_S) is not None
    thread.join(PATIENCE_S)
    result = standby.ended()
    assert result.stopped
    assert not result.finished
    assert "was stopped on purpose" in standby.heard.lines[-1]
    program(tmp_path).execute()
    check_exact(tmp_path)


def test_of_several_standbys_one_takes_over(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(5, crash))
    standbys = [Standby(tmp_path, lease=2 * LONG_LEASE) for _ in range(4)]
    results = [standby.ended() for standby in standbys]
    assert sum(result.epochs > 0 for result in results) == 1
    assert {manifest.term for manifest in manifests(tmp_path)} == {2}
    check_exact(tmp_path)


# --- take-overs that fail -----------------------------------------------------------------------------------------------------


class Trouble:
    """The storage fails in calls of one method for one kind of path, this many times, in threads other than a test's."""

    def __init__(self, patch: pytest.MonkeyPatch, method: str, path: str, times: int) -> None:
        self.left = times
        whole = getattr(LocalStorage, method)

        def broken(storage: LocalStorage, name: str, *args: Any, **options: Any) -> Any:
            if path in name and self.left and threading.current_thread() is not threading.main_thread():
                self.left -= 1
                raise StorageError(f"no answer about {name}")
            return whole(storage, name, *args, **options)

        patch.setattr(LocalStorage, method, broken)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("create", "terms/"),
        ("read_range", "epochs/"),
        ("create", "epochs/"),
        ("create", ".done"),
        ("list", "epochs"),
        ("read_range", "job"),
    ],
)
def test_a_standby_whose_take_over_fails_stands_by_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(5, crash))
    trouble = Trouble(monkeypatch, method, path, 2)
    result = Standby(tmp_path).ended()
    assert not trouble.left
    assert result.finished
    check_exact(tmp_path)


def test_a_standby_that_gave_the_job_up_stands_by_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It drove; then the storage failed for longer than its restart policy allows."""
    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(3, crash))
    Trouble(monkeypatch, "create", "epochs/0000000009.json", 1)
    standby = Standby(tmp_path)
    assert standby.ended().finished
    assert any(line.startswith("gave the job up and stands by again: no answer about") for line in standby.heard.lines)
    assert sum(line.startswith("has taken over") for line in standby.heard.lines) == 2
    check_exact(tmp_path)


def test_a_standby_that_cannot_get_ready_still_stands_by(tmp_path: Path) -> None:
    class Unready(InlineExecutor):
        def prepare(self, parallelism: int, rehearse: Callable[[], CompiledJob | None]) -> None:
            raise RuntimeError("no session")

    with pytest.raises(Crash):
        program(tmp_path, lease=LEASE).execute(executor=Interrupted(3, crash))
    assert program(tmp_path, standby=True, lease=LEASE).execute(executor=Unready()).finished


def test_a_standby_of_another_job_is_refused_at_once(tmp_path: Path) -> None:
    open_job(open_storage(tmp_path / "storage"), "letters", None, otherwise=128)
    with pytest.raises(ConfigError, match="holds the job 'letters', not 'numbers'"):
        program(tmp_path, standby=True, lease=timedelta(hours=1)).execute()


@dataclass(frozen=True)
class HungSink(WriteAheadSink):
    """Hangs in its fourth call; in the fifth, which is a standby's, it works again, and the fifth goes on after the fourth."""

    row = dict

    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        sink = HUNG
        sink.calls += 1
        call = sink.calls
        if call == 4:
            sink.hangs.set()
            assert sink.works.wait(PATIENCE_S)
        if call == 5:
            sink.works.set()
            assert sink.on.wait(PATIENCE_S)
        sink.published[id.epoch] = list(rows)

    def describe(self) -> str:
        return "a sink that hangs"


class Hung:
    def __init__(self) -> None:
        self.calls = 0
        self.hangs, self.works, self.on = threading.Event(), threading.Event(), threading.Event()
        self.published: dict[int, list[Any]] = {}


HUNG = Hung()


def test_a_driver_whose_sink_hung_keeps_the_job_when_it_works_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The take-over fails: what the driver had staged is published and gone. No standby takes the job over from it then."""
    monkeypatch.setitem(globals(), "HUNG", Hung())
    settings: dict[str, Any] = {
        "storage": str(tmp_path / "storage"),
        "executor": "inline",
        "max_records_per_epoch": 20,
        "first_records_per_epoch": 20,
        "restart": NO_RESTART,
        "lease": LEASE,
    }

    def numbers(**more: Any) -> StreamEnvironment:
        env = StreamEnvironment("numbers", **settings, **more)
        env.from_source(GeneratorSource(int, count=COUNT, partitions=1), name="numbers").map(one).sink_to(HungSink(), name="out")
        return env

    held = Held(at=6)
    results: list[JobResult] = []
    environment = numbers(hang_after=2 * LEASE)
    driver = threading.Thread(target=lambda: results.append(environment.execute(executor=held)))
    driver.start()
    assert HUNG.hangs.wait(PATIENCE_S)
    standby = Standby(tmp_path, lambda: numbers(standby=True))
    assert held.reached.wait(PATIENCE_S), "the standby's take-over has let the sink work again"
    HUNG.on.set()
    standby.heard.wait_for("stands by again: There is no ")
    held.go_on.set()
    other = Standby(tmp_path, lambda: numbers(standby=True))
    other.heard.wait_for("stands by")  # or no more, if the job is finished by then
    driver.join(PATIENCE_S)
    assert [result.finished for result in results] == [True]
    assert [standby.ended().epochs, other.ended().epochs] == [0, 0]
    assert {manifest.term for manifest in manifests(tmp_path)} == {1}
    assert sorted(row["n"] for rows in HUNG.published.values() for row in rows) == list(range(COUNT))


def one(value: int) -> dict[str, int]:
    return {"n": value}


# --- a storage that does not answer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["hangs", "fails"])
def test_a_storage_that_does_not_answer_is_no_dead_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It is away for a minute, then the driver goes on; its next beat comes a moment after the storage."""
    storage, now = open_storage(tmp_path), [0.0]
    driver = _life(tmp_path, now)
    driver.take_term(storage)
    driver.committed()
    whole = LocalStorage.list
    told: list[str] = []

    def listed(storage: LocalStorage, prefix: str = "") -> Any:
        if how == "hangs" and 4.0 < now[0] < 60.0:
            now[0] = 60.0
        if how == "fails" and 4.0 < now[0] < 60.0:
            raise StorageError("no answer")
        return whole(storage, prefix)

    monkeypatch.setattr(LocalStorage, "list", listed)

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 62.5 and now[0] < 100.0:
            driver.renew()

    verdict = stand_by(
        storage,
        10.0,
        tell=told.append,
        prepare=lambda: None,
        stopping=lambda: now[0] > 1000.0,
        monotonic=lambda: now[0],
        sleep=sleep,
    )
    driver.close()
    assert isinstance(verdict, TakeOver)
    assert 108.0 < now[0] < 112.0, "the driver was seen until then"


def test_a_standby_is_stopped_while_the_storage_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def listed(storage: LocalStorage, prefix: str = "") -> Any:
        asked.set()
        assert answers.wait(PATIENCE_S)
        return iter(())

    monkeypatch.setattr(LocalStorage, "list", listed)
    verdict = stand_by(
        open_storage(tmp_path),
        0.2,
        tell=lambda text: None,
        prepare=lambda: None,
        stopping=asked.is_set,
        monotonic=time.monotonic,
        sleep=time.sleep,
    )
    assert verdict is None
    answers.set()
