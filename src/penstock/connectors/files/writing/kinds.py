"""What a record looks like from outside: fields by key, by position, by attribute, or a single value."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from functools import cache

import msgspec


class Kind(enum.Enum):
    MAPPING = "mapping"
    SEQUENCE = "sequence"
    OBJECT = "object"
    SCALAR = "scalar"


@cache
def kind_of(cls: type) -> Kind:
    """How to take the records of a class apart.

    >>> kind_of(tuple), kind_of(int)
    (<Kind.SEQUENCE: 'sequence'>, <Kind.SCALAR: 'scalar'>)
    """
    if issubclass(cls, Mapping):
        return Kind.MAPPING
    if issubclass(cls, tuple | list):
        return Kind.SEQUENCE
    if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
        return Kind.OBJECT
    return Kind.SCALAR


def stand_in(classes: set[type]) -> type | None:
    """One class that stands for several, if their records make one table; else None."""
    if len(classes) == 1:
        return next(iter(classes))
    stands = {Kind.SCALAR: object, Kind.MAPPING: dict, Kind.SEQUENCE: tuple}
    kinds = {kind_of(cls) for cls in classes}
    return stands.get(kinds.pop()) if len(kinds) == 1 else None
