"""The least that Python can do: a loop over the same Parquet files on two processes.

No exchange, so a process has its own count for a key; nothing durable. Each process reads its half of the files row group by row
group, keeps (count, sum) in a dict and appends (key, count, sum) to a list.

Timed: from the moment both processes, warm, are let go, to the moment the last of them has its list.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    files, processes = parameters["files"], parameters["processes"]
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(processes), context.Queue()
    workers = []
    for n in range(processes):
        out = f"{parameters['out']}/{n}.parquet"
        workers.append(context.Process(target=_worker, args=(files[n::processes], parameters["warm"], out, barrier, answers)))
    for worker in workers:
        worker.start()
    spans = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    start, end = min(span[0] for span in spans), max(span[1] for span in spans)
    return {"events": sum(span[2] for span in spans), "seconds": end - start}


def _worker(files: Sequence[str], warm: Sequence[str], out: str, barrier: Any, answers: Any) -> None:
    _loop(warm)
    barrier.wait()
    start = time.time()
    state, output = _loop(files)
    end = time.time()
    answers.put((start, end, len(output)))
    rows = [(key, count, total) for key, (count, total) in state.items()]
    key, count, total = (np.array(column) for column in zip(*rows, strict=True))
    pq.write_table(pa.table({"key": key, "count": count, "sum": total}), out)


def _loop(files: Sequence[str]) -> tuple[dict[int, list[Any]], list[tuple[int, int, float]]]:
    state: dict[int, list[Any]] = {}
    output: list[tuple[int, int, float]] = []
    for path in files:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["key", "v"], use_threads=False)
            for key, value in zip(table["key"].to_numpy().tolist(), table["v"].to_numpy().tolist(), strict=True):
                entry = state.get(key)
                if entry is None:
                    entry = state[key] = [0, 0.0]
                entry[0] += 1
                entry[1] += value
                output.append((key, entry[0], entry[1]))
    return state, output
