"""What is known about the records of a stream when the program is built: the names of its columns, and their types where known.

A type of None is one that nobody knows before the first batch. `cls`: rows are instances of this class, which may have attributes
beside its fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in order.

    >>> Schema.of([("user", pa.string()), ("amount", None)]).names
    ('user', 'amount')
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    cls: type | None = None

    @classmethod
    def of(cls, fields: Iterable[tuple[str, pa.DataType | None]], row: type | None = None) -> Schema:
        known = dict(fields)
        return cls(tuple(known), tuple(known.values()), row)

    @classmethod
    def of_arrow(cls, schema: pa.Schema, row: type | None = None) -> Schema:
        return cls.of(zip(schema.names, schema.types, strict=True), row)

    def __contains__(self, name: object) -> bool:
        return name in self.names or (self.cls is not None and isinstance(name, str) and hasattr(self.cls, name))

    def type_of(self, name: str) -> pa.DataType | None:
        """The type of a column; None if it is not known."""
        return self.types[self.names.index(name)] if name in self.names else None

    def fields(self) -> dict[str, pa.DataType | None]:
        return dict(zip(self.names, self.types, strict=True))

    def only(self, names: Iterable[str]) -> Schema:
        wanted = set(names)
        return Schema.of(((name, kind) for name, kind in self.fields().items() if name in wanted), self.cls)


def common_schema(schemas: Iterable[Schema | None]) -> Schema | None:
    """What is known of records that may be of any of these: nothing unless all have the same columns."""
    given = list(schemas)
    first = given[0] if given else None
    if first is None or any(other is None or other.names != first.names or other.cls is not first.cls for other in given):
        return None
    types = [{other.types[i] for other in given if other is not None} for i in range(len(first.names))]
    return Schema(first.names, tuple(found.pop() if len(found) == 1 else None for found in types), first.cls)
