"""A damaged state file, on Spark, through the command line: nothing is committed on top, and the hint is a command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.laws.trying import check_exact, manifests
from tests.spark.launching import ROOT
from tests.spark.programs.spoiled import newest_state_file, spoil
from tests.torture.processes import kill_session

pytestmark = pytest.mark.spark

PROGRAM = str(ROOT / "tests" / "spark" / "programs" / "spoiled.py")


def penstock(folder: Path, *words: str, points: str = "") -> tuple[int, str]:
    """A command to its end: its exit code, and what it said."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "PENSTOCK_FAILPOINTS": points,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli import main; main()", *words],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = process.communicate(timeout=180)
    finally:
        kill_session(process.pid)
        process.wait()
    return process.returncode, told


def fall_back(folder: Path, told: str, path: Path) -> None:
    """Check what was said, and do it."""
    whole = max(m.epoch for m in manifests(folder) if path.name not in str(m.state.chains))
    hinted = re.search(rf"(?s){path.name}.*resume from epoch {whole}, the newest that is whole: `(penstock run [^`]*)`", told)
    assert hinted is not None, told
    _, *words = shlex.split(hinted[1])
    code, told = penstock(folder, *words)
    assert code == 0, told
    check_exact(folder)


def test_a_driver_that_starts(tmp_path: Path) -> None:
    code, told = penstock(tmp_path, "run", PROGRAM, "--", str(tmp_path), points="manifest:after=kill@8")
    assert code == -signal.SIGKILL, told
    shutil.rmtree(tmp_path / "local")
    path = newest_state_file(tmp_path)
    spoil(path)
    epochs = sorted(os.listdir(tmp_path / "storage" / "epochs"))
    code, told = penstock(tmp_path, "run", PROGRAM, "--", str(tmp_path))
    assert code == 1, told
    assert sorted(os.listdir(tmp_path / "storage" / "epochs")) == epochs, "nothing was committed"
    fall_back(tmp_path, told, path)


def test_a_driver_that_runs(tmp_path: Path) -> None:
    code, told = penstock(tmp_path, "run", PROGRAM, "--", str(tmp_path), "5")
    assert code == 1, told
    spoilt = re.search("spoilt: (.*)", told)
    assert spoilt is not None, told
    path = Path(spoilt[1])
    # As a rule epochs were committed on top; a worker that is new reads the file at once.
    assert any(path.name in str(m.state.chains) for m in manifests(tmp_path))
    fall_back(tmp_path, told.replace(" 5`", "`"), path)  # this time without spoiling
