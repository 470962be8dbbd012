"""Spark reads the Parquet files of a savepoint's state and sorts them by key group and key: a restore that keeps nothing.

Timed, after the same over a small part in the same session: from the read to the end of a write that writes nothing (`noop`).
"""

from __future__ import annotations

import time
from typing import Any

from harness.spark_sessions import session


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    spark = session("local[2]", {"spark.driver.memory": "2g"})
    try:
        _sort(spark.read.parquet(*parameters["files"]).limit(1000))
        started = time.perf_counter()
        whole = spark.read.parquet(*parameters["files"])
        _sort(whole)
        return {"seconds": time.perf_counter() - started, "rows": whole.count()}
    finally:
        spark.stop()


def _sort(frame: Any) -> None:
    chosen = frame.select("key_group", "raw_key", "raw_value")
    ordered = chosen.repartitionByRange(2, "key_group").sortWithinPartitions("key_group", "raw_key")
    ordered.write.format("noop").mode("overwrite").save()
