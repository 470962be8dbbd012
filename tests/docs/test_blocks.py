"""Every Python block of the README and of the pages is executed, in a process and a folder of its own.

A block of the README runs by itself, as somebody would paste it; those of another page run in order, in one namespace.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program_of(page: Path) -> str:
    """The page's blocks as one program whose line numbers are the page's."""
    text = page.read_text(encoding="utf-8")
    program = ""
    for block in _BLOCK.finditer(text):
        program += "\n" * (text.count("\n", 0, block.start(1)) - program.count("\n")) + block[1]
    return program


PROGRAMS = {page: program for page in PAGES[1:] if (program := program_of(page))}
README = PAGES[0].read_text(encoding="utf-8")
BLOCKS = {f"README.md:{README.count(chr(10), 0, block.start(1)) + 1}": block[1] for block in _BLOCK.finditer(README)}


def test_the_readme_has_programs() -> None:
    assert len(BLOCKS) > 1


@pytest.mark.parametrize("place", BLOCKS)
def test_block_of_the_readme_runs_by_itself(place: str, tmp_path: Path) -> None:
    run(tmp_path / "pasted.py", BLOCKS[place], place)


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page: Path, tmp_path: Path) -> None:
    run(tmp_path / f"page-{page.stem}.py", PROGRAMS[page], f"{page}, lines as on the page")  # not the name of a module


def run(program: Path, text: str, what: str) -> None:
    """Run a program where it is."""
    program.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program.name], cwd=program.parent, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{what}:\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    gone = [link for link in links if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists()]
    assert not gone
