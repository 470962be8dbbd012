"""Of the page about adding a command, what the general test does not see: the tests and the manual that an existing one is in."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to-add" / "command.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^Example: `(\w+)_command`$", PAGE, re.MULTILINE)


def named(pattern: str, folder: str) -> set[str]:
    return {name for name in re.findall(pattern, PAGE, re.MULTILINE) if name.startswith(folder)}


def test_it_is_called_in_exactly_these_tests() -> None:
    """A command line begins a list, or follows the name of the helper that runs it."""
    call = re.compile(rf'(\[|penstock\()\s*"{EXAMPLE}",')
    called = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if call.search(path.read_text(encoding="utf-8"))
    }
    assert named(r"`(tests/[\w./-]+)`", "tests/") == called
    assert len(called) > 3


def test_the_page_about_running_lists_it() -> None:
    assert named(r"^\d+\. `([\w./-]+)`", "docs/") == {"docs/running.md"}
    assert f"`penstock {EXAMPLE} " in (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
