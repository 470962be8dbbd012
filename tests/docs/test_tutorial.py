"""The tutorial is walked through: its files are saved, its commands typed, and what it shows is what is printed.

A block with a title is a file, an `sh` block is typed, the `text` block after it is what must be seen: line by line and in order,
where `…` stands for anything. Commands that only look are given again until they show it, as a reader would do who was too quick.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"

_BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOOKS = re.compile(r"(penstock (jobs|state|epochs|diff|lineage)|cat|sort) ")
_RULE = re.compile(r"[\s┏┳┓┡╇┩├┼┤└┴┘┌┬┐━─]*")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Step:
    """A file to save, or commands to type and what they show."""

    line: int
    text: str
    title: str = ""
    shown: list[str] = field(default_factory=list)

    @property
    def only_looks(self) -> bool:
        return all(_LOOKS.match(command) for command in self.text.splitlines())


def steps_of(page: str) -> list[Step]:
    steps: list[Step] = []
    for block in _BLOCK.finditer(page):
        kind, title, text = block[1], block[2], block[3]
        line = page.count("\n", 0, block.start()) + 1
        if title:
            steps.append(Step(line, text, title))
        elif kind == "sh":
            steps.append(Step(line, text))
        elif kind == "text":
            steps[-1].shown.extend(text.splitlines())
    return steps


def not_seen(shown: list[str], real: str) -> str | None:
    """The first line of the page that is not printed, after those before it; None: all are."""
    printed = iter([_plain(line) for line in real.splitlines()])
    for line in map(_plain, shown):
        if line == "…" or _RULE.fullmatch(line):
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        if not any(pattern.fullmatch(candidate) for candidate in printed):
            return line
    return None


def _plain(line: str) -> str:
    """Columns are as wide as what is in them, and that may differ."""
    return " ".join(line.split())


class Terminal:
    """A shell in a folder. Jobs that are started in the background are ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._groups: list[int] = []
        inherited = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PENSTOCK_LOCAL_DIR")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**inherited, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "110"}
        self._environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take seconds to import

    def type(self, commands: str) -> tuple[int, str]:
        """The exit code, and what is printed."""
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._groups.append(shell.pid)
        printed, _ = shell.communicate(timeout=120)
        return shell.returncode, printed

    def close(self) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def test_the_tutorial(terminal: Terminal) -> None:
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    assert sum(not step.title for step in steps) > 20
    for step in steps:
        if step.title:
            (terminal.folder / step.title).write_text(step.text, encoding="utf-8")
            continue
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, printed = terminal.type(step.text)
            missing = not_seen(step.shown, printed)
            if (code == 0 and missing is None) or not step.only_looks or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        logs = "".join(f"\n--- {log.name}\n{log.read_text(encoding='utf-8')}" for log in terminal.folder.glob("*.log"))
        at = f"{PAGE.name}, line {step.line}:\n{step.text}"
        assert code == 0, f"{at}exit code {code}\n{printed}{logs}"
        assert missing is None, f"{at}does not print\n{missing}\nbut\n{printed}{logs}"


def test_what_is_not_printed_is_noticed() -> None:
    printed = "│ a   │ 3.1 s ago │\n└─────┘\nthe end\n"
    assert not_seen(["│ a │ … ago │", "└──┘", "…", "the end"], printed) is None
    assert not_seen(["the end", "│ a │ … ago │"], printed) == "│ a │ … ago │"
    assert not_seen(["the"], printed) == "the"
