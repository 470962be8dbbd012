"""The command line as people use it: processes of their own, one of them on Spark."""

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

from penstock.connectors.files.reading.published import read_rows

PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]

BOUNDED = """
from penstock import FileSink, GeneratorSource, StreamEnvironment

env = StreamEnvironment("tens", parallelism=2)
numbers = env.from_source(GeneratorSource(lambda n: (n % 10, 1), count=1000), name="numbers")
numbers.key_by(0).sum(1, name="sums").sink_to(FileSink("out"), name="out")
env.execute()
"""

ENDLESS = """
from penstock import FileSink, GeneratorSource, StreamEnvironment

env = StreamEnvironment("endless", parallelism=1, executor="inline")
env.from_source(GeneratorSource(lambda n: n, rate=200), name="numbers").sink_to(FileSink("out"), name="out")
env.execute()
"""


def penstock(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PENSTOCK, *arguments], cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.spark
@pytest.mark.slow
def test_run_on_spark(tmp_path: Path) -> None:
    (tmp_path / "tens.py").write_text(BOUNDED)
    done = penstock("run", "tens.py", "--storage", "job", "--master", "local[2,4]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [tuple(row.values()) for row in read_rows(tmp_path / "out")]
    assert sorted(rows) == sorted((n, count) for n in range(10) for count in range(1, 101))
    assert "finished: all input is processed" in done.stderr
    assert "WARN" not in done.stderr  # neither Spark's nor Java's


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = [*PENSTOCK, "run", "endless.py", "--storage", "job"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _until_running(process, tmp_path)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _until_running(process: subprocess.Popen[str], folder: Path) -> None:
    for _ in range(600):
        if (folder / "job" / "status.json").exists():
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    raise AssertionError("the job did not start")


def test_stop_a_running_job(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    (job,) = json.loads(penstock("jobs", "--json", cwd=tmp_path).stdout)
    assert (job["condition"], job["pid"]) == ("running", endless.pid)

    done = penstock("stop", "job", "--timeout", "120", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("stopped after epoch ")

    _, errors = endless.communicate(timeout=120)
    assert endless.returncode == 0
    assert "stopped after epoch" in errors
    (job,) = json.loads(penstock("jobs", "--json", cwd=tmp_path).stdout)
    assert job["condition"] == "stopped"


def test_stop_and_drain_a_running_job(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    done = penstock("stop", "job", "--drain", "--savepoint", "--to", "savepoint", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["drained"]
    assert told["savepoint"]["epoch"] == told["epoch"]
    _, errors = endless.communicate(timeout=60)
    assert endless.returncode == 0
    assert f"drained: event time has ended, with epoch {told['epoch']}" in errors


def test_an_interrupt_stops_after_the_epoch(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(endless.pid, signal.SIGINT)
    _, errors = endless.communicate(timeout=120)
    assert endless.returncode == 0
    assert "stopped after epoch" in errors
    numbers = [row["value"] for row in read_rows(tmp_path / "out")]
    assert numbers == list(range(len(numbers)))


def test_a_killed_job_is_gone(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    endless.kill()
    endless.wait(timeout=120)
    (job,) = json.loads(penstock("jobs", "--json", cwd=tmp_path).stdout)
    assert job["condition"] == "gone"
