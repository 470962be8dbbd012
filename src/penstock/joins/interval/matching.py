"""Which rows of two sides are partners. Pure.

Law: rows are partners if they are of one key that is not null, their times are within the bounds, neither is late, and the one
that came first is not gone when the other comes: see `SideBuffer.ends_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.ids import Milliseconds
from penstock.joins.buffer.rows import Numbers, Rows
from penstock.joins.buffer.run import Run


@dataclass(slots=True)
class Pairs:
    """Rows that have come (`fresh`, by number) with rows of one run."""

    run: Run
    fresh: Numbers
    rows: Numbers


def pairs_with(
    rows: Rows, keys: Numbers, runs: Sequence[Run], bounds: tuple[Milliseconds, Milliseconds], keep_ms: Milliseconds
) -> list[Pairs]:
    """The partners of rows that have come among those that came before, which are kept for so long. `keys`: what to look for."""
    if not runs:
        return []
    order = np.argsort(rows.times, kind="stable")
    keys, times = keys[order], rows.times[order]
    lows, highs = times + bounds[0], times + bounds[1]
    found = []
    for run in runs:
        start, stop = np.searchsorted(highs, run.first), np.searchsorted(lows, run.last, side="right")
        if start >= stop:
            continue
        probes, held = run.partners(keys[start:stop], lows[start:stop], highs[start:stop])
        if not len(probes):
            continue
        fresh = order[probes + start]
        there = ~gone(run.rows, held, rows.ticks[fresh], keep_ms)
        if not there.all():
            fresh, held = fresh[there], held[there]
        if len(fresh):
            found.append(Pairs(run, fresh, held))
    return found


def gone(earlier: Rows, rows: Numbers, ticks: Numbers, keep_ms: Milliseconds) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Are rows that came earlier gone at these ticks?"""
    return (earlier.times[rows] + keep_ms <= ticks) & (earlier.ticks[rows] < ticks)
