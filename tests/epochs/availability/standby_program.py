"""A standby in a process of its own: `standby_program.py FOLDER`. Numbers go to a SQLite table, slowly."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from penstock import EpochRecord, GeneratorSource, StreamEnvironment
from penstock.connectors.twophase import SqliteSink

COUNT = 400
LEASE = timedelta(milliseconds=600)


class Said:
    def __call__(self, record: EpochRecord) -> None:
        pass

    def standing_by(self, name: str, text: str) -> None:
        print(text, flush=True)


def row(value: int) -> tuple[int]:
    return (value,)


def main() -> None:
    folder = Path(sys.argv[1])
    env = StreamEnvironment(
        "numbers",
        storage=str(folder / "storage"),
        local_dir=str(folder / "local"),
        executor="inline",
        parallelism=1,
        standby=True,
        lease=LEASE,
        hang_after=2 * LEASE,
        max_records_per_epoch=4,
        first_records_per_epoch=4,
        epoch_interval=timedelta(milliseconds=50),
    )
    sink = SqliteSink(str(folder / "out.db"), "numbers", ["n"])
    env.from_source(GeneratorSource(int, count=COUNT, partitions=1), name="numbers").map(row).sink_to(sink, name="out")
    print(f"finished={env.execute(listener=Said()).finished}", flush=True)


if __name__ == "__main__":
    main()
