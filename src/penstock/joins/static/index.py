"""A table by key: for each row of a batch the rows of the table that have its key. Pure.

Law: null is no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import to_list

Numbers = npt.NDArray[np.int64]


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

    def matches(self, columns: Sequence[pa.Array], *, outer: bool) -> tuple[Numbers | None, Numbers]:
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

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """The number of the key of each row; -1: it is not in the table."""
        raise NotImplementedError


def _finder(columns: list[pa.Array]) -> _Finder:
    if len(columns) == 1:
        return _Integers(columns[0]) if pa.types.is_integer(columns[0].type) else _Single(columns[0])
    return _Several(columns)


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
        self._type = column.type

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        (column,) = columns
        missing = np.asarray(column.is_null()) if column.null_count else None
        if not pa.types.is_integer(column.type):
            column = column.cast(pa.int64())
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
    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
        self._keys = encoded.dictionary
        self.numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self.size = len(self._keys)

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        (column,) = columns
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type != self._keys.type:
            column = column.cast(self._keys.type)
        found = pc.index_in(column, value_set=self._keys, skip_nulls=True)
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


class _Several(_Finder):
    def __init__(self, columns: list[pa.Array]) -> None:
        self._numbers: dict[Any, int] = {}
        self.numbers = np.fromiter(
            (self._numbers.setdefault(key, len(self._numbers)) for key in _tuples(columns)), dtype=np.int64, count=len(columns[0])
        )
        self.size = len(self._numbers)

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        known = self._numbers
        return np.fromiter((known.get(key, -1) for key in _tuples(columns)), dtype=np.int64, count=len(columns[0]))


def _tuples(columns: Sequence[pa.Array]) -> Any:
    return zip(*(to_list(column) for column in columns), strict=True)
