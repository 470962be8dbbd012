"""Debezium's change events: what became of a row of a database's table. A change event is a record of its own here.

Read with its envelope, with or without Debezium's own `schema` part. To go on with changes of rows, see `as_changes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.plan.schema import Schema
from penstock.records import Batch, Records, RowType

_OPERATIONS = {"c": "insert", "r": "read", "u": "update", "d": "delete", "t": "truncate"}


class DebeziumEvent(msgspec.Struct, frozen=True):
    """A change. `operation`: insert, read (of a snapshot), update, delete or truncate. `source`: where it is from, as
    Debezium says."""

    operation: str
    before: Any
    after: Any
    source: dict[str, Any]
    timestamp_ms: int | None = None


class _Envelope(msgspec.Struct):
    op: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")
    source: dict[str, Any] = {}
    ts_ms: int | None = None


class _Framed(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True)
class DebeziumFormat:
    """Change events as JSON. `row_class`: of the images before and after; otherwise they are dicts."""

    row_class: Any = None

    @property
    def row(self) -> RowType:
        return RowType(DebeziumEvent)

    def decoder(self) -> DebeziumDecoder:
        return DebeziumDecoder(self.row_class)

    def encoder(self) -> DebeziumEncoder:
        return DebeziumEncoder()

    def known_columns(self) -> Schema | None:
        return Schema.of(((name, None) for name in DebeziumEvent.__struct_fields__), DebeziumEvent)

    def describe(self) -> str:
        return "debezium"


class DebeziumDecoder:
    def __init__(self, row: Any) -> None:
        image = dict[str, Any] if row is None else row
        self._image: msgspec.json.Decoder[Any] = msgspec.json.Decoder(image | None)
        self._framed = msgspec.json.Decoder(_Framed)
        self._envelope = msgspec.json.Decoder(_Envelope)

    def decode(self, payloads: Sequence[bytes]) -> Batch:
        return Records([self._event(payload) for payload in payloads])

    def _event(self, payload: bytes) -> DebeziumEvent:
        framed = self._framed.decode(payload)
        envelope = self._envelope.decode(framed.payload if bytes(framed.payload) else payload)
        operation = _OPERATIONS.get(envelope.op)
        if operation is None:
            raise ValueError(f"the operation {envelope.op!r} is not known")
        return DebeziumEvent(
            operation=operation,
            before=self._image.decode(envelope.before),
            after=self._image.decode(envelope.after),
            source=envelope.source,
            timestamp_ms=envelope.ts_ms,
        )


class DebeziumEncoder:
    def encode(self, batch: Batch) -> list[bytes]:
        codes = {name: code for code, name in _OPERATIONS.items()}
        return [
            msgspec.json.encode(
                {
                    "op": codes[event.operation],
                    "before": event.before,
                    "after": event.after,
                    "source": event.source,
                    "ts_ms": event.timestamp_ms,
                }
            )
            for event in batch.values()
        ]
