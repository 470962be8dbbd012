"""The dataflow of the Bytewax contender; parameters come in the environment variable BENCHMARK_FLOW.

Source: the Parquet files, read by pyarrow, a partition for each, with the row as resume state. Sink: Bytewax's own DirSink, which
writes lines and, on resume, cuts the files back to the snapshot. The times of the first record and of the end
are written to a file.
"""

# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import atexit
import json
import os
import time
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.connectors.files import DirSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition

PARAMETERS = json.loads(os.environ["BENCHMARK_FLOW"])
BATCH = PARAMETERS["batch"]
CLOCK: dict[str, float] = {}


class _Partition(StatefulSourcePartition):
    def __init__(self, path: str, row: int | None) -> None:
        self._file = pq.ParquetFile(path)
        self._row = row or 0
        self._batches = self._items()

    def _items(self) -> Any:
        seen = 0
        for batch in self._file.iter_batches(BATCH, columns=["key", "v"], use_threads=False):
            start, seen = seen, seen + batch.num_rows
            if seen <= self._row:
                continue
            batch = batch.slice(max(0, self._row - start))
            keys = map(str, batch.column(0).to_numpy().tolist())
            yield list(zip(keys, batch.column(1).to_numpy().tolist(), strict=True))

    def next_batch(self) -> Any:
        CLOCK.setdefault("first", time.time())
        items = next(self._batches)
        self._row += len(items)
        return items

    def snapshot(self) -> int:
        return self._row


class _Files(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return list(PARAMETERS["files"])

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Partition:
        return _Partition(for_part, resume_state)


def count_and_sum(state: tuple[int, float] | None, value: float) -> tuple[tuple[int, float], tuple[int, float]]:
    count, total = state or (0, 0.0)
    state = (count + 1, total + value)
    return state, state


def line(item: tuple[str, tuple[int, float]]) -> tuple[str, str]:
    key, (count, total) = item
    return key, f"{key},{count},{total!r}"


@atexit.register
def _end() -> None:
    """After `cli_main` has returned: all output is written and the last snapshot taken."""
    CLOCK["end"] = time.time()
    Path(f"{PARAMETERS['clock']}.{os.getpid()}").write_text(json.dumps(CLOCK))


flow = Dataflow("keyed_process")
events = op.input("in", flow, _Files())
counted = op.stateful_map("count", events, count_and_sum)
lines = op.map("lines", counted, line)
op.output("out", lines, DirSink(Path(PARAMETERS["out"]), PARAMETERS["processes"]))
