"""Programs in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
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


class Driver:
    """One of `programs/` that is looked at while it runs, in a session of its own. Its first argument is the folder."""

    def __init__(self, folder: Path, name: str, program: str, *arguments: str) -> None:
        self.out = folder / f"{name}.out"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
        }
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "programs" / f"{program}.py"), str(folder), *arguments],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.out.read_text()

    def wait_for(self, pattern: str, timeout: float = 150) -> re.Match[str]:
        deadline = time.monotonic() + timeout
        while (match := re.search(pattern, self.said())) is None:
            assert time.monotonic() < deadline, self.said()[-3000:]
            assert self.process.poll() is None or re.search(pattern, self.said()), self.said()[-3000:]
            time.sleep(0.02)
        return match

    def ended(self) -> int:
        return self.process.wait(150)

    def close(self) -> None:
        kill_session(self.process.pid)
        self.process.wait()
