"""Topics of Kafka as a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Literal

from penstock.changes import Changelog
from penstock.connectors.formats.json_messages import JsonFormat
from penstock.connectors.formats.messages import MessageFormat
from penstock.connectors.formats.raw_messages import TextFormat
from penstock.connectors.kafka.clients import checked_bootstrap, checked_options
from penstock.connectors.kafka.committer import DirectCommitter, KafkaCommitter
from penstock.connectors.kafka.writer import DirectWriter, StagingWriter
from penstock.connectors.protocol import Committer, CommitterContext, SinkWriter, WriterContext
from penstock.errors import ConfigError
from penstock.functions import Call, call_of


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Messages into a topic, or into one that `topic(record)` names.

    - `value`: the format of values; `key`: a field's name, or `key(record)`; `key_format`: of keys, text by default. Messages
      of a key go to the partition that other clients of Kafka would choose.
    - `headers(record)`: a dict of text or bytes. The event time of a record becomes the message's timestamp.
    - `delivery`: "exactly-once": an epoch's messages are sent in a transaction when the epoch is durable; who reads with
      `isolation.level=read_committed` sees all of an epoch or nothing (`atomic="epoch"`), or all of each partition of the sink
      (`atomic="partition"`: several producers). "at-least-once": sent at once by the workers, without a transaction; after a
      crash messages may be there twice.
    - `upsert=True`: takes streams that update: a row replaces that of its key, and a deletion is a message without a value.
    - `ledger`: an existing topic whose name the record of the epoch is kept under (in Kafka's own offsets; nothing is written
      to it); needed if `topic` is a function.
    - `on_lost_record`: what to do when Kafka has no record any more of what was sent before (the job rested for longer than
      `offsets.retention.minutes`): "fail", or "send" what is staged, which may then be there twice.
    - `compression`: of batches. `options`: of the client (TLS, SASL, timeouts); secrets by reference, `${env:NAME}` or
      `${file:/path}`.
    """

    bootstrap: str
    topic: str | Callable[[Any], str]
    _: KW_ONLY
    value: MessageFormat = field(default_factory=JsonFormat)
    key: str | Callable[[Any], Any] | None = None
    key_format: MessageFormat = field(default_factory=TextFormat)
    headers: Callable[[Any], Mapping[str, str | bytes]] | None = None
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    atomic: Literal["epoch", "partition"] = "epoch"
    upsert: bool = False
    ledger: str | None = None
    on_lost_record: Literal["fail", "send"] = "fail"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    patience: timedelta | float = 600.0
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_bootstrap(self.bootstrap, "KafkaSink")
        if not self.topic or not (isinstance(self.topic, str) or callable(self.topic)):
            raise ConfigError(f"topic={self.topic!r} is not valid", hint="give the name of a topic, or a function of the record")
        if not isinstance(self.topic, str) and self.ledger is None and self.delivery == "exactly-once":
            raise ConfigError(
                "the topic of a message is a function, and the record of what was sent belongs to a topic",
                hint='name one that exists: ledger="orders"',
            )
        for name, choices in (
            ("delivery", ("exactly-once", "at-least-once")),
            ("atomic", ("epoch", "partition")),
            ("on_lost_record", ("fail", "send")),
            ("compression", ("none", "gzip", "snappy", "lz4", "zstd")),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}={getattr(self, name)!r} is not known", hint=f"use one of {', '.join(choices)}")
        for name in ("value", "key_format"):
            if not isinstance(getattr(self, name), MessageFormat):
                raise ConfigError(f"{name}={getattr(self, name)!r} is not a format", hint="for example JsonFormat()")
        if self.upsert and self.key is None:
            raise ConfigError("upsert=True needs a key", hint='key="user", or a function of the record')
        object.__setattr__(self, "options", checked_options(self.options, "KafkaSink"))

    @property
    def volatile(self) -> bool:
        return False

    @property
    def changelog(self) -> Changelog:
        return "upsert" if self.upsert else "append"

    @property
    def patience_s(self) -> float:
        return self.patience.total_seconds() if isinstance(self.patience, timedelta) else float(self.patience)

    @property
    def ledger_topic(self) -> str:
        if self.ledger is not None:
            return self.ledger
        assert isinstance(self.topic, str)
        return self.topic

    def writer(self, context: WriterContext) -> SinkWriter:
        return StagingWriter(self, context) if self.delivery == "exactly-once" else DirectWriter(self, context)

    def committer(self, context: CommitterContext) -> Committer:
        return KafkaCommitter(self, context) if self.delivery == "exactly-once" else DirectCommitter()

    def function_calls(self) -> tuple[Call, ...]:
        given = (("topic", self.topic), ("key", self.key), ("headers", self.headers))
        return tuple(call_of(function, name, "record") for name, function in given if callable(function))

    def describe(self) -> str:
        topic = self.topic if isinstance(self.topic, str) else f"by {getattr(self.topic, '__qualname__', 'function')}"
        atomic = "" if self.atomic == "epoch" or self.delivery != "exactly-once" else ", atomic by partition"
        return f"kafka topic {topic} at {self.bootstrap} ({self.value.describe()}, {self.delivery}{atomic})"
