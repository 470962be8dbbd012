"""`run --standby`, `run --mirror`, `rescale`: what the command line says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock import Job
from penstock.cli import app
from penstock.executors.inline import InlineExecutor
from penstock.jobs import requests
from penstock.runtime.messages import EpochOrder, TaskReport
from tests.laws.trying import check_exact, program

PROGRAM = """
from pathlib import Path
from tests.laws.trying import program

program(Path({folder!r})).execute()
"""


def penstock(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers_app.py"
    path.write_text(PROGRAM.format(folder=str(tmp_path)))
    return path


def test_a_standby_of_nobody_drives_and_then_is_not_needed(numbers: Path, tmp_path: Path) -> None:
    first = penstock("run", numbers, "--standby", "--lease", 0.3)
    assert first.exit_code == 0, first.output
    assert "numbers: stands by: the job has not been driven yet" in first.stderr
    assert "numbers: takes over: no process drives the job" in first.stderr
    assert "numbers: has taken over, in " in first.stderr
    again = penstock("run", numbers, "--standby", "--lease", 0.3)
    assert again.exit_code == 0, again.output
    assert "no longer stands by: the job is finished" in again.stderr
    assert "ended without executing anything" not in again.stderr
    check_exact(tmp_path)


def test_a_mirror_is_started_from(numbers: Path, tmp_path: Path) -> None:
    assert penstock("run", numbers, "--mirror", tmp_path / "mirror").exit_code == 0
    (tmp_path / "storage").rename(tmp_path / "lost")
    done = penstock("run", numbers, "--storage", tmp_path / "mirror")
    assert done.exit_code == 0, done.output
    assert "is a mirror of" in done.stderr
    assert "no epoch is known to be lost" in done.stderr
    check_exact(tmp_path)


@contextmanager
def held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job whose first epoch ends only when somebody has asked it for something."""
    monkeypatch.setattr(requests, "LOOK_EVERY_S", 0.0)
    reached, go_on = threading.Event(), threading.Event()

    class Held(InlineExecutor):
        def run(self, order: EpochOrder) -> list[TaskReport]:
            reached.set()
            assert go_on.wait(20)
            return super().run(order)

    thread = threading.Thread(target=lambda: program(folder).execute(executor=Held()))
    thread.start()
    assert reached.wait(20)
    threading.Timer(0.2, go_on.set).start()
    yield
    thread.join(20)


def test_rescale_to_the_number_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path, monkeypatch):
        done = penstock("rescale", tmp_path / "storage", 2)
    assert done.exit_code == 0, done.output
    assert done.stdout == "the job already has 2 partitions\n"
    check_exact(tmp_path)


def test_rescale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path, monkeypatch):
        done = penstock("rescale", tmp_path / "storage", 3, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["before"], told["parallelism"]) == (2, 3)
    check_exact(tmp_path)
    refused = penstock("rescale", tmp_path / "storage", 5)
    assert refused.exit_code == 1
    assert "the job is not running" in refused.stderr
    assert "penstock run APP.py --parallelism 5" in refused.stderr
    assert Job(tmp_path / "storage").running is False
