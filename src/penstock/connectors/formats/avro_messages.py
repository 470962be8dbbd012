"""Avro, with the schema of a registry (`0`, the id in 4 bytes, the record) or with one that both sides know."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

from penstock.connectors.formats.schema_registry import RegistryClient, SchemaRegistry
from penstock.connectors.installed import needed
from penstock.errors import ConfigError, SinkError
from penstock.plan.schema import Schema
from penstock.records import Batch, Records, RowType, as_dict

_MAGIC = 0
_HEAD = 5


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Avro records.

    `schema`: as JSON, what records are read as (fields that it adds have their defaults) and written as. `registry`: payloads
    begin with the id of their schema. Without a registry they are of `schema`. `subject`: where the schema is registered when
    written. `row`: a class to make of each record; otherwise it is a dict.
    """

    schema: str | None = None
    _: KW_ONLY
    registry: SchemaRegistry | None = None
    subject: str | None = None
    row_class: type | None = None

    def __post_init__(self) -> None:
        if self.schema is None and self.registry is None:
            raise ConfigError(
                "Avro needs a schema, or a registry", hint="AvroFormat(schema=...), or AvroFormat(registry=SchemaRegistry(url))"
            )
        if self.schema is not None:
            try:
                json.loads(self.schema)
            except ValueError as error:
                raise ConfigError("the Avro schema is not JSON", detail=str(error)) from error

    @property
    def row(self) -> RowType:
        return RowType(self.row_class)

    def decoder(self) -> AvroDecoder:
        return AvroDecoder(self)

    def encoder(self) -> AvroEncoder:
        if self.schema is None:
            raise ConfigError("Avro is written with a schema", hint="AvroFormat(schema=...)")
        if self.registry is not None and self.subject is None:
            raise ConfigError("the schema is registered under a subject", hint='AvroFormat(subject="readings-value", ...)')
        return AvroEncoder(self)

    def known_columns(self) -> Schema | None:
        if self.schema is None:
            return None
        fields = json.loads(self.schema)
        return Schema.of(((field["name"], None) for field in fields.get("fields", ())), self.row_class)

    def describe(self) -> str:
        return "avro" + (f" by {self.registry.url}" if self.registry else "")


class _Avro:
    def __init__(self, format: AvroFormat) -> None:
        self._fastavro: Any = needed("fastavro", "penstock[avro]", "AvroFormat")
        self._format = format

    @cached_property
    def _client(self) -> RegistryClient:
        assert self._format.registry is not None
        return self._format.registry.client()

    @cached_property
    def _own(self) -> Any:
        """The schema of the program, parsed."""
        text = self._format.schema
        return None if text is None else self._fastavro.parse_schema(json.loads(text))


class AvroDecoder(_Avro):
    def __init__(self, format: AvroFormat) -> None:
        super().__init__(format)
        self._writers: dict[int, Any] = {}

    def decode(self, payloads: Sequence[bytes]) -> Batch:
        read = self._fastavro.schemaless_reader
        own, registry = self._own, self._format.registry is not None
        rows = []
        for payload in payloads:
            data = io.BytesIO(payload)
            rows.append(read(data, self._writer(data) if registry else own, own if registry else None))
            if data.tell() != len(payload):
                raise ValueError(f"{len(payload) - data.tell()} bytes are left after the record")
        cls = self._format.row_class
        return Records(rows if cls is None else [cls(**row) for row in rows])

    def _writer(self, data: io.BytesIO) -> Any:
        head = data.read(_HEAD)
        if len(head) < _HEAD or head[0] != _MAGIC:
            raise ValueError("the message does not begin with the id of its schema")
        id = int.from_bytes(head[1:], "big")
        found = self._writers.get(id)
        if found is None:
            said = self._client.schema(id)
            if said.get("schemaType", "AVRO") != "AVRO":
                raise ValueError(f"schema {id} is {said['schemaType']}, not Avro")
            found = self._writers[id] = self._fastavro.parse_schema(json.loads(said["schema"]))
        return found


class AvroEncoder(_Avro):
    def encode(self, batch: Batch) -> list[bytes]:
        format, write = self._format, self._fastavro.schemaless_writer
        head = b""
        if format.registry is not None:
            assert format.subject is not None
            assert format.schema is not None
            head = bytes([_MAGIC]) + self._client.register(format.subject, format.schema).to_bytes(4, "big")
        made = []
        for value in batch.values():
            data = io.BytesIO()
            data.write(head)
            try:
                write(data, self._own, as_dict(value))
            except (ValueError, TypeError, KeyError) as error:
                raise SinkError("a record does not fit the Avro schema", detail=f"record: {value!r:.200}\n{error}") from error
            made.append(data.getvalue())
        return made
