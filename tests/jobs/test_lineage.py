"""Lineage: what is noted where, and the tree that is read from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import Job
from penstock.cli.app import app
from penstock.jobs.lineage import read_lineage, read_notes
from penstock.storage import open_storage
from tests.laws.trying import Crash, Interrupted, crash, run


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """A job with a savepoint; a child of it, a child of an epoch, a grandchild; and a job that went back."""
    with pytest.raises(Crash):
        run(tmp_path / "a", Interrupted(6, crash))
    Job(tmp_path / "a" / "storage").savepoint(tmp_path / "saved")
    run(tmp_path / "b", restore_from=str(tmp_path / "saved"))
    epoch = Job(tmp_path / "a" / "storage").epochs()[-1].epoch
    run(tmp_path / "c", restore_from=f"{tmp_path / 'a' / 'storage'}@{epoch}")
    run(tmp_path / "d", restore_from=f"{tmp_path / 'c' / 'storage'}@latest")
    run(tmp_path / "a", restore_from=f"{tmp_path / 'a' / 'storage'}@{epoch - 1}")
    return tmp_path


def places(folder: Path, *names: str) -> list[str]:
    return [open_storage(folder / name / "storage").uri for name in names]


@pytest.mark.parametrize("asked", ["a", "b", "c", "d"])
def test_the_tree_is_the_same_from_wherever(family: Path, asked: str) -> None:
    root = read_lineage(open_storage(family / asked / "storage"))
    assert [root.storage] == places(family, "a")
    assert [note.place for note in root.savepoints] == [open_storage(family / "saved").uri]
    assert [note.job for note in root.restores] == [root.job]
    assert [child.storage for _, child in root.forks] == places(family, "b", "c")
    assert [child.storage for _, child in root.forks[1][1].forks] == places(family, "d")
    assert root.forks[0][0].place == open_storage(family / "saved").uri


def test_a_place_that_is_gone(family: Path) -> None:
    shutil.rmtree(family / "b" / "storage")
    root = read_lineage(open_storage(family / "d" / "storage"))
    assert [child.reachable for _, child in root.forks] == [False, True]
    shutil.rmtree(family / "a" / "storage")
    root = read_lineage(open_storage(family / "d" / "storage"))
    assert [root.storage] == places(family, "c")


def test_a_start_that_is_repeated_is_noted_once(family: Path) -> None:
    before = len(read_notes(open_storage(family / "a" / "storage")))
    run(family / "b", restore_from=str(family / "saved"))
    assert len(read_notes(open_storage(family / "a" / "storage"))) == before
    assert len(read_notes(open_storage(family / "b" / "storage"))) == 1


def test_a_note_that_is_damaged_is_left_out(family: Path) -> None:
    storage = open_storage(family / "a" / "storage")
    before = read_notes(storage)
    file = next((family / "a" / "storage" / "lineage").glob("savepoint-*"))
    file.write_bytes(file.read_bytes().replace(b'"epoch":', b'"epoch":1'))
    assert len(read_notes(storage)) == len(before) - 1


def test_the_command(family: Path) -> None:
    shown = CliRunner().invoke(app, ["lineage", str(family / "d" / "storage")])
    assert shown.exit_code == 0
    assert "fork of epoch" in shown.stdout
    assert "savepoint of epoch" in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["lineage", str(family / "b" / "storage"), "--json"]).stdout)
    assert [fork["job"]["storage"] for fork in told["forks"]] == places(family, "b", "c")
