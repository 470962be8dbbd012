"""Spark's own streaming aggregation: a count per key in update mode, at its fastest trigger, each micro-batch written as JSON.

Two sources. `rate`: Spark's own, which hands out whole seconds only, so that an event waits half a second on average before a
micro-batch can have it. `socket`: lines that a thread sends when they are due, which a micro-batch takes as they are.

Latency of an event: from its time (for `socket`: when it was due) to the moment the write of its micro-batch has finished. Spark
writes its commit log after that, which is not counted.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from harness.contenders import progress
from harness.spark_sessions import session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    """`lags[i]`: when event `first + i` was written, after it was due, in seconds."""
    rate, keys, seconds = parameters["rate"], parameters["keys"], parameters["warm_seconds"] + parameters["seconds"]
    spark = session("local[2]", SETTINGS)
    finished: dict[int, float] = {}
    out = Path(parameters["out"])

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").json(str(out / f"{number}"))
        finished[number] = time.time()

    feeder = _Feeder(rate) if parameters["source"] == "socket" else None
    stream = _socket(spark, feeder) if feeder else _rate(spark, rate)
    counts = stream.groupBy(((sf.col("n") * 7919) % keys).alias("key")).agg(
        sf.count("*").alias("count"), sf.max("n").alias("n"), sf.max("at").alias("at")
    )
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    if feeder:
        feeder.start()
    deadline = time.time() + 2 * seconds + 60
    while time.time() < deadline and not query.awaitTermination(1):
        last = query.lastProgress
        if last and last["numInputRows"] and _range(last, rate, feeder is None)[1] >= seconds * rate:
            break
    if feeder:
        feeder.stop()
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    ranges = {each["batchId"]: _range(each, rate, feeder is None) for each in query.recentProgress if each["numInputRows"]}
    spark.stop()
    # A batch that was under way when the query stopped may be written, and yet not be in its progress.
    written = {number: _lines(out / f"{number}") for number in finished if number in ranges}
    # Of the rate source an event's time is its number by the rate, after a start that the output tells.
    begin = feeder.begin if feeder else _rate_begin([line for lines in written.values() for line in lines], rate)
    lags: dict[int, float] = {}
    for number, (start, stop) in ranges.items():
        if number in finished:
            lags.update((n, finished[number] - (begin + n / rate)) for n in range(start, stop))
    first = parameters["warm_seconds"] * rate
    last = min(max(lags) + 1, seconds * rate)
    progress(f"{len(finished)} micro-batches, {len(lags):,} events")
    return {
        "lags": [lags[n] for n in range(first, last)],
        "events": max(lags) + 1,
        "batches": len(finished),
        "counts": [[line["key"], line["count"]] for lines in written.values() for line in lines],
    }


def _rate(spark: SparkSession, rate: int) -> DataFrame:
    stream = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 2).load()
    return stream.select(sf.col("value").alias("n"), (sf.unix_millis("timestamp")).alias("at"))


def _socket(spark: SparkSession, feeder: _Feeder) -> DataFrame:
    stream = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", feeder.port).load()
    return stream.select(sf.col("value").cast("long").alias("n"), sf.lit(0).alias("at"))


def _range(progress_of_batch: dict[str, Any], rate: int, in_seconds: bool) -> tuple[int, int]:
    """The numbers of the events of a micro-batch, from its offsets."""
    source = progress_of_batch["sources"][0]
    start, end = (None if source[name] in (None, "null") else int(source[name]) for name in ("startOffset", "endOffset"))
    assert end is not None
    if in_seconds:
        return (start or 0) * rate, end * rate
    return (-1 if start is None else start) + 1, end + 1


def _lines(folder: Path) -> list[dict[str, int]]:
    return [json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines()]


def _rate_begin(lines: list[dict[str, int]], rate: int) -> float:
    return min(line["at"] / 1000 - line["n"] / rate for line in lines)


class _Feeder:
    """Sends the line `n` to whoever is connected, n / rate seconds after the start."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._stopped = threading.Event()
        self.begin = 0.0
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin = time.time()
        while not self._stopped.is_set():
            due = int((time.time() - self.begin) * self._rate) + 1
            if due > self.sent:
                connection.sendall("".join(f"{n}\n" for n in range(self.sent, due)).encode())
                self.sent = due
            time.sleep(0.005)
