"""`penstock savepoint` and `penstock stop --savepoint`: as people use them, and killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.connectors.files.reading.published import read_rows
from penstock.snapshots.savepoint.format import read_info
from penstock.storage import open_storage
from penstock.testing import execute_inline
from tests.snapshots.saving import contents, visits

PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]

COUNTING = """
from penstock import FileSink, GeneratorSource, StreamEnvironment

env = StreamEnvironment("counting", parallelism=2, executor="inline")
numbers = env.from_source(GeneratorSource(lambda n: (n % 10, 1), rate=500), name="numbers")
numbers.key_by(0).sum(1, name="sums").sink_to(FileSink("out"), name="out")
env.execute()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    execute_inline(visits(tmp_path / "job"), epochs=3)
    return tmp_path / "job"


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 1, done.output
    return done.stderr


def test_a_table_of_what_was_saved(job: Path, tmp_path: Path) -> None:
    shown = run("savepoint", job, "--to", tmp_path / "place")
    info = read_info(open_storage(tmp_path / "place"))
    assert f"savepoint of visits, epoch {info.epoch}" in shown
    assert "timers:event" in shown
    assert f"{info.rows:,}" in shown
    assert info.uri in shown.replace("\n", "")


def test_as_json_and_of_an_epoch(job: Path) -> None:
    told = json.loads(run("savepoint", job, "--json", "--epoch", 2))
    info = read_info(open_storage(told["uri"]))
    assert (told["epoch"], told["identity"], told["entries"]) == (2, info.identity, info.rows)
    assert [(s["step"], s["state"], s["entries"]) for s in told["states"]] == [
        (state.info.step, state.info.name, state.rows) for state in info.states
    ]
    assert told["uri"].startswith(open_storage(job).uri + "/savepoints/")


def test_refusals(job: Path, tmp_path: Path) -> None:
    assert "holds no job" in refused("savepoint", tmp_path)
    assert "epoch 99 of" in refused("savepoint", job, "--epoch", 99)
    assert "is not empty" in refused("savepoint", job, "--to", job)
    run("savepoint", job, "--to", tmp_path / "place")
    assert "holds a savepoint already" in refused("savepoint", job, "--to", tmp_path / "place")
    assert "none is asked for" in refused("stop", job, "--to", tmp_path / "other")


@pytest.mark.parametrize("point", ["savepoint:state=kill@2", "savepoint:before-json=kill"])
def test_killed_in_the_middle_and_made_again(job: Path, tmp_path: Path, point: str) -> None:
    command = [*PENSTOCK, "savepoint", str(job), "--to", "place"]
    killed = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PENSTOCK_FAILPOINTS": point}, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = [listed.path for listed in open_storage(tmp_path / "place").list()]
    assert any(path.endswith(".parquet") for path in left)
    assert "savepoint.json" not in left
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    info = read_info(open_storage(tmp_path / "place"))
    assert len(contents(info)["visits", "seen"]) == 37
    assert {listed.path for listed in open_storage(tmp_path / "place").list()} == {
        "savepoint.json",
        *(file.path for state in info.states for file in state.files),
    }


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "counting.py").write_text(COUNTING)
    command = [*PENSTOCK, "run", "counting.py", "--storage", "job"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(600):
                if (tmp_path / "job" / "status.json").exists():
                    break
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.1)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_running_job_goes_on_and_is_stopped_with_a_savepoint(counting: subprocess.Popen[str], tmp_path: Path) -> None:
    beside = json.loads(run("savepoint", tmp_path / "job", "--json"))
    assert counting.poll() is None
    stopped = json.loads(run("stop", tmp_path / "job", "--savepoint", "--to", tmp_path / "place", "--json"))
    counting.communicate(timeout=120)
    assert counting.returncode == 0
    assert stopped["savepoint"]["epoch"] == stopped["epoch"] > beside["epoch"]
    # Everything that the savepoint has counted is published, and nothing else.
    rows = [tuple(row.values()) for row in read_rows(tmp_path / "out")]
    read = read_info(open_storage(tmp_path / "place")).sources["numbers"].position["next"]
    assert sorted(rows) == sorted((number % 10, number // 10 + 1) for number in range(read))
    assert "is not running" in refused("stop", tmp_path / "job", "--savepoint")
