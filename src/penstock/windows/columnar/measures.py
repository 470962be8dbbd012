"""Declared aggregates on vectors: the same results as `penstock.windows.aggregates` gives record by record.

A *measure* keeps a few vectors, a row for each group. `partial` makes them from the values of a batch, `merge` adds rows to
others, `result` is what people see. Of groups without a value the first vector, `n`, is 0. Where a column has whole numbers and
fractions, the whole ones may come out as 1.0.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ids import Milliseconds
from penstock.windows.columnar.vectors import (
    EXACT_IN_FLOAT,
    EXACT_IN_INT,
    FLOAT,
    INT,
    OBJECT,
    Mask,
    Rows,
    Vector,
    alike,
    as_objects,
    combined,
    folded,
    full,
    largest,
    objects,
)

Vectors = list[Vector]


class Measure:
    """How an aggregate is computed on vectors; `width` of them. `timed`: it matters when a value was."""

    width: int
    timed: bool = False

    @property
    def sent(self) -> int:
        """How many of the vectors cross the exchange."""
        return self.width

    def partial(self, values: Vector, groups: Rows, size: int) -> Vectors:
        """The vectors of `size` groups, from values and the group of each."""
        raise NotImplementedError

    def partial_at(self, values: Vector, groups: Rows, size: int, times: Rows) -> Vectors:
        """As `partial`, with the time of each value."""
        return self.partial(values, groups, size)

    def arrived(self, vectors: Vectors, clock: Milliseconds, turns: Rows) -> Vectors:
        """All vectors, of those that were sent: the rows arrived in this order, at this processing time."""
        return vectors

    def empty(self, size: int, like: Vectors) -> Vectors:
        """The vectors of groups without values, of the types of others."""
        raise NotImplementedError

    def merge(self, into: Vectors, at: Rows, part: Vectors) -> Vectors:
        """Add the rows of `part` to the rows `at`, which are all different. Returns the vectors, which may be new ones."""
        raise NotImplementedError

    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        """What each group gives, and which give nothing (None: all give something)."""
        raise NotImplementedError


class Counting(Measure):
    width = 1

    def partial(self, values: Vector, groups: Rows, size: int) -> Vectors:
        return [np.bincount(groups, minlength=size)]

    def empty(self, size: int, like: Vectors) -> Vectors:
        return [np.zeros(size, dtype=INT)]

    def merge(self, into: Vectors, at: Rows, part: Vectors) -> Vectors:
        into[0][at] += part[0]
        return into

    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        return vectors[0], None


class Summing(Measure):
    width = 2

    def partial(self, values: Vector, groups: Rows, size: int) -> Vectors:
        return [np.bincount(groups, minlength=size), self._sums(values, groups, size)]

    def _sums(self, values: Vector, groups: Rows, size: int) -> Vector:
        if values.dtype == FLOAT:
            return weighted(values, groups, size)
        if values.dtype == INT:
            most = largest(values) * len(values)
            if most < EXACT_IN_FLOAT:
                return weighted(values, groups, size).astype(INT)
            if most < EXACT_IN_INT:
                sums = np.zeros(size, dtype=INT)
                np.add.at(sums, groups, values)
                return sums
        return folded(operator.add, as_objects(values), groups, size)

    def empty(self, size: int, like: Vectors) -> Vectors:
        return [np.zeros(size, dtype=INT), full(size, like[1].dtype, 0)]

    def merge(self, into: Vectors, at: Rows, part: Vectors) -> Vectors:
        sums, more = alike(into[1], part[1])
        if sums.dtype == INT and largest(sums) + largest(more) >= EXACT_IN_INT:
            sums, more = as_objects(sums), as_objects(more)
        if sums.dtype == OBJECT:
            sums = sums.copy()
            sums[into[0] == 0] = None
            more = more.copy()
            more[part[0] == 0] = None
            sums[at] = combined(operator.add, sums[at], more)
        else:
            sums[at] += more
        into[0][at] += part[0]
        return [into[0], sums]

    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        return vectors[1], vectors[0] == 0


class Averaging(Summing):
    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        n, sums = vectors
        none = n == 0
        if sums.dtype == OBJECT:
            return objects(
                [total / number if number else None for total, number in zip(sums.tolist(), n.tolist(), strict=True)]
            ), none
        return sums / np.where(none, 1, n), none


@dataclass(frozen=True)
class Extreme(Measure):
    """The least or the greatest."""

    least: bool
    width = 2

    def partial(self, values: Vector, groups: Rows, size: int) -> Vectors:
        n = np.bincount(groups, minlength=size)
        if values.dtype == OBJECT:
            return [n, folded(self._choose, values, groups, size)]
        found = full(size, values.dtype, self._worst(values.dtype))
        self._numbers.at(found, groups, values)
        return [n, found]

    def empty(self, size: int, like: Vectors) -> Vectors:
        return [np.zeros(size, dtype=INT), full(size, like[1].dtype, self._worst(like[1].dtype))]

    def merge(self, into: Vectors, at: Rows, part: Vectors) -> Vectors:
        held, more = self._alike(into, part)
        if held.dtype == OBJECT:
            held[at] = combined(self._choose, held[at], more)
        else:
            held[at] = self._numbers(held[at], more)
        into[0][at] += part[0]
        return [into[0], held]

    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        return vectors[1], vectors[0] == 0

    def _alike(self, into: Vectors, part: Vectors) -> tuple[Vector, Vector]:
        """Both of one type; rows without a value hold what loses against every value."""
        if into[1].dtype == part[1].dtype:
            return into[1], part[1]
        cleared = []
        for n, vector in (into, part):
            clear = vector.copy()
            clear[n == 0] = full(1, clear.dtype, 0)[0]
            cleared.append(clear)
        held, more = alike(*cleared)
        for (n, _), vector in zip((into, part), (held, more), strict=True):
            vector[n == 0] = full(1, vector.dtype, self._worst(vector.dtype))[0]
        return held, more

    def _worst(self, dtype: np.dtype[Any]) -> Any:
        if dtype == INT:
            return np.iinfo(INT).max if self.least else np.iinfo(INT).min
        return np.nan

    @property
    def _numbers(self) -> np.ufunc:
        """NaN loses against every number."""
        return np.fmin if self.least else np.fmax

    def _choose(self, left: Any, right: Any) -> Any:
        better = right < left if self.least else right > left
        return right if better or left != left else left


class Deviating(Measure):
    """n, mean, and the sum of squared deviations from it."""

    width = 3

    def partial(self, values: Vector, groups: Rows, size: int) -> Vectors:
        values = values.astype(FLOAT)
        n = np.bincount(groups, minlength=size)
        mean = weighted(values, groups, size) / np.where(n == 0, 1, n)
        squares = weighted((values - mean[groups]) ** 2, groups, size)
        return [n, mean, squares]

    def empty(self, size: int, like: Vectors) -> Vectors:
        return [np.zeros(size, dtype=INT), np.zeros(size), np.zeros(size)]

    def merge(self, into: Vectors, at: Rows, part: Vectors) -> Vectors:
        n, mean, squares = (vector[at] for vector in into)
        more, off = part[0], part[1] - mean
        total = n + more
        whole = np.where(total == 0, 1, total)
        into[0][at] = total
        into[1][at] = mean + off * more / whole
        into[2][at] = squares + part[2] + off * off * n * more / whole
        return into

    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        n, _, squares = vectors
        none = n < 2
        return np.sqrt(squares / np.where(none, 1, n - 1)), none


def reduced(measure: Measure, vectors: Vectors, groups: Rows, size: int) -> Vectors:
    """Rows by group; `groups` is in order, and all of `range(size)` are there."""
    if len(groups) == size:
        return vectors
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    rank = np.arange(len(groups)) - first[groups]
    into = measure.empty(size, vectors)
    for turn in range(int(rank.max()) + 1):
        rows = first if turn == 0 else np.flatnonzero(rank == turn)
        into = measure.merge(into, groups[rows], [vector[rows] for vector in vectors])
    return into


def weighted(values: Vector, groups: Rows, size: int) -> Vector:
    """Sums by group, as floats. (Of no values numpy would make integers.)"""
    return np.bincount(groups, weights=values, minlength=size).astype(FLOAT, copy=False)
