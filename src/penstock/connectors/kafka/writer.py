"""Encodes records as messages, in the worker: staged for the driver, or sent at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.changes import RowKind
from penstock.connectors.kafka.clients import client_library, configuration
from penstock.connectors.kafka.transactions import Message, kafka_failure
from penstock.connectors.protocol import Committable, SinkWriter, WriterContext
from penstock.connectors.staging.rows import StagedWriter, encode_rows
from penstock.errors import PenstockError, SinkError
from penstock.records import NO_TIMESTAMP, Batch, Records, field_getter

if TYPE_CHECKING:
    from penstock.connectors.kafka.sink import KafkaSink

FLUSH_S = 120.0


class MessageEncoder:
    """Makes messages of batches."""

    def __init__(self, sink: KafkaSink, step: str) -> None:
        self._sink = sink
        self._step = step
        self._value = sink.value.encoder()
        self._key = sink.key_format.encoder()

    def messages(self, batch: Batch) -> list[Message]:
        sink, count = self._sink, len(batch)
        if not count:
            return []
        try:
            values: list[Any] = list(self._value.encode(batch))
            records = batch.values() if sink.key is not None or callable(sink.topic) or sink.headers is not None else []
            keys = [None] * count if sink.key is None else self._keys(records, sink.key)
        except PenstockError:
            raise
        except Exception as error:
            raise SinkError(
                f"the sink {self._step} cannot encode its records",
                detail=f"{sink.value.describe()}\nfirst record: {batch.values()[0]!r:.200}\n{error!r}",
                hint="map the records to what the format can write",
            ) from error
        if batch.kinds is not None:
            for i in np.flatnonzero(batch.kinds == RowKind.DELETE.code).tolist():
                values[i] = None
        times: list[Any] = [None] * count
        if batch.timestamps is not None:
            times = [None if time == NO_TIMESTAMP or time < 0 else time for time in batch.timestamps.tolist()]
        topics = [str(sink.topic(record)) for record in records] if callable(sink.topic) else [None] * count
        headers = [None] * count if sink.headers is None else [_headers(sink.headers(record)) for record in records]
        return list(map(Message, topics, values, keys, times, headers))

    def _keys(self, records: list[Any], key: str | Callable[[Any], Any]) -> list[bytes | None]:
        found = (
            [field_getter(record, key)(record) for record in records]
            if isinstance(key, str)
            else [key(record) for record in records]
        )
        there = [each for each in found if each is not None]
        encoded = iter(self._key.encode(Records(there)))
        return [None if each is None else next(encoded) for each in found]


class StagingWriter(SinkWriter):
    """Messages wait in the job's storage until the epoch is durable."""

    def __init__(self, sink: KafkaSink, context: WriterContext) -> None:
        self._encoder = MessageEncoder(sink, context.step)
        self._staged = StagedWriter(context, encode_rows)
        self._partition = context.partition

    def write(self, batch: Batch) -> None:
        self._staged.write(Records(self._encoder.messages(batch)))

    def prepare(self) -> Committable:
        return {**self._staged.prepare(), "partition": self._partition}

    def abort(self) -> None:
        self._staged.abort()


class DirectWriter(SinkWriter):
    """Messages are sent as they are written; the epoch waits until Kafka has them."""

    def __init__(self, sink: KafkaSink, context: WriterContext) -> None:
        self._sink = sink
        self._encoder = MessageEncoder(sink, context.step)
        self._producer = _producer(sink)
        self._failed: list[Any] = []
        self._rows = 0

    def write(self, batch: Batch) -> None:
        produce, topic = self._producer.produce, self._sink.topic
        for number, message in enumerate(self._encoder.messages(batch)):
            more: dict[str, Any] = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            if message.headers:
                more["headers"] = message.headers
            while True:
                try:
                    produce(message.topic or topic, message.value, message.key, on_delivery=self._told, **more)
                    break
                except BufferError:
                    self._producer.poll(0.2)
            if not number & 1023:
                self._producer.poll(0)
        self._rows += len(batch)

    def prepare(self) -> Committable:
        left = self._producer.flush(FLUSH_S)
        if left or self._failed:
            why = self._failed[0] if self._failed else f"{left} messages were not taken in {FLUSH_S:g} s"
            _forget(self._sink)
            raise kafka_failure("messages could not be sent", RuntimeError(str(why)), self._sink.bootstrap, self._sink.options)
        return {"path": None, "rows": self._rows}

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)


_producers: dict[tuple[int, tuple[tuple[str, str], ...]], Any] = {}


def _settings(sink: KafkaSink) -> dict[str, str]:
    return configuration(
        sink.bootstrap,
        sink.options,
        "KafkaSink",
        client_id="penstock",
        enable_idempotence=True,
        partitioner="murmur2_random",
        compression_type=sink.compression,
        linger_ms=2,
        message_max_bytes=20 << 20,
    )


def _producer(sink: KafkaSink) -> Any:
    """Kept in the worker between epochs; another one if a secret has changed."""
    library = client_library("KafkaSink")
    settings = _settings(sink)
    key = (os.getpid(), tuple(sorted(settings.items())))
    found = _producers.get(key)
    if found is None:
        try:
            found = _producers[key] = library.Producer(settings)
        except library.KafkaException as error:
            raise kafka_failure("the Kafka sink cannot be set up", error, sink.bootstrap, sink.options) from error
    return found


def _forget(sink: KafkaSink) -> None:
    """What a producer that failed still holds is not sent later."""
    found = _producers.pop((os.getpid(), tuple(sorted(_settings(sink).items()))), None)
    if found is not None:
        found.purge()


def _headers(headers: Mapping[str, str | bytes]) -> list[tuple[str, bytes]]:
    return [(name, value.encode() if isinstance(value, str) else bytes(value)) for name, value in headers.items()]
