"""The page of the architecture says what import-linter checks, and what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "penstock"
MANY = 17
"""Modules side by side, with `__init__`: more are rooms."""

_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
_ROW = re.compile(r"^\| `(\w+)/` \|(?:[^|]*\|){2} ([^|]*) \|$", re.MULTILINE)


def rows() -> dict[str, set[str]]:
    """Of each package, what its row says that it imports."""
    return {package: set(re.findall(r"`([\w.]+)`", imports)) for package, imports in _ROW.findall(PAGE)}


def packages() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"diagnosis"}


def test_every_package_has_a_row() -> None:
    assert set(rows()) == packages()


def test_the_table_is_what_import_linter_checks() -> None:
    checked = {}
    for contract in _CONTRACTS:
        if contract["name"].startswith("What "):
            (source,) = contract["source_modules"]
            room = source.removeprefix("penstock.")
            whole = packages() - {room} - {name.removeprefix("penstock.") for name in contract["forbidden_modules"]}
            parts = {ignored.split(" -> penstock.")[1].removesuffix(".**") for ignored in contract.get("ignore_imports", ())}
            checked[room] = whole | parts
    assert checked == rows()


def test_no_folder_is_a_drawer() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    crowded = {str(folder.relative_to(PACKAGE)): many for folder in folders if (many := len(list(folder.glob("*.py")))) > MANY}
    assert crowded == {}


def test_files_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []
