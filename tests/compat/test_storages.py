"""Storages of jobs that earlier commits wrote: resumed, replayed and read."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from penstock import CollectSink, Job, snapshots
from penstock.storage import open_storage
from tests.compat.make import output
from tests.compat.program import program

HERE = Path(__file__).parent
KEPT = sorted(path.parent for path in HERE.glob("*/storage"))
END = 10**9


@pytest.fixture(params=KEPT, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def job(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder / "storage", tmp_path / "job"))


def expected(folder: Path) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in json.loads((folder / "expected.json").read_text()))


def test_there_is_one_from_before_the_rooms() -> None:
    assert "0.1.0-one-order" in [folder.name for folder in KEPT]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_it_is_resumed(folder: Path, job: Path, parallelism: int) -> None:
    assert output(storage=str(job), parallelism=parallelism, until=END) == expected(folder)


def test_it_is_read(folder: Path, job: Path) -> None:
    """What its newest epoch holds is what the savepoint of it holds."""
    states = snapshots.diff(str(job), str(folder / "savepoint")).states
    assert not any(state.added or state.removed or state.changed for state in states)
    with snapshots.read(str(job)) as snapshot:
        numbers = snapshot.state("account", "number").to_arrow().to_pydict()
        assert len(numbers["key"]) == 12
        assert min(numbers["value"]) > 0


def test_its_epochs_are_replayed(job: Path) -> None:
    """Those that are kept, and whose state before them is; what they wrote is what they write now."""
    epochs = [one.epoch for one in snapshots.replayable(open_storage(job))]
    assert epochs
    for epoch in epochs:
        sink = CollectSink()
        try:
            replayed = snapshots.replay(job, epoch, env=program(sink))
            assert replayed.steps
            if job_is_of_one_order(job):
                assert replayed.reproduced, str(replayed)
        finally:
            sink.discard()


def job_is_of_one_order(job: Path) -> bool:
    """Epochs of before that order replay with differences in states with a ttl in event time."""
    newest = max((job / "epochs").glob("*.json"))
    return bool(json.loads(newest.read_text())["manifest"]["version"] >= 3)


def test_its_savepoint_is_restored(folder: Path, tmp_path: Path) -> None:
    found = output(storage=str(tmp_path / "fork"), restore_from=str(folder / "savepoint"), parallelism=3, until=END)
    assert found == expected(folder)


def test_a_savepoint_is_made_of_it_and_restored(folder: Path, job: Path, tmp_path: Path) -> None:
    info = Job(str(job)).savepoint(tmp_path / "savepoint")
    assert output(storage=str(tmp_path / "fork"), restore_from=info.uri, parallelism=3, until=END) == expected(folder)
