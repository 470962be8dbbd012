"""Pages that say how to add something name what is there: the files that an existing one touches, no more and no fewer.

How a page is written is on `docs/how-to-add/index.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "how-to-add" / "index.md"
PAGES = sorted(path for path in INDEX.parent.glob("*.md") if path != INDEX)
LONGEST = 64

_EXAMPLE = re.compile(r"^Example: (.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^(\d+\.|-) `([\w./-]+)`(.*?)(?=^(?:\d+\.|-) |^\S|\Z)", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Item:
    """A file, and the names that the page says are in it. `touched`: by whoever adds one."""

    file: str
    names: tuple[str, ...]
    touched: bool


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says."""

    example: tuple[str, ...]
    items: tuple[Item, ...]

    @classmethod
    def of(cls, text: str) -> Page:
        (said,) = _EXAMPLE.findall(text)
        items = [
            Item(file, tuple(name for name in _QUOTED.findall(rest) if _NAME.fullmatch(name)), touched=kind != "-")
            for kind, file, rest in _ITEM.findall(text)
        ]
        return cls(tuple(_QUOTED.findall(said)), tuple(items))

    def touched(self, folder: str) -> set[str]:
        return {item.file for item in self.items if item.touched and item.file.startswith(folder)}


def mentions(file: Path, name: str) -> bool:
    """Is the name in a file, as a whole word? A module is in its own file too."""
    if name.startswith("penstock.") and file.with_suffix("").as_posix().endswith(name.replace(".", "/")):
        return True
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", file.read_text(encoding="utf-8")) is not None


def files_of(example: tuple[str, ...]) -> set[str]:
    """The files under src/ that mention an example."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if path.name != "moved.py" and any(mentions(path, name) for name in example)  # old paths are no concern of a new thing
    }


def problems_of(page: Page) -> list[str]:
    found = [f"{item.file} is not there" for item in page.items if not (ROOT / item.file).exists()]
    found += [
        f"{name} is not in {item.file}"
        for item in page.items
        if (ROOT / item.file).is_file()
        for name in item.names
        if not mentions(ROOT / item.file, name)
    ]
    there, touched = files_of(page.example), page.touched("src/")
    named = {item.file for item in page.items}
    found += [f"{file} mentions the example, and is not on the page" for file in sorted(there - named)]
    found += [f"{file} is numbered, and does not mention the example" for file in sorted(touched - there)]
    if not touched or not page.touched("tests/"):
        found.append("no file of src/ or none of tests/ is numbered")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_names_what_its_example_touches(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert problems_of(Page.of(text)) == []
    assert "(index.md)" in text
    assert text.count("\n") <= LONGEST


def test_the_index_has_every_page() -> None:
    named = set(re.findall(r"([\w-]+\.md)\b", INDEX.read_text(encoding="utf-8")))
    assert {path.name for path in PAGES} <= named


def test_what_is_wrong_is_noticed() -> None:
    page = Page.of(
        "Example: `DeltaTrigger`\n\n"
        "1. `src/penstock/windows/triggers.py`: `DeltaTrigger`, `on_record`, and `Nowhere`\n"
        "   and `nothing.here`\n"
        "2. `src/penstock/windows/spec.py`: does not know it\n"
        "- `src/penstock/gone.py`: is not there\n"
    )
    assert page.items[0].names == ("DeltaTrigger", "on_record", "Nowhere", "nothing.here")
    assert set(problems_of(page)) >= {
        "src/penstock/gone.py is not there",
        "Nowhere is not in src/penstock/windows/triggers.py",
        "nothing.here is not in src/penstock/windows/triggers.py",
        "src/penstock/windows/__init__.py mentions the example, and is not on the page",
        "src/penstock/windows/spec.py is numbered, and does not mention the example",
        "no file of src/ or none of tests/ is numbered",
    }
