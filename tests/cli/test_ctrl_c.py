"""Ctrl-C at a terminal, where it reaches the JVM and everything else in the foreground process group too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.connectors.files.reading.published import read_rows
from tests.cli.terminal import Terminal
from tests.cli.test_processes import PENSTOCK

ENDLESS = """
import sys
from penstock import FileSink, GeneratorSource, StreamEnvironment

env = StreamEnvironment("endless", parallelism=2, executor=sys.argv[1], master="local[2,4]", storage="job", compact_after=1)
numbers = env.from_source(GeneratorSource(lambda n: (n % 3, 1), rate=200), name="numbers")
numbers.key_by(0).sum(1, name="sums").sink_to(FileSink("out"), name="out")
env.execute()
"""

SLOW = """
import pathlib, sys, time
from penstock import FileSink, GeneratorSource, StreamEnvironment

def slow(n):
    if n == 50:
        pathlib.Path("slow").touch()
        time.sleep(600)
    return n

env = StreamEnvironment("slow", parallelism=1, executor=sys.argv[1], master="local[2,4]", storage="job")
env.from_source(GeneratorSource(slow, rate=20), name="numbers").sink_to(FileSink("out"), name="out")
env.execute()
"""

EXECUTORS = ["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
STARTS = ["penstock run", "python"]


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STARTS)
def command(request: pytest.FixtureRequest, executor: str) -> list[str]:
    if request.param == "python":
        return [sys.executable, "app.py", executor]
    return [*PENSTOCK, "run", "app.py", "--", executor]


@pytest.fixture
def terminal(command: list[str], tmp_path: Path, program: str) -> Iterator[Terminal]:
    (tmp_path / "app.py").write_text(program)
    started = Terminal(command, tmp_path)
    try:
        yield started
    finally:
        started.close()


def clean(text: str) -> None:
    for trouble in ("Traceback", "KeyboardInterrupt", "ERROR", "WARN", "warning", "Exception"):
        assert trouble not in text, text


@pytest.mark.parametrize("program", [ENDLESS])
def test_it_stops_after_the_epoch(terminal: Terminal, command: list[str], executor: str, tmp_path: Path) -> None:
    def merged() -> bool:
        return len(list(tmp_path.glob("job/state/s1/*/*-c*"))) > 1

    terminal.until(merged, "state was merged")
    if executor == "spark":
        assert any("java" in line for line in terminal.group().values())
        assert any("compaction_worker" in line for line in terminal.session().values())
    terminal.press_ctrl_c()
    assert terminal.wait() == 0, terminal.text
    clean(terminal.text)
    (line,) = [line for line in terminal.text.splitlines() if "stopped by Ctrl-C after epoch" in line]
    assert "start it again with the same storage (job)" in line
    before = check_sums(tmp_path)

    again = Terminal(command, tmp_path)  # goes on where it was
    try:
        again.until(lambda: check_sums(tmp_path) > before + 100, "there is more output")
    finally:
        again.close()


def check_sums(folder: Path) -> int:
    """Each key counts up without a gap. How many results there are."""
    rows = [tuple(row.values()) for row in read_rows(folder / "out")]
    for key in range(3):
        counts = sorted(count for k, count in rows if k == key)
        assert counts == list(range(1, len(counts) + 1))
    return len(rows)


@pytest.mark.parametrize("program", [SLOW])
def test_a_second_one_stops_at_once(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until((tmp_path / "slow").exists, "the function is called")
    terminal.press_ctrl_c()
    terminal.until(lambda: "Ctrl-C again stops at once" in terminal.text, "it says that it will stop")
    terminal.press_ctrl_c()
    assert terminal.wait() == 130, terminal.text
    clean(terminal.text)
    assert len([line for line in terminal.text.splitlines() if "stopped at once" in line]) == 1
    numbers = [row["value"] for row in read_rows(tmp_path / "out")]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("program", [ENDLESS])
def test_while_it_starts(terminal: Terminal, executor: str, tmp_path: Path) -> None:
    """Spark is not there yet, the job is: it stops as soon as it has taken over."""

    def starting() -> bool:
        return any("java" in line for line in terminal.group().values())

    terminal.until(starting if executor == "spark" else (tmp_path / "job").exists, "it starts")
    terminal.press_ctrl_c()
    assert terminal.wait() == 0, terminal.text
    clean(terminal.text)
    assert "stopped by Ctrl-C after epoch" in terminal.text
