"""Any streaming source of Spark's as the input of a job: here JSON files, read by `spark.readStream`.

Spark reads, Penstock keeps the state: a micro-batch of Spark's is the input of an epoch, and Spark is told that the batch is done
only after the epoch is committed.

python examples/spark_feed.py
"""

import json
import os
import tempfile
from typing import Any

from penstock import DataStream, EpochRecord, StreamEnvironment
from penstock.connectors.spark_feed.source import SparkStreamSource
from penstock.jobs.requests import ask
from penstock.storage import open_storage

FILES, LINES = 3, 20


def build(env: StreamEnvironment, folder: str) -> DataStream[dict[str, Any]]:
    feed = SparkStreamSource("json", {"path": folder, "maxFilesPerTrigger": 1}, "room string, visitors int")
    visits: DataStream[dict[str, Any]] = env.from_source(feed, name="visits")
    return visits.key_by("room").sum("visitors", name="visitors")


def write_input(folder: str) -> None:
    for number in range(FILES):
        with open(os.path.join(folder, f"{number}.json"), "w") as file:
            file.writelines(json.dumps({"room": "ABC"[line % 3], "visitors": 1}) + "\n" for line in range(LINES))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        inbox, storage = os.path.join(folder, "inbox"), os.path.join(folder, "job")
        os.mkdir(inbox)
        write_input(inbox)
        env = StreamEnvironment("spark-feed", storage=storage)
        read = 0

        def stop_when_read(record: EpochRecord) -> None:
            """A stream has no end: ask the job to stop, as `penstock stop` does, when all files are in."""
            nonlocal read
            read += record.records_in
            if read >= FILES * LINES:
                ask(open_storage(storage), "stop")

        totals = build(env, inbox).execute_and_collect(listener=stop_when_read)
        for room, visitors in sorted({total["room"]: total["visitors"] for total in totals}.items()):
            print(f"room {room}: {visitors} visitors")


if __name__ == "__main__":
    main()
