"""Reads a range of offsets, in the worker: messages are decoded in bulk into batches.

Law: the batches of a split depend on its messages only, not on how they arrive: a batch ends after so many messages, or so
many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.connectors.formats.messages import Unreadable, decoded
from penstock.connectors.formats.raw_messages import RawFormat, TextFormat
from penstock.connectors.kafka.consumers import messages
from penstock.connectors.protocol import Reader, Rejected, RejectedRecord, Split
from penstock.errors import SourceError
from penstock.records import NO_TIMESTAMP, Batch, Columns, Records, RowType, as_dict, carried

if TYPE_CHECKING:
    from penstock.connectors.kafka.source import KafkaSource

BATCH_BYTES = 16 << 20

METADATA_TYPES: dict[str, pa.DataType | None] = {
    "key": None,
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "timestamp_type": pa.string(),
    "headers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
}
"""What a message has besides its value, and the type of its column; that of the key depends on its format."""

_TIMESTAMP_TYPES = {0: None, 1: "create", 2: "log_append"}
_SHOWN = 200


class KafkaReader(Reader):
    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._decoder = source.value.decoder()
        assert isinstance(source.metadata, Mapping)
        self._metadata: Mapping[str, str] = source.metadata
        self._wants_key = "key" in source.metadata.values()
        self._key_decoder = source.key_format.decoder()
        self.skipped = 0

    def read(self, split: Split) -> Iterator[Batch]:
        topic, partition, start, stop = split.what
        pending: list[Any] = []
        size = 0
        for found in messages(self._source, topic, partition, start, stop):
            for message in found:
                pending.append(message)
                size += len(message)
                if len(pending) == self._source.batch_size or size >= BATCH_BYTES:
                    yield from self._batches(pending)
                    pending, size = [], 0
        if pending:
            yield from self._batches(pending)

    def _batches(self, found: list[Any]) -> Iterator[Batch]:
        """What can be read, and between it what is rejected, in order."""
        payloads = [message.value() for message in found]
        if None not in payloads and not self._wants_key:
            yield from self._run(found, payloads, None)
            return
        keys, bad_keys = self._keys(found) if self._wants_key else (None, {})
        start = 0
        for i, payload in enumerate(payloads):
            error = bad_keys.get(i)
            if payload is not None and error is None:
                continue
            yield from self._run(found[start:i], payloads[start:i], None if keys is None else keys[start:i])
            start = i + 1
            if error is not None:
                yield from self._rejected(found[i], f"its key cannot be read: {error}")
            else:
                yield from self._tombstone(found[i], None if keys is None else keys[i])
        yield from self._run(found[start:], payloads[start:], None if keys is None else keys[start:])

    def _run(self, found: list[Any], payloads: list[Any], keys: list[Any] | None) -> Iterator[Batch]:
        for each in decoded(self._decoder, payloads):
            if isinstance(each, Unreadable):
                yield from self._rejected(found[each.index], each.error)
            else:
                first, batch = each
                stop = first + len(batch)
                yield self._whole(found[first:stop], batch, None if keys is None else keys[first:stop])

    def _whole(self, found: Sequence[Any], batch: Batch, keys: list[Any] | None) -> Batch:
        """With timestamps and metadata."""
        times = np.fromiter((message.timestamp()[1] for message in found), dtype=np.int64, count=len(found))
        times[times < 0] = NO_TIMESTAMP
        source = self._source
        if self._metadata:
            columns = {
                name: (METADATA_TYPES.get(what), self._column(what, found, keys, times)) for name, what in self._metadata.items()
            }
            batch = _with_columns(batch, columns, source.row)
        elif source.row_class is not None:
            batch = _with_columns(batch, {}, source.row)
        return batch.with_timestamps(times)

    def _column(self, what: str, found: Sequence[Any], keys: list[Any] | None, times: Any) -> list[Any]:
        if what == "key":
            return keys or [None] * len(found)
        if what == "timestamp":
            return [None if time == NO_TIMESTAMP else time for time in times.tolist()]
        if what == "timestamp_type":
            return [_TIMESTAMP_TYPES.get(message.timestamp()[0]) for message in found]
        if what == "headers":
            return [_headers(message) for message in found]
        return [getattr(message, what)() for message in found]

    def _keys(self, found: list[Any]) -> tuple[list[Any], dict[int, str]]:
        """The keys, decoded; by index, what is wrong with those that cannot be."""
        keys: list[Any] = [None] * len(found)
        at = [i for i, message in enumerate(found) if message.key() is not None]
        bad = {}
        for each in decoded(self._key_decoder, [found[i].key() for i in at]):
            if isinstance(each, Unreadable):
                bad[at[each.index]] = each.error
            else:
                first, batch = each
                for i, value in enumerate(batch.values(), first):
                    keys[at[i]] = value
        return keys, bad

    def _tombstone(self, message: Any, key: Any) -> Iterator[Batch]:
        if self._source.tombstones == "skip":
            self.skipped += 1
        elif self._source.tombstones == "bad":
            yield from self._rejected(message, "it has no value (a tombstone); tombstones= says what to do with them")
        elif isinstance(self._source.value, RawFormat | TextFormat) and not self._metadata:
            yield self._whole([message], Records([None]), [key])
        else:
            known = self._source.value.known_columns()
            empty = dict.fromkeys(() if known is None else known.names)
            yield self._whole([message], Records([empty]), [key])

    def _rejected(self, message: Any, error: str) -> Iterator[Batch]:
        """A message that cannot be read: fail, skip, or set it aside."""
        policy = self._source.on_bad_record
        where = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
        value = message.value()
        if policy == "fail":
            shown = (value or b"")[:_SHOWN].decode("utf-8", "backslashreplace")
            raise SourceError(
                f"a message of {where} cannot be read: {error}",
                detail=shown + ("…" if len(value or b"") > _SHOWN else ""),
                hint='correct the format, or let the others pass: on_bad_record="skip" or "dead_letter"',
                nature="deterministic",
            )
        if policy == "skip":
            self.skipped += 1
            return
        kind, time = message.timestamp()
        yield Rejected(
            [
                RejectedRecord(
                    system="kafka",
                    position={"topic": message.topic(), "partition": message.partition(), "offset": message.offset()},
                    key=message.key(),
                    value=value,
                    headers=[(name, None if held is None else bytes(held)) for name, held in message.headers() or ()],
                    timestamp_ms=time if kind else None,
                    error=error,
                )
            ]
        )


def _headers(message: Any) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in message.headers() or ()]


def _with_columns(batch: Batch, columns: dict[str, tuple[Any, list[Any]]], row: RowType) -> Batch:
    """A batch with further columns; rows become dicts, or of the class."""
    if isinstance(batch, Columns):
        data = batch.data
        for name, (kind, values) in columns.items():
            column = pa.array(values, type=kind)
            at = data.schema.get_field_index(name)
            data = data.append_column(name, column) if at < 0 else data.set_column(at, name, column)
        return Columns(data, row, *carried(batch))
    made = []
    for i, value in enumerate(batch.values()):
        whole = as_dict(value)
        for name, (_, values) in columns.items():
            whole[name] = values[i]
        made.append(whole if row.cls is None else row.cls(**whole))
    return Records(made, *carried(batch))
