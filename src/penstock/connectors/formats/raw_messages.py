"""Payloads as they are, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import SinkError
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, Batch, Records, RowType


@dataclass(frozen=True, slots=True)
class RawFormat:
    """A record is the payload: bytes."""

    @property
    def row(self) -> RowType:
        return DICT_ROW

    def decoder(self) -> RawDecoder:
        return RawDecoder()

    def encoder(self) -> RawEncoder:
        return RawEncoder()

    def known_columns(self) -> Schema | None:
        return Schema.of([("value", pa.binary())])

    def describe(self) -> str:
        return "raw"


class RawDecoder:
    def decode(self, payloads: Sequence[bytes]) -> Batch:
        return Records(list(payloads))


class RawEncoder:
    def encode(self, batch: Batch) -> list[bytes]:
        values = batch.values()
        for value in values:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise SinkError(
                    f"the raw format writes bytes, not {type(value).__name__}",
                    detail=f"record: {value!r:.200}",
                    hint="map the records to bytes, or choose another format",
                )
        return [bytes(value) for value in values]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A record is the payload as UTF-8 text. Written, anything becomes its `str`."""

    @property
    def row(self) -> RowType:
        return DICT_ROW

    def decoder(self) -> TextDecoder:
        return TextDecoder()

    def encoder(self) -> TextEncoder:
        return TextEncoder()

    def known_columns(self) -> Schema | None:
        return Schema.of([("value", pa.string())])

    def describe(self) -> str:
        return "text"


class TextDecoder:
    def decode(self, payloads: Sequence[bytes]) -> Batch:
        return Records([payload.decode("utf-8") for payload in payloads])


class TextEncoder:
    def encode(self, batch: Batch) -> list[bytes]:
        return [str(value).encode("utf-8") for value in batch.values()]
