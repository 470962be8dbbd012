"""From when an event is sent to when a `read_committed` consumer has it from the job's output, at 1,000 events a second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from harness.kafka.broker import Broker
from harness.kafka.load import Latency
from harness.kafka.windows import spark_program
from harness.places import BENCHMARKS, ROOT, fresh_folder
from harness.progress import say
from harness.report import Report

RATE = 1000
WARM_S = 10.0
"""Not counted: so long, from the first event that came through."""
_START_S = 120.0


def penstock(broker: Broker, seconds: float, report: Report) -> Latency:
    say("latency: Penstock")
    program = [sys.executable, str(BENCHMARKS / "harness" / "kafka" / "penstock_job.py"), "latency"]
    return _measured(broker, program, [str(fresh_folder("kafka", "latency")), "epoch"], seconds, report, "Penstock")


def spark(broker: Broker, seconds: float, report: Report) -> Latency:
    say("latency: Spark Structured Streaming")
    return _measured(
        broker, [*spark_program(), "latency"], [str(fresh_folder("kafka", "latency-spark"))], seconds, report, "Spark"
    )


def _measured(broker: Broker, program: list[str], arguments: list[str], seconds: float, report: Report, who: str) -> Latency:
    source, target = broker.topic(), broker.topic()
    job = subprocess.Popen(
        [*program, broker.bootstrap, source, target, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stop = threading.Event()
    feeder = threading.Thread(target=_feed, args=(broker, source, stop), daemon=True)
    try:
        feeder.start()
        found = _arrivals(broker, target, seconds)
    finally:
        stop.set()
        feeder.join()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    if len(found) < 0.9 * RATE * seconds:
        report.problems.append(f"latency: of {who} only {len(found)} events came through in {seconds:g} s")
    return Latency.of(found or [float("nan")])


def _feed(broker: Broker, topic: str, stop: threading.Event) -> None:
    """Events that are the time at which they were sent."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    began, sent = time.perf_counter(), 0
    while not stop.wait(0.005):
        due = int((time.perf_counter() - began) * RATE)
        for number in range(sent, due):
            producer.produce(topic, b"%d" % time.time_ns(), partition=number % 4)
        sent = due
        producer.poll(0)
    producer.flush(10)


def _arrivals(broker: Broker, topic: str, seconds: float) -> list[float]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
            "fetch.queue.backoff.ms": 2,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
    found: list[float] = []
    counted_from = until = time.monotonic() + _START_S
    first = True
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        now = time.time_ns()
        if first:
            first, counted_from = False, time.monotonic() + WARM_S
            until = counted_from + seconds
        if time.monotonic() >= counted_from:
            found.append((now - int(message.value())) / 1e6)
    consumer.close()
    return found
