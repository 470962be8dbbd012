"""Every Python block of the README and of the pages is executed: a page in order, in one namespace, in a folder of its own."""

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


PROGRAMS = {page: program for page in PAGES if (program := program_of(page))}


def test_the_readme_has_programs() -> None:
    assert ROOT / "README.md" in PROGRAMS


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / f"page-{page.stem}.py"  # not the name of a module
    program.write_text(PROGRAMS[page], encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{page}, lines as on the page:\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    gone = [link for link in links if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists()]
    assert not gone
