"""Programs in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.torture.processes import kill_session

ROOT = Path(__file__).resolve().parents[2]


def launch(program: str, folder: Path, *arguments: str, timeout: float = 240, points: str = "", killed: bool = False) -> str:
    """Run one of `programs/` to its end; what it printed. Nothing it started is left behind.

    `points`: fail-points of driver and workers; each must have acted, in one process. `killed`: the driver is to die of one.
    """
    once = Path(tempfile.mkdtemp(prefix="once-", dir=folder))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder),
        "PENSTOCK_FAILPOINTS": points,
        "PENSTOCK_FAILPOINTS_ONCE": str(once),
    }
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "programs" / f"{program}.py"), *arguments],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, errors = process.communicate(timeout=timeout)
    finally:
        kill_session(process.pid)
        process.wait()
    code = -signal.SIGKILL if killed else 0
    assert process.returncode == code, f"{program} ended with {process.returncode}\n{told}\n{errors[-4000:]}"
    armed = {point.partition("=")[0].replace(":", "_") for point in points.split(";") if point}
    assert armed == {mark.name for mark in once.iterdir()}
    return told
