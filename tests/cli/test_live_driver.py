"""`penstock run` on a job that is driven: refused without a terminal, asked at one, `--take-over`."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_processes import ENDLESS, PENSTOCK, _until_running

RUN = [*PENSTOCK, "run", "endless.py", "--storage", "job", "--lease", "4"]


def again(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *options], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "endless.py").write_text(ENDLESS.replace("rate=200", "rate=2"))  # idle in between
    with subprocess.Popen(RUN, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _until_running(process, tmp_path)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_refused_then_taken_over(driver: subprocess.Popen[str], tmp_path: Path) -> None:
    second = again(tmp_path)
    assert second.returncode == 1
    assert f"the job is already driven by process {driver.pid} on " in second.stderr
    assert ", since 20" in second.stderr
    assert f"penstock stop {tmp_path}/job" in second.stderr
    assert "`penstock run endless.py --storage job --lease 4 --take-over`" in second.stderr
    assert driver.poll() is None
    third = again(tmp_path, "--take-over", "--until-idle")
    assert third.returncode == 0, third.stderr
    assert driver.wait(60) == 1
    assert "another driver has taken the job over" in driver.communicate()[1]


def test_a_killed_driver_is_followed_at_once(driver: subprocess.Popen[str], tmp_path: Path) -> None:
    driver.kill()
    driver.wait()
    second = again(tmp_path, "--until-idle")
    assert second.returncode == 0, second.stderr
    assert "watching" not in second.stderr


@pytest.mark.parametrize("answer", ["n", "y"])
def test_asked_at_a_terminal(driver: subprocess.Popen[str], tmp_path: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    second = subprocess.Popen([*RUN, "--until-idle"], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        said = _until(ours, b"Take the job over from it? [y/N]")
        os.write(ours, f"{answer}\n".encode())
        said += _until(ours, None)
        code = second.wait(60)
    finally:
        second.kill()
        os.close(ours)
    assert f"process {driver.pid} on " in said.decode(errors="replace")
    if answer == "n":
        assert code == 1
        assert driver.poll() is None
    else:
        assert code == 0, said
        assert driver.wait(60) == 1


def _until(terminal: int, text: bytes | None) -> bytes:
    """What is shown, up to a text; None: to the end."""
    said, deadline = b"", time.monotonic() + 120
    while text is None or text not in said:
        assert time.monotonic() < deadline, said
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            try:
                said += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                if text is None:
                    return said
                raise
    return said
