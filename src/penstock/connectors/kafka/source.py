"""Topics of Kafka as a source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Literal

from penstock.connectors.formats.json_messages import JsonFormat
from penstock.connectors.formats.messages import MessageFormat
from penstock.connectors.formats.raw_messages import TextFormat
from penstock.connectors.kafka.clients import checked_bootstrap, checked_options
from penstock.connectors.kafka.enumerator import KafkaEnumerator
from penstock.connectors.kafka.reader import METADATA_TYPES, KafkaReader
from penstock.connectors.kafka.start import Until, Where, checked_start, checked_stop
from penstock.connectors.protocol import SourceContext
from penstock.errors import ConfigError
from penstock.plan.definition import ERROR_POLICIES, ErrorPolicy
from penstock.plan.schema import Schema
from penstock.records import RowType, field_names


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The messages of one topic, of several, or of all whose names match `pattern`. A source partition is a partition of a topic.

    - `value`: the format of values; `key_format`: of keys, text by default.
    - `metadata`: what to add to each record: `key`, `topic`, `partition`, `offset`, `timestamp` (ms), `timestamp_type`,
      `headers`; as a list, or as a mapping from the name of the column. Records are dicts then, or of the class `row`.
    - `start`: "earliest", "latest", "group" (what `group` has committed), an aware datetime, or offsets, `{"topic:0": 42}`;
      it counts when the job begins. Partitions that are found later, every `discover` seconds, are read from their beginning.
    - `stop`: makes the source bounded: "now", a datetime, or offsets.
    - Records have the message's timestamp as event time, unless `watermarks` say otherwise.
    - `on_bad_record`: "fail", "skip" (counted), or "dead_letter": to `stream.dead_letters()`, as bytes, with position and error.
      `tombstones`: messages without a value are "bad", are left out ("skip"), or kept ("keep"): null in all columns of the value.
    - `on_lost`: what to do when messages were deleted before they were read: "fail", or go on from the "earliest" that is there,
      or the "latest". `on_recreated`: when a topic is not the one of before: "fail", read it from its beginning ("earliest"),
      or from the time that had been reached, less `overlap` ("timestamp"): for a mirrored topic of another cluster.
    - `isolation`: "read_committed", or "read_uncommitted". `rate`: at most so many messages a second.
    - `group`: committed offsets are told to this consumer group, for monitoring; by default it is named after job and step.
      `commit_offsets=False` leaves it.
    - `options`: of the client (TLS, SASL, fetching); secrets by reference, `${env:NAME}` or `${file:/path}`.
    """

    bootstrap: str
    topics: Sequence[str] | str = ()
    _: KW_ONLY
    pattern: str | None = None
    value: MessageFormat = field(default_factory=JsonFormat)
    key_format: MessageFormat = field(default_factory=TextFormat)
    metadata: Sequence[str] | Mapping[str, str] = ()
    row_class: type | None = None
    start: Where = "earliest"
    stop: Until | None = None
    on_bad_record: ErrorPolicy = "fail"
    tombstones: Literal["bad", "skip", "keep"] = "bad"
    on_lost: Literal["fail", "earliest", "latest"] = "fail"
    on_recreated: Literal["fail", "earliest", "timestamp"] = "fail"
    overlap: timedelta = timedelta(minutes=1)
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    rate: float | None = None
    discover: timedelta | float = 10.0
    group: str | None = None
    commit_offsets: bool = True
    batch_size: int = 16384
    record_bytes: int = 512
    patience: timedelta | float = 60.0
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_bootstrap(self.bootstrap, "KafkaSource")
        topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        if bool(topics) == (self.pattern is not None) or not all(topics):
            raise ConfigError(
                "a Kafka source reads topics", hint='KafkaSource(bootstrap, "topic"), a list of them, or pattern="orders-.*"'
            )
        object.__setattr__(self, "topics", topics)
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ConfigError(f"pattern={self.pattern!r} is not a regular expression", detail=str(error)) from error
        object.__setattr__(self, "metadata", _checked_metadata(self.metadata))
        object.__setattr__(self, "start", checked_start(self.start))
        object.__setattr__(self, "stop", checked_stop(self.stop))
        object.__setattr__(self, "options", checked_options(self.options, "KafkaSource"))
        self._check_choices()
        for name in ("batch_size", "record_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}={value!r} is not valid", hint="give a whole number, 1 or more")
        if self.rate is not None and not self.rate > 0:
            raise ConfigError(f"rate={self.rate!r} is not valid", hint="give messages a second, or leave it out")
        if self.start == "group" and self.group is None:
            raise ConfigError('start="group" needs a group', hint='group="name"')
        if self.row_class is not None:
            field_names(self.row_class)

    def _check_choices(self) -> None:
        for name, choices in (
            ("on_bad_record", ERROR_POLICIES),
            ("tombstones", ("bad", "skip", "keep")),
            ("on_lost", ("fail", "earliest", "latest")),
            ("on_recreated", ("fail", "earliest", "timestamp")),
            ("isolation", ("read_committed", "read_uncommitted")),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(f"{name}={value!r} is not known", hint=f"use one of {', '.join(choices)}")
        for name in ("value", "key_format"):
            if not isinstance(getattr(self, name), MessageFormat):
                raise ConfigError(f"{name}={getattr(self, name)!r} is not a format", hint="for example JsonFormat(Reading)")

    @property
    def bounded(self) -> bool:
        return self.stop is not None

    @property
    def reads_in_order(self) -> bool:
        """An epoch may stop anywhere in its splits."""
        return True

    @property
    def row(self) -> RowType:
        if self.metadata or self.row_class is not None:
            return RowType(self.row_class)
        return self.value.row

    @property
    def discover_ms(self) -> int:
        return _ms(self.discover)

    @property
    def patience_s(self) -> float:
        return _ms(self.patience) / 1000

    def enumerator(self, context: SourceContext) -> KafkaEnumerator:
        return KafkaEnumerator(self, context)

    def reader(self) -> KafkaReader:
        return KafkaReader(self)

    def known_columns(self) -> Schema | None:
        known = self.value.known_columns()
        if known is None or not (self.metadata or self.row_class):
            return known
        assert isinstance(self.metadata, Mapping)
        return Schema.of(
            [*known.fields().items(), *((name, METADATA_TYPES[what]) for name, what in self.metadata.items())], self.row_class
        )

    def describe(self) -> str:
        which = ", ".join(self.topics) if self.pattern is None else f"topics like {self.pattern}"
        return f"kafka {which} at {self.bootstrap} ({self.value.describe()})"


def _checked_metadata(metadata: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(metadata, str):
        raise ConfigError(f"metadata={metadata!r} is not a list", hint=f"metadata=[{metadata!r}]")
    named = dict(metadata) if isinstance(metadata, Mapping) else {what: what for what in metadata}
    for what in named.values():
        if what not in METADATA_TYPES:
            raise ConfigError(f"a message has no {what!r}", hint=f"metadata are {', '.join(METADATA_TYPES)}")
    return named


def _ms(duration: timedelta | float) -> int:
    return round((duration.total_seconds() if isinstance(duration, timedelta) else duration) * 1000)
