"""Going back and repair on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from penstock import Job
from penstock.cli import app
from penstock.cli.commands import run
from penstock.cli.commands.run import _Watched
from penstock.cli.screen.problems import errors
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import RepeatedOutputError

PROGRAM = """
import sys
from penstock import FileSink, GeneratorSource, StreamEnvironment

version, count = int(sys.argv[1]), int(sys.argv[2])
env = StreamEnvironment("numbers", executor="inline", parallelism=1, max_records_per_epoch=10, keep=100)
numbers = env.from_source(GeneratorSource(int, count=count), name="numbers").map(lambda n: {"n": n, "version": version})
numbers.sink_to(FileSink("out"), name="out")
if len(sys.argv) > 3:
    numbers.print()
env.execute()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "numbers_app.py"
    path.write_text(PROGRAM)
    return str(path)


def penstock(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def shown() -> list[tuple[int, int]]:
    return sorted((row["n"], row["version"]) for row in read_rows("out"))


def lines(old: int, new: int) -> list[tuple[int, int]]:
    return [(n, 1 if n < old else 2) for n in range(new)]


def test_back_and_repaired(program: str) -> None:
    assert penstock("run", program, 1, 50, "--storage", "job").exit_code == 0
    assert shown() == lines(50, 50)
    done = penstock("run", program, 2, 50, "--storage", "job", "--from", "@3")
    assert done.exit_code == 0, done.output
    assert "goes back to epoch 3" in done.stderr
    assert shown() == lines(20, 50)
    done = penstock("run", program, 2, 50, "--storage", "job", "--from", "@2", "--repair")
    assert done.exit_code == 0, done.output
    assert "stays until the new one has caught up" in done.stderr
    assert shown() == lines(10, 50)
    again = penstock("run", program, 2, 50, "--storage", "job", "--from", "@2", "--repair")
    assert again.exit_code == 0, "the command may stay the same"
    told = penstock("epochs", "job", "--json").stdout
    assert '"back_to": 2' in told
    assert any("output published after epoch 2" in kept.repair for kept in Job("job").epochs())
    assert not Job("job").epochs()[-1].repair


def test_repeats_are_refused_without_a_terminal(program: str) -> None:
    assert penstock("run", program, 1, 30, "print", "--storage", "job").exit_code == 0
    refused = penstock("run", program, 2, 30, "print", "--storage", "job", "--from", "@2")
    assert refused.exit_code == 1
    assert "repeated output error: going back to epoch 2 would publish again" in refused.stderr
    assert "print): epochs 3 to 4; 20 records" in refused.stderr
    assert "--repeat-output" in refused.stderr
    assert shown() == lines(30, 30)
    done = penstock("run", program, 2, 30, "print", "--storage", "job", "--from", "@2", "--repeat-output")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("'version': 2") == 20
    assert shown() == lines(10, 30)


@pytest.mark.parametrize("answer", [True, False])
def test_somebody_at_the_terminal_is_asked(program: str, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    assert penstock("run", program, 1, 30, "print", "--storage", "job").exit_code == 0
    asked: list[str] = []

    def ask(question: str, **options: Any) -> bool:
        asked.append(question)
        return answer

    class Terminal:
        """Stands for `sys`."""

        stdin = type("stdin", (), {"isatty": staticmethod(lambda: True)})

    monkeypatch.setattr(typer, "confirm", ask)
    monkeypatch.setattr(run, "sys", Terminal)
    monkeypatch.setattr(type(errors), "is_terminal", property(lambda console: console is errors))
    done = penstock("run", program, 2, 30, "print", "--storage", "job", "--from", "@2")
    assert asked == ["Publish it again?"]
    assert done.exit_code == (0 if answer else 1), done.output
    assert shown() == (lines(10, 30) if answer else lines(30, 30))


def test_the_live_table_makes_room_for_the_question() -> None:
    progress = _Watched(Console(force_terminal=True, stderr=True))
    progress.started("numbers", "job")
    live = progress._live
    assert live is not None
    running = [live.is_started]
    with progress.paused():
        running.append(live.is_started)
    running.append(live.is_started)
    assert running == [True, False, True]
    progress.ended(None, RepeatedOutputError("refused"))
