"""A table by key: for each row of a batch the rows of the table that have its key. Pure.

Laws:
- Null is no key.
- Two keys are one if Python says that they are equal: 1 and 1.0 are, 1 and "1" are not, nan is not even itself. Vectors are only
  a faster way to the same matches, for types of which that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import to_list

Numbers = npt.NDArray[np.int64]

KeyColumn: TypeAlias = pa.Array | list[Any]
"""Keys of a batch: a vector, or Python values."""


def key_column(values: list[Any]) -> KeyColumn:
    """Keys of records: a vector only if nothing of them changes by it."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds != {int} and kinds != {str}:
        return values
    try:
        return pa.array(values, pa.int64() if kinds == {int} else pa.string())
    except (pa.ArrowException, OverflowError, UnicodeError):  # larger than the type, or no text
        return values


class TableIndex:
    """`rows` of the table in order of key, and where those of a key begin; keys by number."""

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        whole = table.combine_chunks()
        batches = whole.to_batches()
        self.table: pa.RecordBatch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=whole.schema)
        columns = [self.table.column(name) for name in keys]
        there = np.ones(len(self.table), dtype=bool)
        for column in columns:
            if column.null_count:
                there &= np.asarray(column.is_valid())
        rows = np.flatnonzero(there)
        self._finder = _finder([column.take(pa.array(rows)) for column in columns])
        numbers = self._finder.numbers
        order = np.argsort(numbers, kind="stable")
        self._rows = rows[order]
        self._counts = np.bincount(numbers, minlength=self._finder.size) if len(numbers) else np.zeros(0, dtype=np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        self.unique = bool((self._counts <= 1).all())

    def matches(self, columns: Sequence[KeyColumn], *, outer: bool) -> tuple[Numbers | None, Numbers]:
        """`(batch rows, table rows)`, in order of the batch; None: all batch rows, once. `outer`: -1 for a row without match."""
        found = self._finder.find(columns)
        if not self._finder.size:
            found = np.full(len(found), -1)
            return (None, found) if outer else (found[:0], found[:0])
        there = found >= 0
        if self.unique:
            rows = np.where(there, self._rows[self._starts[found]], -1)
            return (None, rows) if outer or there.all() else (np.flatnonzero(there), rows[there])
        counts = np.where(there, self._counts[found], 1 if outer else 0)
        mine = np.repeat(np.arange(len(found)), counts)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(found, counts)
        theirs = np.where(at >= 0, self._rows[np.minimum(self._starts[at] + within, len(self._rows) - 1)], -1)
        return mine, theirs


class _Finder:
    """The distinct keys of a table, numbered. `numbers`: of its rows."""

    numbers: Numbers
    size: int

    def find(self, columns: Sequence[KeyColumn]) -> Numbers:
        """The number of the key of each row; -1: it is not in the table."""
        raise NotImplementedError


def _finder(columns: list[pa.Array]) -> _Finder:
    if len(columns) > 1:
        return _Several(columns)
    (column,) = columns
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return _Integers(column)
    return _Single(column) if _is_text(column.type) or _equals_as_python(column.type) else _Values(column)


class _Values(_Finder):
    """Keys of any type, as Python values."""

    def __init__(self, column: pa.Array) -> None:
        self._known, self.numbers = _numbered(to_list(column))
        self.size = len(self._known)

    def find(self, columns: Sequence[KeyColumn]) -> Numbers:
        return _looked_up(self._known, _values(columns[0]))


class _Integers(_Finder):
    """Keys that are near one another are found by an array over all numbers; others by binary search."""

    def __init__(self, column: pa.Array) -> None:
        self._keys, self.numbers = np.unique(column.to_numpy(zero_copy_only=False).astype(np.int64), return_inverse=True)
        self.size = len(self._keys)
        self._first = int(self._keys[0]) if self.size else 0
        span = int(self._keys[-1]) - self._first + 1 if self.size else 0
        self._place: Numbers | None = None
        if span <= 16 * self.size:
            self._place = np.full(span + 1, -1, dtype=np.int64)
            self._place[self._keys - self._first] = np.arange(self.size)
        self._known: dict[Any, int] | None = None

    def find(self, columns: Sequence[KeyColumn]) -> Numbers:
        (column,) = columns
        if isinstance(column, list) or not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
            if self._known is None:
                self._known = {key: number for number, key in enumerate(self._keys.tolist())}
            return _looked_up(self._known, _values(column))
        missing = np.asarray(column.is_null()) if column.null_count else None
        keys = (column.fill_null(0) if missing is not None else column).to_numpy(zero_copy_only=False).astype(np.int64)
        if self._place is not None:
            far = len(self._place) - 1
            at = keys - self._first
            found = self._place[np.where((at >= 0) & (at < far), at, far)]
        elif self.size:
            at = np.minimum(np.searchsorted(self._keys, keys), self.size - 1)
            found = np.where(self._keys[at] == keys, at, -1)
        else:
            found = np.full(len(keys), -1)
        if missing is not None:
            found = np.where(missing, -1, found)
        return found


class _Single(_Finder):
    """Keys of the table's type are found by Arrow."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        self._keys = encoded.dictionary
        self._type = column.type
        self.numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.size = len(self._keys)
        self._known: dict[Any, int] | None = None

    def find(self, columns: Sequence[KeyColumn]) -> Numbers:
        (column,) = columns
        if isinstance(column, pa.Array) and pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if isinstance(column, list) or not (column.type == self._type or (_is_text(column.type) and _is_text(self._type))):
            if self._known is None:
                self._known = {key: number for number, key in enumerate(self._keys.to_pylist())}
            return _looked_up(self._known, _values(column))
        found = pc.index_in(column.cast(self._type), value_set=self._keys, skip_nulls=True)
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


class _Several(_Finder):
    def __init__(self, columns: list[pa.Array]) -> None:
        self._known, self.numbers = _numbered(_tuples(columns))
        self.size = len(self._known)

    def find(self, columns: Sequence[KeyColumn]) -> Numbers:
        return _looked_up(self._known, _tuples(columns))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _equals_as_python(kind: pa.DataType) -> bool:
    """Are two values of this type equal for Arrow if they are for Python?"""
    types = pa.types
    if types.is_temporal(kind):
        return not types.is_interval(kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_decimal(kind) or types.is_uint64(kind))


def _tuples(columns: Sequence[KeyColumn]) -> list[Any]:
    return list(zip(*map(_values, columns), strict=True))


def _values(column: KeyColumn) -> list[Any]:
    return column if isinstance(column, list) else to_list(column)


def _numbered(keys: Iterable[Any]) -> tuple[dict[Any, int], Numbers]:
    known: dict[Any, int] = {}
    numbers = [known.setdefault(key, len(known)) for key in keys]
    return known, np.asarray(numbers, dtype=np.int64)


def _looked_up(known: dict[Any, int], keys: list[Any]) -> Numbers:
    try:
        found = [known.get(key, -1) for key in keys]
    except TypeError:  # a list or a dict, which is no key
        found = [_number_of(known.get, key) for key in keys]
    return np.asarray(found, dtype=np.int64)


def _number_of(get: Callable[[Any, int], int], key: Any) -> int:
    try:
        return get(key, -1)
    except TypeError:
        return -1
