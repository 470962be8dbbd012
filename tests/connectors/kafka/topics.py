"""Topics for tests: made, filled, and read by a client that knows nothing of us."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers.kafka import KafkaServer

_numbers = count()


def new_topic(server: KafkaServer, partitions: int = 1, **settings: str) -> str:
    name = f"topic-{next(_numbers)}"
    server.create_topic(name, partitions, **{"retention_ms": "-1", **settings})  # times in tests are long ago
    return name


def put(
    server: KafkaServer,
    topic: str,
    values: Iterable[Any],
    *,
    partition: int = 0,
    key: str | bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
    timestamp: int | None = None,
    transaction: str | None = None,
    abort: bool = False,
) -> None:
    """Values as JSON; bytes and None as they are."""
    settings = {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "message.max.bytes": 20 << 20, "log_level": 2}
    producer = Producer({**settings, "transactional.id": transaction} if transaction else settings)
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    more: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp}
    for value in values:
        payload = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, payload, key, partition, headers=list((headers or {}).items()), **more)
    producer.flush(30)
    if transaction:
        producer.abort_transaction(30) if abort else producer.commit_transaction(30)


def messages(server: KafkaServer, topic: str, *, committed: bool = True) -> list[Any]:
    """All messages of a topic, partition by partition, as a reader sees them now."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "log_level": 2,
        }
    )
    partitions = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[list[Any]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    while len(ended) < partitions:
        message: Any = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(message.partition())
        else:
            found[message.partition()].append(message)
    consumer.close()
    return [message for part in found for message in part]


def values(server: KafkaServer, topic: str, *, committed: bool = True) -> list[Any]:
    return [json.loads(message.value()) for message in messages(server, topic, committed=committed)]
