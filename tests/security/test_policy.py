"""SECURITY.md: each of its lines is kept by tests that exist, and each test here keeps one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE.parents[1] / "SECURITY.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## Who is trusted with what")[2].partition("\n## ")[0]
NAMED = re.compile(r"`(test_[a-z_]+)`")


def lines() -> list[str]:
    """The lines of the table."""
    rows = [line for line in SECTION.splitlines() if line.startswith("|")]
    return rows[2:]


def existing() -> set[str]:
    found = set()
    for path in HERE.glob("test_*.py"):
        if path != Path(__file__):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    return found


def test_each_line_is_kept_by_tests() -> None:
    assert len(lines()) > 10
    for line in lines():
        named = NAMED.findall(line)
        assert named, f"no test keeps this line: {line}"
        assert not set(named) - existing(), f"there is no such test: {set(named) - existing()}"


def test_each_test_keeps_a_line() -> None:
    assert existing() == set(NAMED.findall(TEXT))
