"""Rows: records of one side of a join, as vectors and the columns of theirs that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.ids import Milliseconds
from penstock.joins.columns import one_payload

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Rows:
    """`keys` by number in the task's `KeyIndex`; `ticks` and `turns` say in what order they came; `met`: have found a partner."""

    keys: Numbers
    times: Numbers
    ticks: Numbers
    turns: Numbers
    met: Mask
    data: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Any) -> Rows:
        """Some rows, by number or mask."""
        numbers = np.flatnonzero(rows) if rows.dtype == bool else rows
        return self._with(numbers, self.data.take(pa.array(numbers)))

    def slice(self, start: int, stop: int) -> Rows:
        return self._with(slice(start, stop), self.data.slice(start, stop - start))

    def _with(self, at: Any, data: pa.RecordBatch) -> Rows:
        return Rows(self.keys[at], self.times[at], self.ticks[at], self.turns[at], self.met[at], data)


def one_rows(parts: Sequence[Rows], step: str) -> Rows:
    """The rows of all, in order."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.ticks for part in parts]),
        np.concatenate([part.turns for part in parts]),
        np.concatenate([part.met for part in parts]),
        one_payload([part.data for part in parts], step),
    )


def needed_versions(rows: Rows, watermark: Milliseconds, *, all_there_are: bool = False) -> Rows:
    """Of rows that are versions (`met`: it ends there), those that records can still meet: later ones, and the newest before.

    That a row has ended can be forgotten only where all there are of its key are seen: an older version may be elsewhere.
    """
    past = np.flatnonzero(rows.times <= watermark)
    if not len(past):
        return rows
    order = past[np.lexsort((rows.turns[past], rows.ticks[past], rows.times[past], rows.keys[past]))]
    keys = rows.keys[order]
    newest = order[np.append(keys[1:] != keys[:-1], True)]
    keep = rows.times > watermark
    keep[newest[~rows.met[newest]] if all_there_are else newest] = True
    return rows if keep.all() else rows.take(keep)
