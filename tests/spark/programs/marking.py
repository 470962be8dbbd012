"""The counting job with a module that leaves a mark wherever it is imported: `marking.py FOLDER drive|standby`."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from penstock import EpochRecord, FileSink, GeneratorSource, StreamEnvironment
from tests.laws.trying import COUNT, Number, key_of
from tests.spark.programs.marks import marked


class Said:
    def __call__(self, record: EpochRecord) -> None:
        print(f"epoch {record.epoch}", flush=True)

    def standing_by(self, name: str, text: str) -> None:
        print(text, flush=True)


def main() -> None:
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    env = StreamEnvironment(
        "numbers",
        storage=str(folder / "storage"),
        executor="spark",
        master="local[2,4]",
        parallelism=2,
        max_records_per_epoch=1 if mode == "drive" else 20,  # it is to be driven still when the standby is warm
        epoch_interval=timedelta(seconds=1 if mode == "drive" else 0.1),
        standby=mode == "standby",
        lease=timedelta(seconds=3),
        local_dir=str(folder / "local"),
    )
    numbers = env.from_source(GeneratorSource(int, count=COUNT, partitions=2), name="numbers").map(marked)
    numbers.key_by(key_of).process(Number(), name="number").sink_to(FileSink(str(folder / "out")), name="out")
    result = env.execute(listener=Said())
    print(f"finished={result.finished} sql={SparkSession._instantiatedSession is not None}", flush=True)


if __name__ == "__main__":
    main()
