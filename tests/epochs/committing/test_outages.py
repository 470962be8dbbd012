"""A short outage of the storage, wherever it hits the driver: the restart policy decides, and the output is exact."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, JobResult, RestartPolicy, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.epochs.availability import mirror
from penstock.epochs.committing import retention
from penstock.errors import ConfigError, StorageError
from penstock.failpoints import InjectedError, arm
from penstock.jobs import paths, requests
from penstock.jobs.lineage import read_notes
from penstock.jobs.requests import Answer, ask, wait_for_answer
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import LocalStorage
from penstock.testing import End, ScriptedSource, VirtualClock
from tests.epochs.committing.outages import WRITES, Outage

SOON = RestartPolicy(attempts=20, first_delay=timedelta(milliseconds=1), factor=1.0)
NUMBERS = list(range(12))
STOP_AT = 60


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every look for requests and every sweep happens at once; nothing is synced."""
    monkeypatch.setattr(requests, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(retention, "GRACE_MS", 0)
    monkeypatch.setattr(mirror, "AGAIN_S", 0.05)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    yield
    arm("")


def run(folder: Path, *items: Any, clock: VirtualClock | None = None, **settings: Any) -> JobResult:
    defaults: dict[str, Any] = {"restart": SOON, "keep": 1, "compact_after": 2, "pipeline": 0, "guarantee": "exactly-once"}
    env = StreamEnvironment(
        "outages",
        executor="inline",
        parallelism=1,
        storage=str(folder / "storage"),
        local_dir=str(folder / "local"),
        **{**defaults, **settings},
    )
    numbers = env.from_source(ScriptedSource([*NUMBERS, *items], cut=4), name="numbers").map(lambda row: row, name="same")
    numbers.key_by(lambda n: n % 3).sum(name="sums").sink_to(FileSink(str(folder / "out"), format="json"), name="out")
    return env.execute(clock=clock or VirtualClock())


def finish(folder: Path, outage: Outage | None, **settings: Any) -> None:
    """A new job: from the first look at an empty folder to its end."""
    assert run(folder, End(), **settings).finished


def go_on(folder: Path, outage: Outage | None, **settings: Any) -> None:
    """Go on after a crash that left an epoch which is committed and not published."""
    assert outage is not None
    with outage.over():
        arm("manifest:after=raise@3")
        with pytest.raises(InjectedError):
            run(folder, End(), **{**settings, "restart": NO_RESTART})
        arm("")
    assert run(folder, End(), **settings).finished


def idle_then_stopped(folder: Path, outage: Outage | None, **settings: Any) -> None:
    """A job with nothing to do, which is asked to stop, and answers."""
    clock, storage, asked = VirtualClock(), LocalStorage(folder / "storage"), list[str]()

    def stop() -> None:
        assert outage is not None
        with outage.over():
            if not asked:
                asked.append(ask(storage, "stop"))

    clock.alarm(STOP_AT, stop)
    assert run(folder, clock=clock, **settings).stopped
    assert outage is not None
    with outage.over():
        answer = wait_for_answer(storage, asked[0], 0)
        assert isinstance(answer, Answer)
        assert answer.ok
        assert list(storage.list(paths.REQUESTS)) == []


def sums() -> list[int]:
    totals = [0, 0, 0]
    found = []
    for number in NUMBERS:
        totals[number % 3] += number
        found.append(totals[number % 3])
    return sorted(found)


SCENES: dict[str, Callable[..., None]] = {"new": finish, "after a crash": go_on, "idle": idle_then_stopped}
WAYS = {"one call": (1, False), "several calls": (5, False), "lost replies": (3, True)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scene", SCENES)
def test_an_outage_at_every_call(tmp_path: Path, scene: str, way: str) -> None:
    length, lost = WAYS[way]
    with pytest.MonkeyPatch.context() as patch:
        whole = Outage(patch, tmp_path / "whole")
        SCENES[scene](tmp_path / "whole", whole)
    assert len(whole.calls) > 60
    for first, call in enumerate(whole.calls, 1):
        if not lost or call.startswith(WRITES):
            hit(tmp_path / str(first), scene, first, first + length - 1, lost=lost)


def hit(folder: Path, scene: str, first: int, last: int, *, lost: bool = False, **settings: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        outage = Outage(patch, folder, first, last, lost=lost)
        try:
            SCENES[scene](folder, outage, **settings)
        except Exception as error:
            raise AssertionError(f"call {first}: {outage.calls[first - 1 : last]}") from error
    assert outage.failed, f"call {first}"
    assert sorted(row["value"] for row in read_rows(folder / "out")) == sums(), outage.calls[first - 1 : last]


@pytest.mark.parametrize("pipeline", [0, 3])
def test_long_outages_of_a_job_with_everything(tmp_path: Path, pipeline: int) -> None:
    """A mirror beside it, and epochs that run ahead of their commit."""
    for first in range(3, 70, 16):
        folder = tmp_path / str(first)
        hit(folder, "new", first, first + 14, mirror=str(folder / "mirror"), pipeline=pipeline)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_other_guarantees_survive_it_too(tmp_path: Path, guarantee: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = Outage(patch, tmp_path / "whole")
        finish(tmp_path / "whole", whole, guarantee=guarantee)
    for first in range(1, len(whole.calls) + 1, 3):
        folder = tmp_path / str(first)
        with pytest.MonkeyPatch.context() as patch:
            outage = Outage(patch, folder, first, first + 2)
            finish(folder, outage, guarantee=guarantee)
        found, wanted = Counter(row["value"] for row in read_rows(folder / "out")), Counter(sums())
        assert guarantee == "at-most-once" or wanted <= found, outage.calls[first - 1]
        assert guarantee == "at-least-once" or len(found) <= len(wanted), outage.calls[first - 1]


def test_a_start_from_a_savepoint(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        go_on(tmp_path / "first", Outage(patch, tmp_path / "first"))
    (tmp_path / "saved").mkdir()
    make_savepoint(LocalStorage(tmp_path / "first" / "storage"), to=str(tmp_path / "saved"))
    for first in range(1, 60, 4):
        folder = tmp_path / str(first)
        with pytest.MonkeyPatch.context() as patch:
            outage = Outage(patch, tmp_path, first, first + 3)
            assert run(folder, End(), restore_from=str(tmp_path / "saved")).finished
            with outage.over():
                (restored,) = read_notes(LocalStorage(folder / "storage"))
        assert outage.failed
        assert restored.kind == "restore"


def test_an_idle_job_is_not_given_up_on_for_outages_long_past(tmp_path: Path) -> None:
    """Failures count in a row: every look that goes well begins anew."""
    with pytest.MonkeyPatch.context() as patch:
        outage = Outage(patch, tmp_path)
        clock, looks = VirtualClock(), list[int]()

        def look_fails_now_and_then(storage: LocalStorage, prefix: str = "") -> Iterator[Any]:
            if prefix == paths.REQUESTS:
                looks.append(1)
                if len(looks) % 4 == 0:
                    raise StorageError("no answer")
            return listing(storage, prefix)

        listing = LocalStorage.list
        patch.setattr(LocalStorage, "list", look_fails_now_and_then)
        asked: list[str] = []
        clock.alarm(2_000, lambda: asked.append(ask(LocalStorage(tmp_path / "storage"), "stop")) if not asked else None)
        once = RestartPolicy(attempts=1, first_delay=timedelta(milliseconds=1))
        result = run(tmp_path, clock=clock, restart=once)
        assert result.stopped
        assert result.restarts > 10
    assert outage.calls


def test_an_outage_that_does_not_end_is_given_up_on_when_idle(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        outage = Outage(patch, tmp_path)
        clock = VirtualClock()
        clock.alarm(100, lambda: outage.begin())
        policy = RestartPolicy(attempts=3, first_delay=timedelta(milliseconds=1))
        with pytest.raises(StorageError, match="gave no answer") as error:
            run(tmp_path, clock=clock, restart=policy)
    assert any("gave up after 4 failures" in note for note in error.value.__notes__)


def test_a_commit_that_always_fails_is_given_up_on_though_the_epochs_run(tmp_path: Path) -> None:
    """Epochs that run ahead of their commit do not set the count back."""
    with pytest.MonkeyPatch.context() as patch:
        create = LocalStorage.create

        def full(storage: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
            if paths.epoch_of_manifest(path) not in (None, 1):
                raise StorageError("the disk is full")
            create(storage, path, data, durable=durable)

        patch.setattr(LocalStorage, "create", full)
        policy = RestartPolicy(attempts=3, first_delay=timedelta(milliseconds=1))
        with pytest.raises(StorageError, match="the disk is full"):
            run(tmp_path, End(), restart=policy, pipeline=3)


def test_what_another_attempt_would_not_change_is_told_at_once(tmp_path: Path) -> None:
    run(tmp_path, End())
    clock = VirtualClock()
    env = StreamEnvironment("another", executor="inline", storage=str(tmp_path / "storage"))
    env.from_collection([1], name="one").print()
    with pytest.raises(ConfigError, match="holds the job"):
        env.execute(clock=clock)
    assert clock.slept == []
