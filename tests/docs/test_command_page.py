"""The page about adding a command names the files that an existing one touches, no more and no fewer."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to-add" / "command.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^Example: `(\w+)_command`$", PAGE, re.MULTILINE)

NUMBERED = re.findall(r"^\d+\. `([\w./-]+)`", PAGE, re.MULTILINE)
NAMED = re.findall(r"`((?:src|tests|docs)/[\w./-]+)`", PAGE)


def mention(folder: str, pattern: str) -> set[str]:
    """The files below a folder in which a pattern is found."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md") and re.search(pattern, path.read_text(encoding="utf-8"))
    }


def test_all_files_are_there() -> None:
    assert len(NAMED) > 10
    assert [name for name in NAMED if not (ROOT / name).is_file()] == []


def test_the_command_touches_exactly_these_sources() -> None:
    assert {name for name in NUMBERED if name.startswith("src/")} == mention("src", rf"\b{EXAMPLE}_command\b")


def test_it_is_called_in_exactly_these_tests() -> None:
    """A command line begins a list, or follows the name of the helper that runs it."""
    called = mention("tests", rf'(\[|penstock\(|invoke\(app, \[)\s*"{EXAMPLE}",') - {Path(__file__).relative_to(ROOT).as_posix()}
    assert {name for name in NAMED if name.startswith("tests/")} == called


def test_the_page_about_running_lists_it() -> None:
    assert [name for name in NUMBERED if name.startswith("docs/")] == ["docs/running.md"]
    assert f"`penstock {EXAMPLE} " in (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
