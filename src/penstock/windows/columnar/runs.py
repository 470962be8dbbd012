"""Runs: sessions, or parts of them, as rows of (key, start, end). Pure.

Law: rows of one key that touch (`start <= other end` and the other way round) are one session, whatever other rows are between.
"""

from __future__ import annotations

import numpy as np

from penstock.windows.columnar.vectors import Rows


def runs_of(keys: Rows, starts: Rows, ends: Rows) -> tuple[Rows, Rows]:
    """`(order, runs)`: the rows by key and start, and for each, in that order, the number of its session."""
    order = np.lexsort((starts, keys))
    keys, starts, ends = keys[order], starts[order], ends[order]
    other_key = np.empty(len(order), dtype=bool)
    other_key[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=other_key[1:])
    reach = _greatest_so_far(ends, np.cumsum(other_key) - 1)
    first = other_key
    first[1:] |= starts[1:] > reach[:-1]
    return order, np.cumsum(first) - 1


def _greatest_so_far(ends: Rows, ranks: Rows) -> Rows:
    """The greatest end up to each row, among rows of one rank; ranks are in order."""
    least = int(ends.min())
    span = int(ends.max()) - least + 1
    if (int(ranks[-1]) + 1) * span < 1 << 62:
        above = ranks * span
        return np.maximum.accumulate(ends - least + above) - above + least
    out = ends.copy()
    for row in range(1, len(out)):
        if ranks[row] == ranks[row - 1] and out[row - 1] > out[row]:
            out[row] = out[row - 1]
    return out
