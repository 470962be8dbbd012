"""What is public, as a golden file: a change of it is a decision, not an accident.

`PENSTOCK_WRITE_GOLDEN=1 pytest tests/public` writes the file anew; the diff is then part of the change.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import penstock
import penstock.aggregates
import penstock.api
import penstock.cep
import penstock.changes
import penstock.config
import penstock.connectors
import penstock.connectors.formats
import penstock.connectors.kafka
import penstock.connectors.postgres
import penstock.contexts
import penstock.expressions
import penstock.functions
import penstock.joins
import penstock.query
import penstock.snapshots
import penstock.state
import penstock.testing
import penstock.timing
import penstock.windows

GOLDEN = Path(__file__).parent / "public_api.txt"
INDEX = Path(__file__).parents[2] / "docs" / "index.md"
MODULES = [
    penstock,
    penstock.api,
    penstock.cep,
    penstock.functions,
    penstock.joins,
    penstock.contexts,
    penstock.state,
    penstock.windows,
    penstock.aggregates,
    penstock.expressions,
    penstock.changes,
    penstock.timing,
    penstock.connectors,
    penstock.connectors.kafka,
    penstock.connectors.postgres,
    penstock.connectors.formats,
    penstock.config,
    penstock.query,
    penstock.snapshots,
    penstock.testing,
]
DUNDERS = {
    "__init__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__contains__",
    "__iter__",
    "__len__",
    "__enter__",
    "__exit__",
}


def is_experimental(value: Any) -> bool:
    """Is it marked itself? A class that derives from a marked one is not."""
    return "__experimental__" in getattr(value, "__dict__", {})


def described() -> str:
    lines: list[str] = []
    for module in MODULES:
        lines.append(f"# {module.__name__}")
        for name in sorted(module.__all__):
            value = getattr(module, name)
            lines += _described(name, value) if module is penstock or value is not vars(penstock).get(name) else [name]
        lines.append("")
    return "\n".join(lines)


def _described(name: str, value: Any) -> Iterator[str]:
    if is_experimental(value):
        yield "@experimental"
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}" + (f"({bases})" if bases else "")
        yield from (f"    {line}" for line in _members(value))
    elif callable(value):
        yield f"def {name}{_signature(value)}"
    elif name == "__version__":
        yield name
    else:
        yield f"{name} = {value!r}"


def _members(cls: type) -> Iterator[str]:
    shown: set[str] = {"__init__"} if is_dataclass(cls) or issubclass(cls, msgspec.Struct) else set()
    for name, text in _fields(cls):
        shown.add(name)
        yield text
    for name, value in sorted(_own(cls).items()):
        raw = inspect.getattr_static(cls, name)
        if name in shown:
            continue
        if isinstance(raw, property):
            returned = inspect.signature(raw.fget).return_annotation if raw.fget else "?"
            yield f"{name} -> {returned}"
        elif callable(value) and not inspect.isclass(value):
            kind = "@experimental " if is_experimental(value) else ""
            kind += "classmethod " if isinstance(raw, classmethod) else ""
            yield f"{kind}{name}{_signature(value)}"


def _fields(cls: type) -> Iterator[tuple[str, str]]:
    if issubclass(cls, msgspec.Struct):
        for name in cls.__struct_fields__:
            yield name, f"{name}: {cls.__annotations__[name]}"
    elif is_dataclass(cls):
        for field in fields(cls):
            if field.name.startswith("_"):
                continue
            text = f"{field.name}: {field.type}"
            if field.default is not MISSING:
                text += f" = {field.default!r}"
            elif field.default_factory is not MISSING:
                text += " = …"
            yield field.name, text
    else:
        for name in sorted(n for n in getattr(cls, "__slots__", ()) if not n.startswith("_")):
            yield name, name


def _own(cls: type) -> dict[str, Any]:
    """Members that the class defines, or one of our classes above it that is not public itself."""
    public = {value for module in MODULES for name in module.__all__ if inspect.isclass(value := getattr(module, name))}
    found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__.split(".")[0] == "penstock" and (owner is cls or owner not in public):
            found.update({n: getattr(cls, n) for n in vars(owner) if not n.startswith("_") or n in DUNDERS})
    return found


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(…)"
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", re.sub(r" at 0x[0-9a-f]+", "", text))


def test_the_public_api_is_the_golden_one() -> None:
    if os.environ.get("PENSTOCK_WRITE_GOLDEN"):
        GOLDEN.write_text(described())
    assert described() == GOLDEN.read_text(), "the public API has changed: PENSTOCK_WRITE_GOLDEN=1 pytest tests/public"


def test_the_index_lists_what_is_experimental() -> None:
    public = {name: getattr(module, name) for module in MODULES for name in module.__all__}
    members = {
        f"{name}.{own}": member for name, value in public.items() if inspect.isclass(value) for own, member in _own(value).items()
    }
    marked = {name: thing for name, thing in (public | members).items() if is_experimental(thing)}
    _, section = INDEX.read_text(encoding="utf-8").split("## Experimental\n")
    assert set(marked) == set(re.findall(r"`([\w.]+)`", section.split("\n## ")[0]))
    assert all("Experimental: " in (inspect.getdoc(thing) or "") for thing in marked.values())


def test_all_is_sorted_and_there() -> None:
    for module in MODULES:
        assert list(module.__all__) == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


def test_the_top_has_what_most_programs_use() -> None:
    assert len(penstock.__all__) <= 45
    for module in MODULES[1:]:
        for name in {*module.__all__} & {*penstock.__all__}:
            assert getattr(module, name) is getattr(penstock, name)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_public_things_have_docstrings(module: ModuleType) -> None:
    bare = [name for name in module.__all__ if not name.startswith("__") and not inspect.getdoc(getattr(module, name))]
    assert bare == []
