"""Where savepoints are made: half-made ones are swept, anything else is refused, and there is one maker at a time."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import msgspec
import pytest

from penstock.errors import ConfigError, StateError
from penstock.ids import Epoch, JobId
from penstock.jobs.manifest import StateInfo
from penstock.snapshots.savepoint.format import SavedJob, SavepointWriter, read_info
from penstock.snapshots.savepoint.target_folder import MAKING, STALE_MS, Making
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.storage import LocalStorage

COUNT = StateInfo("count-it", "count", "value", schema="int", key_schema="str")
GONE = 2**22 + 1


@pytest.fixture
def place(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "place"))


def make(place: LocalStorage) -> None:
    with SavepointWriter(place, key_groups=KeyGroups(4, NEW_JOBS)) as savepoint:
        savepoint.state(COUNT)
        savepoint.finish(job=SavedJob(JobId("j"), "job"), epoch=Epoch(1))


def half_made(place: LocalStorage, host: str, pid: int) -> None:
    place.create("state/1-count-it-count.parquet", b"anything")
    place.create("state/2-count-it-.000.parquet", b"anything")
    place.create(MAKING, msgspec.json.encode(Making(1, "another", host, pid, round(time.time() * 1000))))


def names(place: LocalStorage) -> list[str]:
    return [listed.path for listed in place.list()]


def test_a_savepoint_leaves_no_mark(place: LocalStorage) -> None:
    make(place)
    assert names(place) == ["savepoint.json", "state/1-count-it-count.parquet"]


def test_a_savepoint_is_never_overwritten(place: LocalStorage) -> None:
    make(place)
    before = read_info(place)
    with pytest.raises(ConfigError, match="holds a savepoint already"):
        make(place)
    assert read_info(place) == before


def test_what_a_dead_maker_left_is_swept(place: LocalStorage) -> None:
    half_made(place, socket.gethostname(), GONE)
    make(place)
    assert names(place) == ["savepoint.json", "state/1-count-it-count.parquet"]


def test_leftovers_without_a_mark_are_swept(place: LocalStorage) -> None:
    half_made(place, socket.gethostname(), GONE)
    place.delete([MAKING])
    make(place)
    read_info(place)


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_a_living_maker_is_left_alone(place: LocalStorage, host: str) -> None:
    half_made(place, socket.gethostname() if host == "here" else "another-host", os.getppid())
    before = names(place)
    with pytest.raises(ConfigError, match="another savepoint is being made"):
        make(place)
    assert names(place) == before


def test_a_maker_elsewhere_that_gives_no_sign_of_life_is_dead(place: LocalStorage) -> None:
    half_made(place, "another-host", 1)
    old = time.time() - STALE_MS / 1000 - 1
    os.utime(Path(place.root) / MAKING, (old, old))
    make(place)
    read_info(place)


@pytest.mark.parametrize(
    "foreign", ["notes.txt", "job.json", "state/s0/p0/0000000001-1-1-0-0.delta", "state/mine.parquet", "x/making.json"]
)
def test_what_is_not_ours_is_refused_and_stays(place: LocalStorage, foreign: str) -> None:
    half_made(place, socket.gethostname(), GONE)
    place.create(foreign, b"precious")
    before = names(place)
    with pytest.raises(ConfigError, match="is not empty") as caught:
        make(place)
    assert foreign in caught.value.detail
    assert names(place) == before


def test_a_maker_that_was_taken_for_dead_does_not_finish(place: LocalStorage) -> None:
    taken = pytest.raises(ConfigError, match="another savepoint is being made")
    with taken, SavepointWriter(place, key_groups=KeyGroups(4, NEW_JOBS)) as slow:
        slow.state(COUNT)
        place.delete([MAKING])
        half_made(place, "another-host", 1)
        place.delete(["state/1-count-it-count.parquet"])
        slow.finish(job=SavedJob(JobId("j"), "job"), epoch=Epoch(1))
    assert "savepoint.json" not in names(place)
    assert MAKING in names(place)  # the other one's


def test_one_that_is_not_finished_leaves_nothing(place: LocalStorage) -> None:
    with (
        pytest.raises(StateError, match="was not finished"),
        SavepointWriter(place, key_groups=KeyGroups(4, NEW_JOBS)) as savepoint,
    ):
        savepoint.state(COUNT)
    assert names(place) == []
    with pytest.raises(KeyboardInterrupt), SavepointWriter(place, key_groups=KeyGroups(4, NEW_JOBS)) as savepoint:
        savepoint.state(COUNT)
        raise KeyboardInterrupt
    assert names(place) == []
    make(place)


def test_it_is_used_in_a_with_block(place: LocalStorage) -> None:
    with pytest.raises(StateError, match="with-block"):
        SavepointWriter(place, key_groups=KeyGroups(4, NEW_JOBS)).state(COUNT)
    assert names(place) == []
