"""Old import paths still work, and say where to import from now; stored names of our classes still resolve."""

from __future__ import annotations

import enum
import importlib
import inspect
from pathlib import Path

import pytest

import penstock
from penstock.moved import LEFT_THE_TOP, MOVED
from penstock.state.encoding.untyped import is_record, loaded_class

SRC = Path(penstock.__file__).parents[1]

STORED = {
    "penstock.config:JobConfig",
    "penstock.config:RestartPolicy",
    "penstock.epochs.history:EpochRecord",
    "penstock.epochs.history:JobResult",
    "penstock.runtime.operators.operator:DeadLetter",
    "penstock.windows.evictors:Element",
    "penstock.windows.triggers:TriggerResult",
    "penstock.windows.window:TimeWindow",
}
"""Public classes whose values can be in state: schemas and values of undeclared types name them like this."""


@pytest.mark.parametrize("old", MOVED)
def test_every_name_is_found_at_the_old_path(old: str) -> None:
    new = importlib.import_module(MOVED[old])
    module = importlib.import_module(old)
    own = [name for name, value in vars(new).items() if getattr(value, "__module__", None) == new.__name__]
    assert own
    for name in own:
        with pytest.warns(DeprecationWarning, match=f"{old} has moved: import {name} from {MOVED[old]}"):
            assert getattr(module, name) is getattr(new, name)


@pytest.mark.parametrize("old", MOVED)
def test_a_name_that_is_nowhere_is_refused(old: str) -> None:
    with pytest.raises(AttributeError, match="nowhere"):
        importlib.import_module(old).nowhere  # noqa: B018


@pytest.mark.parametrize("name", (Path(__file__).parent / "top_names-0.1.txt").read_text().split())
def test_every_name_that_was_at_the_top_is_found_there(name: str) -> None:
    if name in penstock.__all__:
        assert hasattr(penstock, name)
        return
    (group,) = [group for group, names in LEFT_THE_TOP.items() if name in names.split()]
    with pytest.warns(DeprecationWarning, match=rf"penstock\.{name} has moved: import {name} from {group}$"):
        value = getattr(penstock, name)
    module = importlib.import_module(group)
    assert value is getattr(module, name)
    assert name in module.__all__


def test_a_name_that_was_never_at_the_top_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'nowhere'"):
        importlib.import_module("penstock").nowhere  # noqa: B018


def test_the_warning_is_given_where_the_import_is() -> None:
    with pytest.warns(DeprecationWarning, match="import codec_for from") as caught:
        from penstock.state.codecs import codec_for  # noqa: F401
    with pytest.warns(DeprecationWarning, match="import TimeWindow from") as more:
        from penstock import TimeWindow  # type: ignore[attr-defined] # noqa: F401
    assert {Path(warning.filename).name for warning in (*caught, *more)} == {Path(__file__).name}


def test_the_table_has_every_module_that_forwards() -> None:
    files = [path for path in SRC.rglob("*.py") if "forward(__name__)" in path.read_text(encoding="utf-8")]
    assert {".".join(path.relative_to(SRC).with_suffix("").parts) for path in files} == set(MOVED)


def test_stored_names_of_public_classes_resolve() -> None:
    groups = [penstock, *map(importlib.import_module, LEFT_THE_TOP)]
    public = [value for group in groups for name in group.__all__ if inspect.isclass(value := getattr(group, name))]
    values = [cls for cls in public if issubclass(cls, enum.Enum) or (is_record(cls) and cls.__module__ != "builtins")]
    named = {f"{cls.__module__}:{cls.__qualname__}" for cls in values}
    assert named >= STORED
    for name in STORED:
        assert loaded_class(*name.split(":")) is not None
