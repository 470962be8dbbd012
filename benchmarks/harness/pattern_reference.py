"""What the matches must be, computed with numpy from the input files alone: (key, time of the first event, time of the last)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from harness.pattern_inputs import PatternEvents
from harness.reference import MismatchError

COLUMNS = ("key", "first", "last")
Bounds = Sequence[tuple[int, int]]
"""Of the three stages: the kinds from, and up to but without."""


def strict_matches(data: PatternEvents, stages: Bounds, within_ms: int) -> np.ndarray:
    """Three events one right after another."""
    key, ts, kind = data.read()
    a, b, c = (_holds(kind, bounds) for bounds in stages)
    first = np.flatnonzero(a[:-2] & b[1:-1] & c[2:] & (key[:-2] == key[2:]) & (ts[2:] - ts[:-2] < within_ms))
    return np.stack([key[first], ts[first], ts[first + 2]], axis=1)


def selective_matches(data: PatternEvents, stages: Bounds, within_ms: int) -> np.ndarray:
    """The next fitting event, whatever is between."""
    key, ts, kind = data.read()
    a, b, c = (_holds(kind, bounds) for bounds in stages)
    first = np.flatnonzero(a)
    last = _next(c, _next(b, first))
    found = last < len(key)
    first, last = first[found], last[found]
    fits = (key[first] == key[last]) & (ts[last] - ts[first] < within_ms)
    first, last = first[fits], last[fits]
    return np.stack([key[first], ts[first], ts[last]], axis=1)


def _holds(kind: np.ndarray, bounds: tuple[int, int]) -> np.ndarray:
    return (kind >= bounds[0]) & (kind < bounds[1])


def _next(holds: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The first row behind each of these for which it holds; the number of rows if there is none."""
    where = np.append(np.flatnonzero(holds), len(holds))
    return where[np.minimum(np.searchsorted(where, after, side="right"), len(where) - 1)]


def read_matches(paths: Sequence[Path], *, header: bool) -> np.ndarray:
    read = pa.csv.ReadOptions() if header else pa.csv.ReadOptions(column_names=list(COLUMNS))
    tables = [pa.csv.read_csv(path, read).select(list(COLUMNS)) for path in paths if path.stat().st_size]
    if not tables:
        return np.zeros((0, 3), dtype=np.int64)
    table = pa.concat_tables(tables)
    return np.stack([table[name].to_numpy() for name in COLUMNS], axis=1)


def check_matches(want: np.ndarray, found: np.ndarray) -> None:
    """Each match once, and no other, in any order."""
    if len(want) != len(found):
        raise MismatchError(f"{len(found):,} matches instead of {len(want):,}")
    if not np.array_equal(want[np.lexsort(want.T)], found[np.lexsort(found.T)]):
        raise MismatchError("other matches than there are")
