"""What changed of a value, said in few words: of a large one only the parts that differ are shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.snapshots.replay.result import ABSENT

SHORT = 120
"""Up to this length a value is shown as it is."""

LONG = 600
"""So much of any text is shown."""

MOST = 8
"""Parts of one value that are shown, before the rest is counted."""


def value_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"


def unchanged_text(value: Any) -> str:
    """A value that stays as it is: enough to recognise it."""
    text = repr(value)
    if len(text) <= SHORT:
        return text
    size = f", {len(value):,} elements" if isinstance(value, (list, tuple, set, frozenset, Mapping)) else ""
    return f"{text[:SHORT]}… (unchanged{size})"


def changed_text(before: Any, after: Any) -> tuple[str, str]:
    """Before and after: whole while both are short, otherwise what differs.

    >>> changed_text(list(range(100)), [*range(100), 7])
    ('100 elements', 'the same and [7]')
    """
    if max(len(repr(before)), len(repr(after))) <= SHORT:
        return repr(before), repr(after)
    if isinstance(before, (list, tuple)) and type(before) is type(after):
        return lists_text(list(before), list(after))
    was, now = _fields(before), _fields(after)
    if was is not None and now is not None and type(before) is type(after):
        return _mappings(was, now)
    return value_text(before), value_text(after)


def lists_text(before: list[Any], after: list[Any]) -> tuple[str, str]:
    """Of two lists, where they differ."""
    same = _common(before, after)
    if same == len(before):
        return _count(same), f"the same and {value_text(after[same:])}"
    rest = _common(before[same:][::-1], after[same:][::-1])
    old, new = before[same : len(before) - rest], after[same : len(after) - rest]
    around = f"{_count(same)} the same, then " if same else ""
    behind = f", then {_count(rest)} the same" if rest else ""
    return f"{around}{value_text(old)}{behind}", f"{around}{value_text(new)}{behind}"


def _common(one: list[Any], other: list[Any]) -> int:
    """How many elements the two begin with alike."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if repr(a) != repr(b):
            return number
    return min(len(one), len(other))


def _mappings(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> tuple[str, str]:
    differing = [name for name in {**before, **after} if repr(before.get(name, ABSENT)) != repr(after.get(name, ABSENT))]
    old, new = [], []
    for name in differing[:MOST]:
        was, now = changed_text(before.get(name, ABSENT), after.get(name, ABSENT))
        old.append(f"{name!r}: {was}")
        new.append(f"{name!r}: {now}")
    if len(differing) > MOST:
        old.append(f"and {len(differing) - MOST:,} more")
        new.append(f"and {len(differing) - MOST:,} more")
    same = len({**before, **after}) - len(differing)
    rest = f" and {same:,} the same" if same else ""
    return f"{{{', '.join(old)}}}{rest}", f"{{{', '.join(new)}}}{rest}"


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """A value by its keys, or its fields; None if it has neither."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return None


def _count(elements: int) -> str:
    return "1 element" if elements == 1 else f"{elements:,} elements"
