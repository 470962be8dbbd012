"""JSON, an object for each payload.

Payloads are put together as lines and read by `JsonRows`: by pyarrow where all fields are plain, by msgspec otherwise. Lines
must not be mistaken for each other, so payloads that hold line ends, or do not look like one object each, are read one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.json_rows import JsonRows
from penstock.plan.row_schemas import row_schema
from penstock.plan.schema import Schema
from penstock.plan.shapes import Shape, shape_of
from penstock.records import Batch, Columns, RowType, one_batch

DEEPEST = 500
"""Levels of nesting that are read; more is an attack, or a mistake."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON objects.

    `schema`: a dataclass, NamedTuple or msgspec Struct, or a pyarrow schema for dicts of these types; without one a record is
    the object as it is. Types must match, null is for optional fields only. `strict` also refuses fields that the schema does
    not have, and an object with the same field twice (otherwise the last one counts).
    """

    schema: Any = None
    _: KW_ONLY
    strict: bool = False

    def __post_init__(self) -> None:
        shape_of(self.schema, None)

    @property
    def row(self) -> RowType:
        return RowType(self.schema if isinstance(self.schema, type) else None)

    def decoder(self) -> JsonDecoder:
        return JsonDecoder(shape_of(self.schema, None), strict=self.strict)

    def encoder(self) -> JsonEncoder:
        return JsonEncoder()

    def known_columns(self) -> Schema | None:
        if isinstance(self.schema, pa.Schema):
            return Schema.of_arrow(self.schema)
        return None if self.schema is None else row_schema(self.schema)

    def describe(self) -> str:
        name = getattr(self.schema, "__name__", "schema") if self.schema is not None else ""
        return "json" + (f" {name}" if name else "") + (", strict" if self.strict else "")


class JsonDecoder:
    def __init__(self, shape: Shape, *, strict: bool) -> None:
        self._rows = JsonRows(shape)
        self._names = None if shape.names is None else frozenset(shape.names)
        self._strict = strict

    def decode(self, payloads: Sequence[bytes]) -> Batch:
        if self._strict:
            for payload in payloads:
                _check_strictly(payload, self._names)
        block = b"\n".join(payloads)
        if _too_deep(block):
            for payload in payloads:
                _check_depth(payload)
        if not _one_object_each(block, len(payloads)):
            return one_batch([self._one(payload) for payload in payloads])
        batch = self._rows.parse(block)
        if len(batch) != len(payloads):
            raise ValueError("there must be one object in each message")
        return _finite(batch)

    def _one(self, payload: bytes) -> Batch:
        text = payload.strip()
        if not text.startswith(b"{"):
            raise ValueError("a message is not a JSON object" if text else "a message is empty")
        if b"\n" in text or b"\r" in text:
            text = msgspec.json.format(text, indent=-1)
        batch = self._rows.parse(text)
        if len(batch) != 1:
            raise ValueError("there must be one object in each message")
        return _finite(batch)


class JsonEncoder:
    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)

    def encode(self, batch: Batch) -> list[bytes]:
        encode = self._encoder.encode
        return [encode(value) for value in batch.values()]


def _one_object_each(block: bytes, number: int) -> bool:
    """Is every line one whole object, as far as its ends show? No line end is in a JSON string, so none hides there."""
    lines = number - 1
    return (
        block.count(b"\n") == lines
        and block.count(b"}\n{") == lines
        and block.startswith(b"{")
        and block.endswith(b"}")
        and b"\r" not in block
    )


def _finite(batch: Batch) -> Batch:
    """JSON has no NaN and no infinity, but pyarrow reads them."""
    if isinstance(batch, Columns):
        for column in batch.data.columns:
            if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column), min_count=0).as_py():
                raise ValueError("NaN and Infinity are no numbers of JSON")
    return batch


def _too_deep(block: bytes) -> bool:
    """Might anything be nested too deeply? A cheap look."""
    return block.count(b"[") + block.count(b"{") > DEEPEST and (b"[[" in block or block.count(b"{") > DEEPEST)


def _check_depth(payload: bytes) -> None:
    if payload.count(b"[") + payload.count(b"{") <= DEEPEST:
        return
    marks = np.frombuffer(payload, dtype=np.uint8)
    opens = np.isin(marks, np.frombuffer(b"[{", dtype=np.uint8)).astype(np.int64)
    closes = np.isin(marks, np.frombuffer(b"]}", dtype=np.uint8)).astype(np.int64)
    if int(np.cumsum(opens - closes).max()) > DEEPEST:  # brackets in strings may count too: then it is decoded alone
        raise ValueError(f"a message is nested more than {DEEPEST} levels deep")


def _check_strictly(payload: bytes, names: frozenset[str] | None) -> None:
    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
            raise ValueError(f"the field {twice!r} is there twice")
        return made

    whole = json.loads(payload, object_pairs_hook=object_of)
    if names is not None and isinstance(whole, dict) and (unknown := sorted(set(whole) - names)):
        raise ValueError(f"the field {unknown[0]!r} is not in the schema")


def _plain(value: object) -> object:
    """For msgspec: numpy's and Arrow's scalars as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, pa.Scalar):
        return value.as_py()
    raise NotImplementedError(f"objects of type {type(value).__name__} are not supported")
