"""The backlog that is read: events of JSON in a topic, and what becomes of them. And latencies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.kafka.broker import Broker
from harness.progress import say

PARTITIONS = 4
KEYS = 1000
WINDOW_MS = 10_000
EVENTS_A_SECOND = 5_000
"""Of event time."""


class Load:
    """Made once for all who read it. Event n is of key n % KEYS; the timestamps of a partition do not go back."""

    def __init__(self, broker: Broker, events: int) -> None:
        self.events = events
        self.topic = broker.topic(PARTITIONS)
        say(f"writing {events:,} events")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
        for n in range(events):
            at = time_of(n)
            body = b'{"key":"k%d","at":%d,"celsius":%.1f,"note":"a word or two"}' % (n % KEYS, at, n % 400 / 10)
            while True:
                try:
                    producer.produce(self.topic, body, None, n % PARTITIONS, timestamp=at)
                    break
                except BufferError:
                    producer.poll(0.1)
            if not n & 4095:
                producer.poll(0)
        producer.flush()

    @property
    def expected(self) -> Counter[tuple[str, int]]:
        """Of all windows but those that need not be over: the last."""
        last = time_of(self.events - 1) // WINDOW_MS * WINDOW_MS
        numbers = np.arange(self.events)
        windows = (1_700_000_000_000 + numbers * 1000 // EVENTS_A_SECOND) // WINDOW_MS * WINDOW_MS
        found: Counter[tuple[str, int]] = Counter()
        for window in np.unique(windows):
            if window < last:
                keys, counts = np.unique(numbers[windows == window] % KEYS, return_counts=True)
                found.update({(f"k{key}", int(window)): int(n) for key, n in zip(keys, counts, strict=True)})
        return found


def time_of(n: int) -> int:
    return 1_700_000_000_000 + n * 1000 // EVENTS_A_SECOND


def committed_messages(broker: Broker, topic: str) -> list[Any]:
    """All messages that a `read_committed` consumer sees now."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    partitions = len(consumer.list_topics(topic).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = [], set()
    while len(ended) < partitions:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append(message)
    consumer.close()
    return found


@dataclass(frozen=True, slots=True)
class Latency:
    """In milliseconds."""

    p50: float
    p99: float
    events: int

    @classmethod
    def of(cls, millis: list[float]) -> Latency:
        return cls(*(float(value) for value in np.percentile(millis, [50, 99])), len(millis))

    def as_json(self) -> dict[str, float]:
        return {"p50": round(self.p50, 1), "p99": round(self.p99, 1), "events": self.events}
