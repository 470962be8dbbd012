"""Spark's own streaming window aggregation: count and sum of each window, Parquet to Parquet, append mode.

The state store is RocksDB with changelog checkpoints, or the default one, in memory with files for recovery ("HDFS-backed").
Files are read in `availableNow` micro-batches of as many files each as makes them as many as Penstock has epochs; after the last,
Spark adds one without data, which emits the windows that the event in the future has closed.

Timed: from the trigger of the first micro-batch to the end of the last one, that without data included, by the query's own
progress. Before that the same query has run over a small input in the same session.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from harness.contenders import progress
from harness.spark_sessions import session
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

STORES = "org.apache.spark.sql.execution.streaming.state"
SETTINGS = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{STORES}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "hdfs": {"spark.sql.streaming.stateStore.providerClass": f"{STORES}.HDFSBackedStateStoreProvider"},
}


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    settings = {
        "spark.driver.memory": "6g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(parameters["processes"]),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        **SETTINGS[parameters["store"]],
    }
    spark = session(f"local[{parameters['processes']}]", settings)
    _run(spark, parameters, parameters["warm_folder"], "warm")
    progress("warm")
    batches = _run(spark, parameters, parameters["folder"], "out")
    spark.stop()
    return {
        "events": sum(batch["rows"] for batch in batches),
        "seconds": max(batch["end"] for batch in batches) - min(batch["start"] for batch in batches),
        "batches": [batch["rows"] for batch in batches],
        "batch_seconds": [round(batch["end"] - batch["start"], 3) for batch in batches],
        "late": sum(batch["late"] for batch in batches),
    }


def _window(parameters: dict[str, Any]) -> Column:
    match parameters["windows"]:
        case "session":
            return sf.session_window("time", f"{parameters['gap']} seconds")
        case "sliding":
            return sf.window("time", f"{parameters['size']} seconds", f"{parameters['slide']} seconds")
    return sf.window("time", f"{parameters['size']} seconds")


def _run(spark: SparkSession, parameters: dict[str, Any], folder: str, name: str) -> list[dict[str, Any]]:
    stream = (
        spark.readStream.schema("key long, ts long, v double")
        .option("maxFilesPerTrigger", parameters["files_per_batch"])
        .parquet(folder)
        .select("key", sf.timestamp_millis("ts").alias("time"), "v")
        .withWatermark("time", f"{parameters['slack']} seconds")
    )
    counted = stream.groupBy(_window(parameters).alias("window"), "key").agg(
        sf.count("*").alias("count"), sf.sum("v").alias("total")
    )
    out = str(Path(parameters["out"], name))
    query = (
        counted.select("key", sf.col("window.start").alias("start"), sf.col("window.end").alias("end"), "count", "total")
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
        start = datetime.fromisoformat(each["timestamp"]).timestamp()
        late = sum(operator["numRowsDroppedByWatermark"] for operator in each["stateOperators"])
        end = start + each["durationMs"]["triggerExecution"] / 1000
        batches.append({"start": start, "end": end, "rows": each["numInputRows"], "late": late})
    assert batches, "the query has read nothing"
    return batches
