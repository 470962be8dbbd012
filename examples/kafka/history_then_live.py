"""History from files up to a day, then a Kafka topic from that day on, as one source: the mean of each sensor, day by day.

PENSTOCK_KAFKA=localhost:9092 python examples/kafka/history_then_live.py ARCHIVE TOPIC 2026-03-02
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock import DataStream, FileSource, StreamEnvironment, TumblingWindows, Watermarks, avg, count
from penstock.connectors import HybridSource
from penstock.connectors.formats import JsonFormat
from penstock.connectors.kafka import KafkaSource


@dataclass
class Reading:
    sensor: str
    celsius: float
    at: int  # milliseconds


def build(env: StreamEnvironment, bootstrap: str, archive: str, topic: str, day: datetime) -> DataStream[dict[str, Any]]:
    history = FileSource(archive, format="json", schema=Reading)
    live = KafkaSource(bootstrap, topic, value=JsonFormat(Reading), start=day, stop="now")
    readings = env.from_source(
        HybridSource(history, live), watermarks=Watermarks.bounded(seconds=60, timestamp="at"), name="readings"
    )
    return readings.key_by("sensor").window(TumblingWindows(days=1)).aggregate(count(), mean=avg("celsius"), name="days")


def main() -> None:
    archive, topic, day = sys.argv[1:]
    env = StreamEnvironment("history-then-live")
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    rows = build(env, os.environ["PENSTOCK_KAFKA"], archive, topic, start).execute_and_collect()
    for row in sorted(rows, key=lambda row: (row["window_start"], row["sensor"])):
        when = datetime.fromtimestamp(row["window_start"] / 1000, UTC)
        print(f"{when:%Y-%m-%d} {row['sensor']}: {row['mean']:.1f} on average of {row['count']}")


if __name__ == "__main__":
    main()
