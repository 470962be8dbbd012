"""Messages into Kafka, with a number recorded in the same transaction: what makes a repeated commit harmless.

The law: the messages of an epoch, and the epoch as the offset of a consumer group that nobody consumes with, are committed in one
transaction. Whoever opens a `Ledger` fences all who had it before, has a transaction that they left open completed or
aborted, and only then reads what was recorded. So the number it reads is final, and what is at or below it is not sent again.

The group's offset is that of a partition of an existing topic (the ledger topic). Kafka forgets the offsets of a group after
`offsets.retention.minutes` (seven days) without a commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.connectors.kafka.clients import Options, client_library, configuration, failure, named
from penstock.errors import SinkError

_TIMEOUT_S = 30.0
_AGAIN_S = 0.5


class Message(NamedTuple):
    """As it is staged, and sent."""

    topic: str | None
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes]] | None = None


class Ledger:
    """A transactional producer and the number that goes with what it sends. `recorded`: the last one; None if there is none."""

    def __init__(self, bootstrap: str, options: Options, *, name: str, topic: str, **settings: object) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._kafka = client_library("KafkaSink")
        self._place = self._kafka.TopicPartition(topic, 0)
        self.name = name
        ours = configuration(
            bootstrap,
            options,
            "KafkaSink",
            client_id="penstock",
            transactional_id=name,
            partitioner="murmur2_random",
            linger_ms=2,
            message_max_bytes=20 << 20,
            queue_buffering_max_kbytes=131072,
            queue_buffering_max_messages=200_000,
            **settings,
        )
        self._producer: Any = self._kafka.Producer(ours)
        group = configuration(
            bootstrap,
            _of_consumers(options),
            "KafkaSink",
            group_id=name,
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        self._consumer: Any = self._kafka.Consumer(group)
        try:
            self._insist(lambda: self._producer.init_transactions(_TIMEOUT_S))
            (found,) = self._insist(lambda: self._consumer.committed([self._place], _TIMEOUT_S))
            if found.error is not None:
                raise self._kafka.KafkaException(found.error)
            self._group = self._consumer.consumer_group_metadata()
        except self._kafka.KafkaException:
            self.close()
            raise
        self.recorded: int | None = found.offset if found.offset >= 0 else None

    def send(self, number: int, messages: Iterable[Message], topic: str | None) -> int:
        """Send all messages and record the number, in one transaction; how many there were."""
        producer = self._producer
        producer.begin_transaction()
        sent = 0
        for message in messages:
            self._produce(message, message.topic or topic)
            sent += 1
            if not sent & 1023:
                producer.poll(0)
        self._place.offset = number
        self._insist(lambda: producer.send_offsets_to_transaction([self._place], self._group, _TIMEOUT_S))
        self._insist(lambda: producer.commit_transaction(_TIMEOUT_S))
        self.recorded = number
        return sent

    def has_topic(self, name: str) -> bool:
        found = self._producer.list_topics(name, _TIMEOUT_S).topics[name]
        return found.error is None

    def close(self) -> None:
        with suppress(Exception):
            self._producer.purge()
        with suppress(Exception):
            self._producer.close(0.5)
        with suppress(Exception):
            self._consumer.close()

    def _produce(self, message: Message, topic: str | None) -> None:
        more: dict[str, Any] = {}
        if message.timestamp_ms is not None:
            more["timestamp"] = message.timestamp_ms
        if message.headers:
            more["headers"] = message.headers
        while True:
            try:
                return self._producer.produce(topic, message.value, message.key, **more)  # type: ignore[no-any-return]
            except BufferError:  # the broker takes less than we have
                self._producer.poll(0.2)

    def _insist(self, call: Any) -> Any:
        """Kafka says which errors of transactions are to be tried again."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return call()
            except self._kafka.KafkaException as error:
                code = error.args[0]
                if not code.retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)


def kafka_failure(what: str, error: BaseException, bootstrap: str, options: Options) -> SinkError:
    """An error of Kafka's as one of the sink's."""
    hints = {
        "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic",
        "_MSG_TIMED_OUT": "does the topic exist, and can the brokers be reached under the names they advertise?",
        "_FENCED": "another driver has taken over",
        "PRODUCER_FENCED": "another driver has taken over",
        "INVALID_PRODUCER_EPOCH": "another driver has taken over",
    }
    hint = hints.get(named(error), "what is staged is kept, and sent again")
    made = failure(SinkError, what, error, bootstrap, options, hint=hint)
    assert isinstance(made, SinkError)
    return made


def _of_consumers(options: Options) -> dict[str, str]:
    """Of a producer's options, those that a consumer knows as well."""
    ours = ("security.", "sasl.", "ssl.", "socket.", "broker.", "client.", "reconnect.", "debug", "log", "enable.ssl")
    return {name: value for name, value in options.items() if name.startswith(ours)}
