"""Results with a time, and in streams that update a kind, of their own: what the functions of joins give to their operator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.ids import Milliseconds
from penstock.records import NO_TIMESTAMP, Batch, Records
from penstock.runtime.operators.operator import Outputs


class Result(NamedTuple):
    """`time`: that of the record or timer, unless given; `kind`: the code of a `RowKind`."""

    value: Any
    time: Milliseconds | None = None
    kind: int = 0


class ResultOutputs(Outputs):
    """Takes batches of `Result`s, and emits what they say."""

    __slots__ = ("updates",)

    def __init__(self, before: Outputs, *, updates: bool) -> None:
        super().__init__()
        self.observer = before.observer
        self.main, self.side = before.main, before.side
        self.emitted, self.no_later = before.emitted, before.no_later
        self.updates = updates

    def emit(self, batch: Batch) -> None:
        results: list[Result] = batch.values()
        if not results:
            return
        given = np.full(len(results), NO_TIMESTAMP, dtype=np.int64) if batch.timestamps is None else batch.timestamps
        times = np.fromiter(
            (usual if time is None else time for (_, time, _), usual in zip(results, given.tolist(), strict=True)),
            dtype=np.int64,
            count=len(results),
        )
        kinds = np.fromiter((kind for _, _, kind in results), dtype=np.int8, count=len(results)) if self.updates else None
        super().emit(Records([value for value, _, _ in results], times, batch.ticks, kinds))
