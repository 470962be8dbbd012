"""The usual first program: readings from a Kafka topic, keyed by sensor, in windows of five seconds, into rolling files.

PENSTOCK_KAFKA=localhost:9092 python examples/kafka/sensor_windows.py TOPIC FOLDER
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from penstock import FileSink, StreamEnvironment, TumblingWindows, Watermarks, avg, count, read_output
from penstock.connectors.formats import JsonFormat
from penstock.connectors.kafka import KafkaSource


@dataclass
class Reading:
    sensor: str
    celsius: float
    at: int  # milliseconds


def build(env: StreamEnvironment, bootstrap: str, topic: str, folder: str) -> None:
    source = KafkaSource(bootstrap, topic, value=JsonFormat(Reading), stop="now")
    readings = env.from_source(source, watermarks=Watermarks.bounded(seconds=2, timestamp="at"), name="readings")
    windows = readings.key_by("sensor").window(TumblingWindows(seconds=5))
    windows.aggregate(count(), mean=avg("celsius"), name="means").sink_to(FileSink(folder), name="files")


def main() -> None:
    topic, folder = sys.argv[1:]
    env = StreamEnvironment("sensors")
    build(env, os.environ["PENSTOCK_KAFKA"], topic, folder)
    env.execute()
    for row in sorted(read_output(folder), key=lambda row: (row["window_start"], row["sensor"])):
        print(f"{row['window_start'] // 1000:2} s: {row['sensor']} {row['mean']:.1f} on average of {row['count']}")


if __name__ == "__main__":
    main()
