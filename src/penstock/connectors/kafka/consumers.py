"""Consumers, kept in the worker between epochs: one for each partition that it reads.

A consumer is assigned to its partition at an offset when a split is read, and to nothing in between, so that an idle one asks for
nothing. Assigning costs a millisecond, if the client is told not to wait: by default an empty fetch takes half a second
(`fetch.wait.max.ms`), and one that was put off a whole one (`fetch.queue.backoff.ms`).

The end of a split may be a gap, such as the mark that ends a transaction: then no message says that it was reached, but the
event of the partition's end or a later message does.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.clients import client_library, configuration, failure, nature_of
from penstock.errors import SourceError

if TYPE_CHECKING:
    from penstock.connectors.kafka.source import KafkaSource

MOST = 128
"""Consumers that a process keeps."""

_AT_ONCE = 10_000
_WAIT_S = 0.5
_GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")

_kept: OrderedDict[tuple[str, ...], Any] = OrderedDict()
_lock = threading.Lock()
_process = os.getpid()


def messages(source: KafkaSource, topic: str, partition: int, start: int, stop: int) -> Iterator[list[Any]]:
    """The messages of a partition from `start` up to `stop`, as they come."""
    library = client_library("KafkaSource")
    key, settings = _key(source, topic, partition)
    at = start
    while True:
        kept = _take(key)
        try:
            for found in _assigned(source, library, kept or _make(source, library, settings), key, (topic, partition, at, stop)):
                at = found[-1].offset() + 1
                yield found
            return
        except _GoneError as error:
            if kept is None:
                raise error.told from None
            # A client that has known the topic for long may remember what is not so any more: another one is asked.


class _GoneError(Exception):
    def __init__(self, told: SourceError) -> None:
        super().__init__(told)
        self.told = told


def _assigned(
    source: KafkaSource, library: Any, consumer: Any, key: tuple[str, ...], what: tuple[str, int, int, int]
) -> Iterator[list[Any]]:
    """The messages of a range by this consumer, which is kept if all went well."""
    topic, partition, start, stop = what
    healthy = False
    try:
        consumer.incremental_assign([library.TopicPartition(topic, partition, start)])
        yield from _fetched(source, library, consumer, f"{topic}-{partition}", start, stop)
        consumer.incremental_unassign([library.TopicPartition(topic, partition)])
        healthy = True
    except library.KafkaException as error:
        raise failure(SourceError, f"{topic}-{partition} could not be read", error, source.bootstrap, source.options) from error
    finally:
        if healthy:
            _keep(key, consumer)
        else:
            consumer.close()


def _fetched(source: KafkaSource, library: Any, consumer: Any, name: str, start: int, stop: int) -> Iterator[list[Any]]:
    end_reached = library.KafkaError._PARTITION_EOF
    at = start
    deadline = time.monotonic() + source.patience_s
    while at < stop:
        found = consumer.consume(min(_AT_ONCE, stop - at), 0) or consumer.consume(1, _WAIT_S)
        if not found:
            if time.monotonic() > deadline:
                raise SourceError(
                    f"Kafka does not deliver {name}",
                    detail=f"{source.bootstrap}: nothing from offset {at} on, up to {stop}, in {source.patience_s:g} s",
                    hint="the epoch is tried again; patience= is how long to wait",
                    nature="transient",
                )
            continue
        deadline = time.monotonic() + source.patience_s
        errors = [message for message in found if message.error() is not None]
        if errors:
            found = [message for message in found if message.error() is None]
            for message in errors:
                error = message.error()
                if error.code() == end_reached:
                    at = max(at, message.offset())
                elif error.name() in _GONE:
                    raise _GoneError(_gone(source, name, start, stop))
                elif not error.retriable() and nature_of(error.name()) == "configuration":
                    raise library.KafkaException(error)
        if found:
            last = found[-1].offset()
            if last >= stop:
                found = [message for message in found if message.offset() < stop]
            at = max(at, last + 1)
            if found:
                yield found


def _gone(source: KafkaSource, name: str, start: int, stop: int) -> SourceError:
    return SourceError(
        f"messages of {name} are not there any more",
        detail=f"offsets {start} to {stop - 1} at {source.bootstrap} were to be read",
        hint='they were deleted while the job read them: keep messages for longer (retention.ms), or choose on_lost="earliest"',
    )


def _key(source: KafkaSource, topic: str, partition: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """What tells consumers apart: a secret that has changed makes another one."""
    settings = configuration(
        source.bootstrap,
        source.options,
        "KafkaSource",
        client_id="penstock",
        group_id=source.group or "penstock",
        isolation_level=source.isolation,
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        auto_offset_reset="error",
        fetch_wait_max_ms=10,
        fetch_queue_backoff_ms=2,
        queued_max_messages_kbytes=16384,
        fetch_message_max_bytes=4 << 20,
    )
    return (topic, str(partition), *(f"{name}={value}" for name, value in sorted(settings.items()))), settings


def _make(source: KafkaSource, library: Any, settings: dict[str, str]) -> Any:
    try:
        return library.Consumer(settings)
    except library.KafkaException as error:
        raise failure(SourceError, "the Kafka source cannot be set up", error, source.bootstrap, source.options) from error


def _take(key: tuple[str, ...]) -> Any:
    """A consumer that is free; nobody else has it until it is kept again."""
    global _process
    with _lock:
        if _process != os.getpid():  # those of the process that this one was forked from are not ours
            _kept.clear()
            _process = os.getpid()
        return _kept.pop(key, None)


def _keep(key: tuple[str, ...], consumer: Any) -> None:
    with _lock:
        old = [_kept.pop(key, None)]
        _kept[key] = consumer
        while len(_kept) > MOST:
            old.append(_kept.popitem(last=False)[1])
    for each in old:
        if each is not None:
            each.close()


@atexit.register
def close_consumers() -> None:
    """Close all that are kept."""
    if _process != os.getpid():
        return
    with _lock:
        kept = list(_kept.values())
        _kept.clear()
    for consumer in kept:
        consumer.close()
