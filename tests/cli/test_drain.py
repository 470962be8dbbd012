"""Draining from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock import read_output
from penstock.cli import app

PROGRAM = """
from penstock import *

env = StreamEnvironment("clicks", executor="inline", parallelism=1)
marks = Watermarks.monotonous(timestamp="time")
clicks = env.from_source(FileSource("in", watch=0.1), watermarks=marks, name="clicks")
sessions = clicks.key_by("user").window(SessionWindows(minutes=30)).aggregate(count(), name="sessions")
sessions.sink_to(FileSink("out", format="json"), name="out")
env.execute()
"""


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_until_idle_and_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.py").write_text(PROGRAM)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": "ann", "time": 1000}\n{"user": "ann", "time": 2000}\n')
    assert penstock("run", "clicks.py", "--storage", "job", "--until-idle").exit_code == 0
    assert not (tmp_path / "out" / "data").exists()  # the session is open

    alone = penstock("run", "clicks.py", "--storage", "job", "--drain")
    assert alone.exit_code == 1
    assert "the job waits for more" in alone.stderr

    done = penstock("run", "clicks.py", "--storage", "job", "--until-idle", "--drain")
    assert done.exit_code == 0, done.output
    assert "drained: event time has ended" in done.stderr
    assert [row["count"] for row in read_output("out")] == [2]
    (job,) = json.loads(penstock("jobs", "--json").stdout)
    assert job["condition"] == "drained"
    assert "drained" in penstock("epochs", "job").stdout
    before = json.loads(penstock("epochs", "job", "--json").stdout)[-1]["drained"]

    again = penstock("run", "clicks.py", "--storage", "job", "--until-idle")
    assert again.exit_code == 1
    assert "this job was drained" in again.stderr
    assert f"job@{before}" in again.stderr
    (job,) = json.loads(penstock("jobs", "--json").stdout)
    assert job["condition"] == "drained"

    (tmp_path / "in" / "b.json").write_text('{"user": "ann", "time": 3000}\n')
    back = penstock("run", "clicks.py", "--storage", "job", "--until-idle", "--drain", "--from", f"@{before}")
    assert back.exit_code == 0, back.output
    assert [row["count"] for row in read_output("out")] == [3]
