"""Penstock's jobs of `benchmarks/kafka.py`, in a process of their own: the last line is what they tell, as JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

from penstock import StreamEnvironment, TumblingWindows, Watermarks, count
from penstock.connectors.formats import JsonFormat, RawFormat
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.executors.spark.session import make_session

PARALLELISM = 2
WINDOW_S = 10


@dataclass
class Event:
    key: str
    at: int
    celsius: float
    note: str


def windows(bootstrap: str, source: str, target: str, folder: str, atomic: str) -> None:
    env = _environment("kafka-windows", folder, first_records_per_epoch=200_000)
    events = env.from_source(
        KafkaSource(bootstrap, source, value=JsonFormat(Event), stop="now"),
        watermarks=Watermarks.monotonous(timestamp="at"),
        name="in",
    )
    counts = events.key_by("key").window(TumblingWindows(seconds=WINDOW_S)).aggregate(count(), name="count")
    counts.sink_to(KafkaSink(bootstrap, target, key="key", atomic=atomic), name="out")  # type: ignore[arg-type]
    began = time.perf_counter()
    result = env.execute()
    print(json.dumps({"seconds": time.perf_counter() - began, "epochs": result.epochs}))


def latency(bootstrap: str, source: str, target: str, folder: str, atomic: str) -> None:
    """Runs until it is killed."""
    env = _environment("kafka-latency", folder, target_epoch=0.2)
    events = env.from_source(KafkaSource(bootstrap, source, value=RawFormat(), start="latest", rate=None), name="in")
    events.map(lambda body: body).sink_to(KafkaSink(bootstrap, target, value=RawFormat(), atomic=atomic), name="out")  # type: ignore[arg-type]
    env.execute()


def _environment(name: str, folder: str, **settings: object) -> StreamEnvironment:
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = make_session(name, f"local[{PARALLELISM}]", local)
    return StreamEnvironment(name, spark=spark, parallelism=PARALLELISM, storage=f"{folder}/job", **settings)


if __name__ == "__main__":
    {"windows": windows, "latency": latency}[sys.argv[1]](*sys.argv[2:])
