"""A loop with keyed state, to files: which nodes of a ring of roads can be reached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock import FileSink, GeneratorSource, StreamEnvironment
from tests.laws.looped_programs import FOUND, Reach

NODES = 120


def row(number: int) -> dict[str, Any]:
    """A road from each node to the next, and in the middle the node to start from."""
    if number == NODES // 2:
        return {"node": 0, "to": None}
    return {"node": number, "to": (number + 1) % NODES}


REACHABLE = range(NODES // 2 + 1)


def program(folder: Path, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`: the nodes go to `folder/out`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_parallelism": 16,
        "max_records_per_epoch": 40,
        "keep": 3,
        "compact_after": 3,
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("looped", **{**defaults, **settings})
    roads = env.from_source(GeneratorSource(row, count=NODES), name="roads")
    loop = roads.iterate(name="spread", turns=1)
    messages = loop.key_by("node").process(Reach(), name="reach")
    loop.close_with(messages)
    messages.side_output(FOUND).sink_to(FileSink(str(folder / "out")), name="out")
    return env


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    print(program(Path(sys.argv[1]), master="local[2,4]", spark_config=network).execute().finished)


if __name__ == "__main__":
    main()
