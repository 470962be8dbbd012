"""`first` and `last` on vectors: of each group the value whose record is the first or the last by event time.

Law: of records of the same time the one that came first is the first, the one that came last the last. Within a batch that is
their order; among batches it is the order in which their rows arrived behind the exchange, which is kept with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.ids import Milliseconds
from penstock.windows.columnar.measures import Measure, Vectors
from penstock.windows.columnar.vectors import INT, Mask, Rows, Vector, alike, full


@dataclass(frozen=True)
class Chosen(Measure):
    """n; the time of the chosen value; when it arrived, by processing time and then by turn; the value.

    The second and third of these are not sent: they are known where rows arrive.
    """

    last: bool
    width = 5
    timed = True

    @property
    def sent(self) -> int:
        return 3

    def partial_at(self, values: Vector, groups: Rows, size: int, times: Rows) -> Vectors:
        order = np.lexsort((times, groups))
        there = groups[order]
        edge = np.empty(len(order), dtype=bool)
        if len(order):
            edge[-1 if self.last else 0] = True
            np.not_equal(there[1:], there[:-1], out=edge[:-1] if self.last else edge[1:])
        rows = order[edge]
        time, value = np.zeros(size, dtype=INT), full(size, values.dtype, 0)
        time[groups[rows]], value[groups[rows]] = times[rows], values[rows]
        return [np.bincount(groups, minlength=size), time, value]

    def arrived(self, vectors: Vectors, clock: Milliseconds, turns: Rows) -> Vectors:
        n, time, value = vectors
        return [n, time, np.full(len(n), clock, dtype=INT), turns, value]

    def empty(self, size: int, like: Vectors) -> Vectors:
        return [*(np.zeros(size, dtype=INT) for _ in range(4)), full(size, like[4].dtype, 0)]

    def merge(self, into: Vectors, at: Rows, part: Vectors) -> Vectors:
        held, more = alike(into[4], part[4])
        better = (part[0] > 0) & ((into[0][at] == 0) | self._wins([vector[at] for vector in into[1:4]], part[1:4]))
        rows = at[better]
        for mine, theirs in zip(into[1:4], part[1:4], strict=True):
            mine[rows] = theirs[better]
        held[rows] = more[better]
        into[0][at] += part[0]
        return [*into[:4], held]

    def _wins(self, held: Vectors, more: Vectors) -> Mask:
        """Which of the others are before (or behind) those that are held, by time, clock and turn."""
        wins = np.full(len(more[0]), self.last)
        for mine, theirs in zip(reversed(held), reversed(more), strict=True):
            wins = np.where(mine == theirs, wins, theirs > mine if self.last else theirs < mine)
        return wins

    def result(self, vectors: Vectors) -> tuple[Vector, Mask | None]:
        return vectors[4], vectors[0] == 0
