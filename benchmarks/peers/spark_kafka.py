"""Spark Structured Streaming's own Kafka jobs: windows over a backlog, and a copy for latency. At least once, as its sink is.

python spark_kafka.py JARS windows|latency BOOTSTRAP SOURCE TARGET FOLDER
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

PARALLELISM = 2


def main() -> None:
    jars, what, bootstrap, source, target, folder = sys.argv[1:]
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").appName("spark-kafka")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(10).count()
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    writer_options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": f"{folder}/checkpoint"}
    if what == "latency":
        messages = reader.option("startingOffsets", "latest").option("kafka.isolation.level", "read_committed").load()
        messages.select("value").writeStream.format("kafka").options(**writer_options).start().awaitTermination()
        return
    messages = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500_000).load()
    event = sql.from_json(sql.col("value").cast("string"), "key string, at long, celsius double, note string").alias("e")
    events = (
        messages.select(event).select("e.*").withColumn("time", sql.timestamp_millis("at")).withWatermark("time", "0 seconds")
    )
    counts = events.groupBy(sql.window("time", "10 seconds"), "key").agg(sql.count("*").alias("count"))
    start = sql.unix_millis(sql.col("window.start")).alias("window_start")
    body = sql.to_json(sql.struct("key", start, "count")).alias("value")
    began = time.perf_counter()
    query = (
        counts.select(sql.col("key").cast("string").alias("key"), body)
        .writeStream.format("kafka")
        .options(**writer_options)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
