"""Rows as they are staged: the values of the columns in order; of a row that has only its key, a dict of the key.

What PostgreSQL could not take whatever the table is refused here, in the worker, where the row can be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from penstock.connectors.staging.rows import encode_rows
from penstock.errors import SinkError

_MOST = 1 << 63
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class RowShape:
    """`replace_nul`: a NUL character, which no text of PostgreSQL can hold, becomes U+FFFD; else it is refused."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    replace_nul: bool = False

    def encode(self, rows: Sequence[Any]) -> bytes:
        return encode_rows([self.values(row) for row in rows])

    def values(self, row: Any) -> tuple[Any, ...] | dict[str, Any]:
        """
        >>> RowShape("t", ("a", "b"), ("a",)).values({"b": 1, "a": 2, "c": 3})
        (2, 1)
        """
        if isinstance(row, Mapping):
            found: Sequence[Any] = [row[name] for name in self.columns if name in row]
            if len(found) < len(self.columns):
                return self._key_of(row, row)
        elif isinstance(row, tuple) and not hasattr(row, "_fields"):
            found = row
            if len(found) != len(self.columns):
                raise self._refused(f"has {len(found)} values, not {len(self.columns)}", row)
        elif all(hasattr(row, name) for name in self.columns):
            found = [getattr(row, name) for name in self.columns]
        elif len(self.columns) == 1 and isinstance(row, str | int | float | bytes | bool | np.generic):
            found = (row,)
        else:
            present = {name: getattr(row, name) for name in self.columns if hasattr(row, name)}
            return self._key_of(present, row)
        values = tuple([self._storable(value, row) for value in found])
        for name in self.key:
            if values[self.columns.index(name)] is None:
                raise self._refused(f"has no value in its key, {name}", row)
        return values

    def complete(self, values: Any) -> tuple[Any, ...]:
        """Of a row that is written, as it was staged."""
        if isinstance(values, Mapping):
            missing = next(name for name in self.columns if name not in values)
            raise self._refused(f"has no {missing}", values)
        return tuple(values)

    def of_deleted(self, values: Any) -> tuple[Any, ...]:
        """The same, of a row that is deleted: nulls where only the key is known."""
        return tuple(values.get(name) for name in self.columns) if isinstance(values, Mapping) else tuple(values)

    def _key_of(self, row: Mapping[str, Any], whole: Any) -> dict[str, Any]:
        """A row that does not have all columns: with a key it can be deleted."""
        for name in self.key or self.columns:
            if name not in row:
                raise self._refused(f"has no {name}", whole)
        return {name: self._storable(row[name], whole) for name in self.key}

    def _storable(self, value: Any, row: Any) -> Any:
        if value is None or isinstance(value, float | bool):
            return value
        if isinstance(value, str):
            if "\0" in value:
                if not self.replace_nul:
                    raise self._refused("has a text with a NUL character", row, 'on_nul="replace" puts U+FFFD in its place')
                return value.replace("\0", REPLACEMENT)
            return value
        if isinstance(value, int):
            return value if -_MOST <= value < _MOST else str(value)
        if isinstance(value, timedelta):
            return f"{value.days} days {value.seconds} secs {value.microseconds} us"
        if isinstance(value, Mapping):
            return {self._storable(name, row): self._storable(each, row) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._storable(each, row) for each in value]
        return value

    def _refused(self, problem: str, row: Any, hint: str = "") -> SinkError:
        return SinkError(f"A row for the table {self.table} {problem}", detail=f"row: {str(row)[:200]!r}", hint=hint)
