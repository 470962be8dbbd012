"""Three standbys in processes of their own: the driver's sink hangs, the driver is stopped and woken, the driver is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.jobs.lease import read_lease
from penstock.storage import open_storage
from tests.epochs.availability.standby_program import COUNT

PROGRAM = Path(__file__).parent / "standby_program.py"
ROOT = Path(__file__).parents[3]
PATIENCE_S = 120


class Standby:
    def __init__(self, folder: Path, number: int) -> None:
        self._out = folder / f"{number}.out"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(folder)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()


def wait_until(condition: Callable[[], bool], standbys: list[Standby]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "\n---\n".join(standby.said[-1500:] for standby in standbys)
        time.sleep(0.02)


def test_none_leaves_before_the_job_is_finished(tmp_path: Path) -> None:
    standbys = [Standby(tmp_path, number) for number in range(3)]
    storage = open_storage(tmp_path / "storage")

    def term() -> int:
        lease = read_lease(storage)
        return 0 if lease is None else lease.term

    def driver() -> subprocess.Popen[bytes]:
        lease = read_lease(storage)
        assert lease is not None
        return next(standby.process for standby in standbys if standby.process.pid == lease.pid)

    def rows() -> list[int]:
        with sqlite3.connect(tmp_path / "out.db") as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'numbers'").fetchall():
                return []  # the sink makes its file, then its table
            return [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n")]

    try:
        wait_until(lambda: term() > 0 and (tmp_path / "out.db").exists() and len(rows()) > 8, standbys)
        lock = sqlite3.connect(tmp_path / "out.db", timeout=30, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        wait_until(lambda: any("no sign of life" in standby.said for standby in standbys), standbys)
        lock.execute("ROLLBACK")
        lock.close()
        there = len(rows())
        wait_until(lambda: len(rows()) > there + 8, standbys)

        stopped, before = driver(), term()
        os.kill(stopped.pid, signal.SIGSTOP)
        wait_until(lambda: term() > before, standbys)
        os.kill(stopped.pid, signal.SIGCONT)
        there = len(rows())
        wait_until(lambda: len(rows()) > there + 8, standbys)

        killed, before = driver(), term()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        wait_until(lambda: term() > before, standbys)
        left = [standby for standby in standbys if standby.process is not killed]
        wait_until(lambda: all(standby.process.poll() is not None for standby in left), standbys)
    finally:
        for standby in standbys:
            standby.process.kill()
            standby.process.wait()
    assert rows() == list(range(COUNT))
    for standby in left:
        assert standby.process.returncode == 0, standby.said
        assert standby.said.splitlines()[-1] == "finished=True"
