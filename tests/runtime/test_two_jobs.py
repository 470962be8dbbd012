"""Jobs in one process: files of the same names, and nothing in common."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectSink, GeneratorSource, StreamEnvironment

COUNT = 600


def job(folder: Path, factor: int, sink: Any, **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment(
        "one-of-two",
        executor="inline",
        parallelism=2,
        storage=str(folder / "storage"),
        local_dir=str(folder.parent / "local"),
        max_records_per_epoch=20,
        first_records_per_epoch=20,
        **settings,
    )
    numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=1), name="numbers")
    numbers.map(lambda n: (n % 7, n * factor)).key_by(0).sum(1, name="sums").sink_to(sink, name="out")
    return env


def sums(factor: int) -> dict[int, int]:
    return {key: factor * sum(range(key, COUNT, 7)) for key in range(7)}


@pytest.mark.parametrize("pipeline", [0, 3])
@pytest.mark.parametrize("store", ["memory", "lmdb"])
def test_side_by_side(tmp_path: Path, pipeline: int, store: str) -> None:
    sinks = [CollectSink(), CollectSink()]
    jobs = [job(tmp_path / str(n), n + 1, sink, pipeline=pipeline, state_store=store) for n, sink in enumerate(sinks)]
    threads = [threading.Thread(target=env.execute) for env in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, sink in enumerate(sinks):
        found: dict[int, int] = {}
        for key, value in sink.results():
            found[key] = max(value, found.get(key, 0))
        assert found == sums(number + 1)
