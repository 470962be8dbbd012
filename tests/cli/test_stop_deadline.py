"""A job that was told to stop ends in bounded time, whatever its driver waits in."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from penstock.running import stop_deadline
from penstock.running.stop_deadline import StopDeadline

PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]

HANGING = """
import os, sys, time
from penstock import FileSink, GeneratorSource, StreamEnvironment

def hang(value):
    if value == 5:
        os.write(2, b"hangs\\n")
        while True:
            try:
                time.sleep(600)
            except BaseException:
                if STUBBORN:
                    os.write(2, b"stays\\n")
                else:
                    raise
    return value

STUBBORN = "stubborn" in sys.argv
env = StreamEnvironment("hanging", parallelism=1, executor="inline", max_records_per_epoch=2, stop_within=0.5)
env.from_source(GeneratorSource(lambda n: n, count=20), name="numbers").map(hang).sink_to(FileSink("out"), name="out")
env.execute()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a job that hangs in its third epoch."""
    (tmp_path / "hanging.py").write_text(HANGING)
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [*PENSTOCK, "run", "hanging.py", "--storage", "job", "--", *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        assert any(line == "hangs\n" for line in process.stderr)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_sigterm_ends_a_driver_that_hangs_in_a_function(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = start()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "stopped at once; what was committed stays committed: asked to stop by SIGTERM" in errors
    assert "Traceback" not in errors
    done = subprocess.run([*PENSTOCK, "epochs", "job"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout  # the storage is whole


def test_a_request_to_stop_ends_it_as_well(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = start()
    asked = subprocess.Popen([*PENSTOCK, "stop", "job"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        asked.kill()
        asked.wait()
    assert process.returncode == 143
    assert "asked to stop by penstock stop" in errors


def test_what_cannot_be_interrupted_is_ended_on_the_spot(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("stubborn")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "stays" in errors
    assert "the process exits: asked to stop by SIGTERM" in errors


def test_the_steps_of_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_deadline, "LAST_S", 0.05)
    steps: Queue[tuple[str, str]] = Queue()

    def step(name: str) -> Callable[[str], None]:
        return lambda because: steps.put((name, because))

    told = threading.Event()
    deadline = StopDeadline(
        0.1,
        asked=lambda: "SIGTERM" if told.is_set() else "",
        held_up=lambda: 0.0,
        look=lambda: pytest.fail("a loop that comes round reads requests by itself"),
        give_up=step("give up"),
        interrupt=step("interrupt"),
        end=step("end"),
    )
    with deadline:
        assert steps.empty()
        told.set()
        found = [steps.get(timeout=60) for _ in range(3)]
    assert [name for name, _ in found] == ["give up", "interrupt", "end"]
    assert all(because.startswith("asked to stop by SIGTERM") for _, because in found)


def test_a_storage_that_hangs_does_not_hide_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_deadline, "LOOK_S", 0.05)
    told, given_up, hangs, asked = threading.Event(), threading.Event(), threading.Event(), threading.Event()

    def look() -> str:
        asked.set()
        hangs.wait(60)
        return ""

    deadline = StopDeadline(
        0.1,
        asked=lambda: "SIGTERM" if told.is_set() else "",
        held_up=lambda: 1000.0,
        look=look,
        give_up=lambda because: given_up.set(),
        interrupt=lambda because: None,
        end=lambda because: None,
    )
    with deadline:
        assert asked.wait(60)
        told.set()
        assert given_up.wait(30)
        assert not hangs.is_set()
    hangs.set()
