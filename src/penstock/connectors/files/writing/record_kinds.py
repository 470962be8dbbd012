"""What a record looks like from outside: fields by key, by position, by attribute, or a single value."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from functools import cache

import msgspec


class RecordKind(enum.Enum):
    MAPPING = "mapping"
    SEQUENCE = "sequence"
    OBJECT = "object"
    SCALAR = "scalar"


@cache
def kind_of(cls: type) -> RecordKind:
    """How to take the records of a class apart.

    >>> kind_of(tuple), kind_of(int)
    (<RecordKind.SEQUENCE: 'sequence'>, <RecordKind.SCALAR: 'scalar'>)
    """
    if issubclass(cls, Mapping):
        return RecordKind.MAPPING
    if issubclass(cls, tuple | list):
        return RecordKind.SEQUENCE
    if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
        return RecordKind.OBJECT
    return RecordKind.SCALAR


def stand_in(classes: set[type]) -> type | None:
    """One class that stands for several, if their records make one table; else None."""
    if len(classes) == 1:
        return next(iter(classes))
    stands = {RecordKind.SCALAR: object, RecordKind.MAPPING: dict, RecordKind.SEQUENCE: tuple}
    kinds = {kind_of(cls) for cls in classes}
    return stands.get(kinds.pop()) if len(kinds) == 1 else None
