"""Local stores go when nobody needs them: at the end of a job, after a restart of the machine, by age. One in use never goes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import GeneratorSource, StreamEnvironment
from penstock.cli.app import app
from penstock.errors import PenstockError, StateError
from penstock.state.stores import cleaning, holding, local
from penstock.state.stores.cleaning import clean, clean_beside, is_of_a_job, leave, leave_others, remove_finished, remove_folder
from penstock.state.stores.directories import LEASE
from penstock.state.stores.holding import mark_ended
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.local import boot_id, hold_job, store_path
from penstock.state.stores.store import open_stores

WEEK = 7 * 86_400.0


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    root = str(tmp_path / "local")
    yield root
    for store in open_stores():
        if store.path.startswith(os.path.realpath(tmp_path)):
            store.close()
    for folder in holding.held_for_tasks():
        if folder.startswith(root):
            holding.release_for_tasks(folder)


def made(root: str, job: str, *, days: float = 0.0, released: bool = True) -> Path:
    """Stores of a job that was used last some days ago; its folder."""
    path = store_path(root, job, "fp", 2, 1, 0)
    store = LmdbStore.open(os.path.join(path, "data-0123"))
    (Path(path) / "current").write_text("data-0123")
    if released:
        store.close()
        folder = Path(path).parents[1]
        holding.release_for_tasks(str(folder))
        age(folder, days)
    return Path(path).parents[1]


def age(folder: Path, days: float) -> None:
    then = time.time() - days * 86_400
    for place, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            os.utime(os.path.join(place, name), (then, then), follow_symlinks=False)
    os.utime(folder, (then, then))


def jobs(root: str) -> list[str]:
    boot = Path(root) / boot_id()
    return sorted(path.name for path in boot.iterdir()) if boot.exists() else []


# --- by age --------------------------------------------------------------------------------------------------------------------


def test_what_nobody_has_used_for_long_goes(root: str) -> None:
    made(root, "new", days=1)
    old = made(root, "old", days=8)
    assert [(found.job, found.why, found.removed) for found in clean(root, older_than=WEEK, dry_run=True)] == [
        ("old", "unused", False)
    ]
    assert jobs(root) == ["new", "old"]
    found = clean(root, older_than=WEEK)
    assert [(one.path, one.removed) for one in found] == [(str(old), True)]
    assert found[0].bytes > 0
    assert jobs(root) == ["new"]
    assert clean(root, older_than=0)
    assert not (Path(root) / boot_id()).exists()
    assert clean(root + "/nowhere", older_than=0) == []


def test_last_use_is_the_newest_of_all_that_is_in_it(root: str) -> None:
    folder = made(root, "job", days=30)
    next(folder.rglob("data.mdb")).write_bytes(b"changed just now")
    assert clean(root, older_than=WEEK) == []


def test_former_boots_go_at_once(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(local, "boot_id", lambda: "former")
        made(root, "old")
    age(Path(root) / "former", 3650)
    made(root, "new")
    assert [(found.job, found.why) for found in clean(root, older_than=10 * 365 * 86_400.0 * 2)] == [("old", "former boot")]
    assert os.listdir(root) == [boot_id()]


def test_the_boot_of_another_machine_that_shares_the_directory_is_not_a_former_one(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(local, "boot_id", lambda: "other-machine")
        made(root, "job")
    monkeypatch.setattr(cleaning, "_booted", lambda: 1_000_000.0)  # long ago
    assert clean(root, older_than=WEEK) == []
    assert os.listdir(root) == ["other-machine"]


# --- in use --------------------------------------------------------------------------------------------------------------------

HOLDS = """
import sys
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.local import hold_job, store_path
from penstock.state.stores import holding

how, root = sys.argv[1:]
if how == "driver":
    held = hold_job(root, "job", "the job")
else:
    path = store_path(root, "job", "fp", 2, 1, 0)
    if how == "store":  # as a process of an earlier version: only the store itself is leased
        held = LmdbStore.open(path + "/data-0123")
        holding.release_for_tasks(holding.held_for_tasks()[0])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["driver", "tasks", "store"])
def test_what_another_process_uses_stays_until_that_ends(root: str, how: str) -> None:
    folder = made(root, "job", days=30)
    other = subprocess.Popen([sys.executable, "-c", HOLDS, how, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        age(folder, 30)
        assert clean(root, older_than=0) == []
        assert clean(root, older_than=0, dry_run=True) == []
        assert not remove_finished(root, "job")
        assert (folder / "fp-p2-lmdb" / "1-0" / "data-0123" / "data.mdb").exists()
    finally:
        other.kill()
        other.communicate()
    assert [found.job for found in clean(root, older_than=0)] == ["job"]


def test_what_this_process_uses_stays(root: str) -> None:
    folder = made(root, "job", released=False)
    assert clean(root, older_than=0) == []
    held = hold_job(root, "job", "the job")
    leave(root, "job", for_good=True)
    assert folder.exists()  # the driver's
    held.release()
    assert [found.name for found in clean(root, older_than=0)] == ["the job"]


def test_a_process_that_waits_for_a_folder_that_goes_makes_it_anew(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner has the lock while a driver wants it: that one holds the new folder, not the one that is gone."""
    folder = made(root, "job")
    rename, started, held = os.rename, threading.Event(), []

    def start() -> None:
        started.set()
        held.append(hold_job(root, "job", "anew"))

    starting = threading.Thread(target=start)

    def slow(*places: Any) -> None:
        starting.start()
        started.wait(10)
        rename(*places)

    monkeypatch.setattr(os, "rename", slow)
    assert remove_folder(str(folder))
    starting.join(10)
    monkeypatch.setattr(os, "rename", rename)
    assert (folder / LEASE).read_text() == "anew"
    assert clean(root, older_than=0) == []
    held[0].release()
    assert clean(root, older_than=0)


CLEANS = """
import sys
from penstock.state.stores.cleaning import clean
sys.stdin.readline()
print(len(clean(sys.argv[1], older_than=0)))
"""


def test_of_cleaners_at_once_one_removes_each_folder(root: str) -> None:
    for number in range(30):
        made(root, f"job-{number}")
    cleaners = [
        subprocess.Popen([sys.executable, "-c", CLEANS, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for cleaner in cleaners:
        assert cleaner.stdin is not None
        cleaner.stdin.write("go\n")
        cleaner.stdin.flush()
    removed = [int(cleaner.communicate(timeout=60)[0]) for cleaner in cleaners]
    assert [cleaner.returncode for cleaner in cleaners] == [0, 0, 0]
    assert sum(removed) == 30
    assert clean(root, older_than=0) == []
    assert not (Path(root) / boot_id()).exists()


def test_what_a_cleaner_that_died_left_goes_with_the_next(root: str) -> None:
    folder = made(root, "job")
    os.rename(folder, folder.parent / f"gone-{'0' * 32}")
    assert clean(root, older_than=WEEK) == []
    assert not folder.parent.exists()


# --- what is not ours ----------------------------------------------------------------------------------------------------------


def test_links_are_never_followed(root: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    inner = made(str(tmp_path / "victim-root"), "job", days=30)
    shutil.move(inner, victim)
    folder = made(root, "job", days=30)
    boot = folder.parent
    (boot / "linked-job").symlink_to(victim)
    (Path(root) / "linked-boot").symlink_to(tmp_path / "victim-root")
    inside = made(root, "inside", days=30)
    (inside / "fp-p2-lmdb" / "2-0").symlink_to(victim / "fp-p2-lmdb" / "1-0")
    content = made(root, "content", days=30)
    (content / "fp-p2-lmdb" / "1-0" / "layers").symlink_to(victim)
    deep = made(root, "deep", days=30)
    (deep / "fp-p2-lmdb" / "1-0" / "data-0123" / "deep").symlink_to(victim)
    lease = made(root, "lease", days=30)
    (lease / LEASE).unlink()
    (lease / LEASE).symlink_to(victim / LEASE)
    store = made(root, "store", days=30)
    (store / "fp-p2-lmdb" / "1-0" / "data-0123" / LEASE).unlink()
    (store / "fp-p2-lmdb" / "1-0" / "data-0123" / LEASE).symlink_to(victim / LEASE)
    for one in (inside, content, deep, lease, store):
        age(one, 30)
    assert sorted(found.job for found in clean(root, older_than=WEEK)) == ["deep", "job"]
    assert (victim / "fp-p2-lmdb" / "1-0" / "data-0123" / "data.mdb").exists()
    assert (boot / "linked-job").is_symlink()


def test_a_directory_of_another_user_is_refused(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(root, "job", days=30)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StateError, match="another user"):
        clean(root, older_than=0)
    assert jobs(root) == ["job"]


def test_what_does_not_look_like_stores_stays(root: str) -> None:
    """Such as the checkpoint of a Spark feed, which is below `local_dir` too."""
    checkpoint = Path(root) / "0a1b-job" / "feeds" / "x-p1-lmdb" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text("{}")
    stray = made(root, "stray", days=30)
    (stray / "notes.txt").write_text("mine")
    (Path(root) / boot_id() / "empty").mkdir()
    gone = Path(root) / "docs" / f"gone-{'1' * 32}"
    gone.mkdir(parents=True)
    (gone / "notes.txt").write_text("mine")
    (Path(root) / "empty").mkdir()
    age(Path(root), 30)
    assert clean(root, older_than=0) == []
    assert (checkpoint / "metadata").exists()
    assert (gone / "notes.txt").exists()
    assert (Path(root) / "empty").exists()
    assert (stray / "notes.txt").exists()
    assert not is_of_a_job(str(stray))


# --- at the end of a job -------------------------------------------------------------------------------------------------------


def counting(local_dir: str, **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment("counting", executor="inline", parallelism=2, local_dir=local_dir, **settings)
    env.from_collection(range(20)).key_by(lambda n: n % 3).reduce(lambda a, b: a + b).print()
    return env


def wait_for_cleaners() -> None:
    for thread in threading.enumerate():
        if thread.name == "penstock-clean":
            thread.join(20)


@pytest.mark.parametrize("storage", [None, "storage"])
@pytest.mark.parametrize("kind", ["lmdb", "memory"])
def test_a_finished_job_leaves_no_stores(
    root: str, tmp_path: Path, storage: str | None, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {} if storage is None else {"storage": str(tmp_path / storage)}
    assert counting(root, state_store=kind, max_records_per_epoch=5, **settings).execute().finished
    assert jobs(root) == []
    assert not [store for store in open_stores() if store.path.startswith(root)]


def test_a_job_that_is_stopped_keeps_its_stores_and_a_drained_one_does_not(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def env() -> StreamEnvironment:
        env = StreamEnvironment("drained", executor="inline", parallelism=1, local_dir=root, storage=str(tmp_path / "storage"))
        stream = env.from_source(GeneratorSource(lambda n: n, count=None, rate=0.001))
        stream.key_by(lambda n: n % 3).reduce(lambda a, b: a + b).print()
        return env

    assert not env().execute(until_idle=True).finished
    assert len(jobs(root)) == 1
    assert env().execute(until_idle=True, drain=True).drained
    assert jobs(root) == []


def test_a_temporary_job_that_fails_leaves_no_stores(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    env = StreamEnvironment("fails", executor="inline", parallelism=1, local_dir=root, max_records_per_epoch=5)
    keyed = env.from_collection(range(20)).map(lambda n: 1 // (15 - n)).key_by(lambda n: 0)
    keyed.reduce(lambda a, b: a + b).print()
    with pytest.raises(PenstockError):
        env.execute()
    assert jobs(root) == []


def test_a_job_that_fails_keeps_its_stores_for_the_next_start(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = StreamEnvironment(
        "fails", executor="inline", parallelism=1, local_dir=root, max_records_per_epoch=5, storage=str(tmp_path / "storage")
    )
    keyed = env.from_collection(range(20)).map(lambda n: 1 // (15 - n)).key_by(lambda n: 0)
    keyed.reduce(lambda a, b: a + b).print()
    with pytest.raises(PenstockError):
        env.execute()
    assert len(jobs(root)) == 1


def test_a_driver_cleans_when_it_starts(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(root, "old", days=8)
    made(root, "new", days=6)
    counting(root).execute()
    wait_for_cleaners()
    assert jobs(root) == ["new"]
    counting(root, keep_local=5 * 86_400).execute()
    wait_for_cleaners()
    assert jobs(root) == []


def test_a_finished_job_whose_last_process_lives_on_goes_when_that_turns_to_another(root: str) -> None:
    folder = made(root, "first", released=False)
    assert not remove_finished(root, "first")
    assert folder.exists()
    leave_others(root, "first")
    assert folder.exists()
    store_path(root, "second", "fp", 2, 1, 0)
    leave_others(root, "second")
    assert jobs(root) == ["second"]


def test_an_ended_job_goes_with_the_next_cleaning_unless_it_was_begun_again(root: str) -> None:
    ended, again = made(root, "ended"), made(root, "again")
    for folder in (ended, again):
        mark_ended(str(folder))
    hold_job(root, "again", "again").release()
    assert [(found.job, found.why) for found in clean(root, older_than=WEEK)] == [("ended", "finished")]


def test_workers_clean_seldom(root: str) -> None:
    made(root, "old", days=8)
    first = clean_beside(root, WEEK, seldom=True)
    assert first is not None
    first.join(20)
    assert jobs(root) == []
    assert clean_beside(root, WEEK, seldom=True) is None


# --- the command ---------------------------------------------------------------------------------------------------------------


def penstock(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["clean", *arguments])


def test_the_command_says_what_it_removes_and_how_much(root: str) -> None:
    made(root, "old", days=8)
    hold_job(root, "old", "shop").release()
    age(Path(root) / boot_id() / "old", 8)
    made(root, "new", days=1)
    dry = penstock(root, "--dry-run")
    assert dry.exit_code == 0
    assert "would remove the local state of 1 job, " in dry.stdout
    assert "shop" in dry.stdout
    assert "8.0 d ago" in dry.stdout
    assert jobs(root) == ["new", "old"]
    assert "removed the local state of 1 job, " in penstock(root).stdout
    assert jobs(root) == ["new"]
    assert penstock(root, "--older-than", "12h", "--json").stdout.count('"job": "new"') == 1
    assert json.loads(penstock(root, "--json").stdout) == []
    assert "removed the local state of 0 jobs, 0 B" in penstock(root).stdout


def test_the_command_refuses_what_is_no_duration(root: str) -> None:
    done = penstock(root, "--older-than", "a week")
    assert done.exit_code == 1
    assert "--older-than is 'a week'" in done.output
