"""Spark's own joins: stream–stream within bounds of time, with either state store, and stream–static; Parquet to Parquet.

Files are read in `availableNow` micro-batches, as many as Penstock has epochs. Timed: from the trigger of the first
micro-batch to the end of the last one, by the query's own progress, after the same query over a small input in the same
session.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from harness.contenders import progress
from harness.spark_sessions import session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from peers.spark_windows import SETTINGS


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
    }


def _interval(spark: SparkSession, parameters: dict[str, Any], folder: str) -> DataFrame:
    sides = [
        spark.readStream.schema("key long, ts long, v long")
        .option("maxFilesPerTrigger", parameters["files_per_batch"])
        .parquet(f"{folder}/{side}")
        .withColumn("time", sf.timestamp_millis("ts"))
        .withWatermark("time", f"{parameters['slack']} seconds")
        .alias(side)
        for side in ("left", "right")
    ]
    seconds = parameters["bound_ms"] / 1000
    near = sf.expr(
        f"left.key = right.key AND right.time >= left.time - interval {seconds} seconds"
        f" AND right.time <= left.time + interval {seconds} seconds"
    )
    return (
        sides[0]
        .join(sides[1], near)
        .select(
            sf.col("left.key").alias("key"),
            sf.col("left.ts").alias("ts"),
            sf.col("left.v").alias("left"),
            sf.col("right.v").alias("right"),
        )
    )


def _static(spark: SparkSession, parameters: dict[str, Any], folder: str) -> DataFrame:
    events = (
        spark.readStream.schema("key long, v long")
        .option("maxFilesPerTrigger", parameters["files_per_batch"])
        .parquet(f"{folder}/events")
    )
    table = spark.read.parquet(f"{folder}/table")
    return events.join(sf.broadcast(table), "key", "left").select("key", "v", "name", "weight")


CASES = {"interval": _interval, "static": _static}


def _run(spark: SparkSession, parameters: dict[str, Any], folder: str, name: str) -> list[dict[str, Any]]:
    out = str(Path(parameters["out"], name))
    query = (
        CASES[parameters["case"]](spark, parameters, folder)
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
        end = start + each["durationMs"]["triggerExecution"] / 1000
        batches.append({"start": start, "end": end, "rows": each["numInputRows"]})
    assert batches, "the query has read nothing"
    return batches
