"""Spark's `transformWithState` in Python, on rows or in pandas (`api`), with RocksDB and its changelog checkpoints.

Per key and micro-batch the function reads the state once, goes through the key's rows, and writes the state once.

Timed: from the trigger of the first micro-batch with data to the end of the last one (its output and commit log written), by the
query's own progress. Before that the same query has run over a small input in the same session.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from harness.contenders import progress
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

STATE = "count long, sum double"
OUTPUT = "key long, count long, sum double"


class CountRows(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("state", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        count, total = self.state.get() or (0, 0.0)
        user_key = key[0]
        output = []
        for row in rows:
            count += 1
            total += row[2]
            output.append(Row(key=user_key, count=count, sum=total))
        self.state.update((count, total))
        return iter(output)

    def close(self) -> None:
        pass


class CountPandas(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("state", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        import pandas as pd  # type: ignore[import-untyped]

        count, total = self.state.get() or (0, 0.0)
        for frame in rows:
            sums = total + np.cumsum(frame["v"].to_numpy())
            counts = np.arange(count + 1, count + 1 + len(frame))
            count, total = int(counts[-1]), float(sums[-1])
            yield pd.DataFrame({"key": np.full(len(frame), key[0]), "count": counts, "sum": sums})
        self.state.update((count, total))

    def close(self) -> None:
        pass


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    spark = (
        SparkSession.builder.master(f"local[{parameters['processes']}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", str(parameters["processes"]))
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.driver.extraJavaOptions", parameters["java_options"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    _run(spark, parameters, parameters["warm_folder"], "warm", 4)
    progress("warm")
    batches = _run(spark, parameters, parameters["folder"], "out", parameters["files_per_batch"])
    spark.stop()
    seconds = max(end for _, end, _ in batches) - min(start for start, _, _ in batches)
    rows = [rows for _, _, rows in batches]
    return {
        "events": sum(rows),
        "seconds": seconds,
        "batches": rows,
        "batch_seconds": [round(end - start, 3) for start, end, _ in batches],
    }


def _run(spark: SparkSession, parameters: dict[str, Any], folder: str, name: str, files_per_batch: int) -> list[Any]:
    stream = spark.readStream.schema("key long, ts long, v double").option("maxFilesPerTrigger", files_per_batch).parquet(folder)
    out = str(Path(parameters["out"], name))
    query = (
        _counted(stream, parameters["api"])
        .writeStream.format("parquet")
        .option("path", out)
        .option("checkpointLocation", f"{out}-checkpoint")
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    said = 0
    while not query.awaitTermination(1):
        if len(query.recentProgress) > said:
            said = len(query.recentProgress)
            progress(f"{name}: micro-batch {said} done")
    batches = []
    for each in query.recentProgress:
        if each["numInputRows"]:
            start = datetime.fromisoformat(each["timestamp"]).timestamp()
            batches.append((start, start + each["durationMs"]["triggerExecution"] / 1000, each["numInputRows"]))
    assert batches, "the query has read nothing"
    return batches


def _counted(stream: DataFrame, api: str) -> DataFrame:
    grouped = stream.groupBy("key")
    if api == "rows":
        return grouped.transformWithState(
            statefulProcessor=CountRows(), outputStructType=OUTPUT, outputMode="append", timeMode="none"
        )
    return grouped.transformWithStateInPandas(
        statefulProcessor=CountPandas(), outputStructType=OUTPUT, outputMode="append", timeMode="none"
    )
