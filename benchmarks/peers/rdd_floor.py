"""The plainest two-stage RDD job on a warm session: two partitions, a shuffle of four small values, two results.

Timed: each job as the driver sees it, after `warm` jobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from harness.spark_sessions import session


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    spark = session(parameters["master"])
    base = spark.sparkContext.parallelize(range(2), 2)
    seconds = []
    for number in range(parameters["warm"] + parameters["jobs"]):
        start = time.perf_counter()
        base.mapPartitionsWithIndex(_send).partitionBy(2, _same).mapPartitionsWithIndex(_receive).collect()
        if number >= parameters["warm"]:
            seconds.append(time.perf_counter() - start)
    spark.stop()
    return {"seconds": seconds}


def _send(partition: int, records: Iterable[Any]) -> list[tuple[int, bytes]]:
    return [(target, b"x" * 10) for target in range(2)]


def _same(target: int) -> int:
    return target


def _receive(partition: int, records: Iterable[Any]) -> list[tuple[int, int]]:
    return [(partition, sum(1 for _ in records))]
