"""Is each setting of the type that its dataclass declares?"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.errors import ConfigError

_EXPECTED: dict[type, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "a dict",
    timedelta: "a timedelta",
    types.NoneType: "None",
}


def check_types(settings: Any) -> None:
    """Refuse a value of a wrong type, by the name of its setting. A path becomes text where text is expected."""
    declared: Any = type(settings)
    for name, kinds in _kinds(declared).items():
        value = getattr(settings, name)
        if str in kinds and isinstance(value, os.PathLike):
            value = os.fspath(value)
            object.__setattr__(settings, name, value)
        if kinds and not any(_is(value, kind) for kind in kinds):
            raise ConfigError(
                f"{name} is {value!r:.200}, of type {type(value).__qualname__}", hint=f"give {_expected(kinds)}: {name}=..."
            )


@functools.cache
def _kinds(settings: Any) -> dict[str, tuple[type, ...]]:
    """The types that each setting may have; none for one that is a choice: its values are checked by themselves."""
    hints = get_type_hints(settings)
    return {field.name: _members(hints[field.name]) for field in fields(settings)}


def _members(hint: Any) -> tuple[type, ...]:
    origin = get_origin(hint)
    if origin is Literal:
        return ()
    if origin in (Union, types.UnionType):
        parts = [_members(part) for part in get_args(hint)]
        return tuple(kind for part in parts for kind in part) if all(parts) else ()
    return (origin or hint,)


def _is(value: Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, Mapping if kind is dict else kind)


def _expected(kinds: tuple[type, ...]) -> str:
    """In words: "a timedelta, a number or None"."""
    wanted = [kind for kind in kinds if not (kind is int and float in kinds)]
    words = [_EXPECTED.get(kind) or f"a {kind.__qualname__}" for kind in wanted]
    if timedelta in kinds:
        words = ["a number of seconds" if word == "a number" else word for word in words]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
