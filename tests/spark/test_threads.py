"""The JVM's threads do not grow with the number of epochs."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import CollectSink, EpochRecord, StreamEnvironment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

EPOCHS = 200
MONITOR = "Worker Monitor for"
"""Of a Python task: it looks every two seconds whether its task is over, so there are as many as tasks began in two seconds."""
LARGEST = {"block-manager-ask-thread-pool": 100, "block-manager-storage-async-thread-pool": 100}
"""Pools of Spark that get a thread for each of their first tasks, and then no more."""
SLACK = 4


def pools(spark: SparkSession) -> Counter[str]:
    """How many threads the JVM has, by name without numbers."""
    jvm: Any = spark.sparkContext._jvm
    names = [str(thread.getName()) for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
    return Counter(MONITOR if name.startswith(MONITOR) else re.sub(r"[-\s#]*\d[-\d]*", "", name) for name in names)


def test_threads_by_pool(spark: SparkSession, tmp_path: Path) -> None:
    seen: dict[int, Counter[str]] = {}
    done = 0

    def listen(_: EpochRecord) -> None:
        nonlocal done
        done += 1
        if done in (EPOCHS // 2, EPOCHS - 1):
            seen[done] = pools(spark)

    env = StreamEnvironment("threads", spark=spark, storage=str(tmp_path), parallelism=2, max_records_per_epoch=2)
    env.from_collection(range(2 * EPOCHS)).map(lambda n: (n % 3, 1)).key_by(0).sum(1).sink_to(CollectSink())
    env.execute(listener=listen)
    assert done >= EPOCHS

    middle, end = seen[EPOCHS // 2], seen[EPOCHS - 1]
    grown = {
        name: (middle[name], count)
        for name, count in end.items()
        if name != MONITOR and count > max(middle[name] + SLACK, LARGEST.get(name, 0))
    }
    assert not grown
    for _ in range(60):
        if not pools(spark)[MONITOR]:
            break
        time.sleep(1)
    assert pools(spark)[MONITOR] == 0, "monitors of tasks that are long over"
