"""The job of `tests.laws.going` on Spark: `repaired.py FOLDER VERSION [EPOCH]`, with an epoch as a repair from there."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.executors.spark.executor import SparkExecutor
from tests.laws.going import run

if __name__ == "__main__":
    folder, version = Path(sys.argv[1]), int(sys.argv[2])
    start = int(sys.argv[3]) if len(sys.argv) > 3 else None
    config = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    executor = SparkExecutor("versions", "local[2,4]", config, None)
    result = run(folder, version, start=start, repair=start is not None, executor=executor, pipeline=2, keep=1000)
    print(f"finished={result.finished}")
