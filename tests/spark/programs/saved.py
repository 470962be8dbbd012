"""Numbers counted by key, to files: what a savepoint has counted can be told from the source's position."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock import FileSink, GeneratorSource, StreamEnvironment

COUNT, KEYS = 4_000, 50


def row(number: int) -> tuple[int, int]:
    """The record that `number` becomes: its key, and the how-manieth of the key it is."""
    return number % KEYS, number // KEYS + 1


def program(folder: Path, *, rate: float | None = None, count: int | None = COUNT, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`: results go to `folder/out`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_parallelism": 16,
        "max_records_per_epoch": 400,
        "keep": 2,
        "compact_after": 3,
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("saved", **{**defaults, **settings})
    numbers = env.from_source(GeneratorSource(lambda n: (n % KEYS, 1), count=count, rate=rate), name="numbers")
    numbers.key_by(0).sum(1, name="sums").sink_to(FileSink(str(folder / "out")), name="out")
    return env


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    print(program(Path(sys.argv[1]), master="local[2,4]", spark_config=network).execute().finished)


if __name__ == "__main__":
    main()
