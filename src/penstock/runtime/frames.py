"""Frames: what crosses an exchange.

    data frame   kind · channel · upstream · sequence · watermark   then a payload
    trailer      the last frame of every upstream task to every target

Laws:
- A data frame's watermark is its upstream's *before* the frame's records: a consumer that takes frames by (watermark, upstream,
  sequence) sees a time that does not depend on how input was cut into epochs.
- The trailer says how many frames each target was sent, by which attempt, having consumed which attempts: without all
  trailers, or with other counts, the input is not whole and the task fails.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from struct import Struct
from typing import Any

import cloudpickle
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.ids import Milliseconds
from penstock.records import Batch, Columns, Records, RowType
from penstock.runtime import shipping

DATA, TRAILER = 0, 1
_HEAD = Struct("<BHIIq")
HEAD_SIZE = _HEAD.size

Codes = npt.NDArray[np.int32]
Buffer = bytes | memoryview


class Trailer(msgspec.Struct, frozen=True):
    """How an upstream task ended its stream to one target."""

    upstream: int
    attempt: str
    frames: int
    consumed: dict[int, str]
    watermarks: dict[int, Milliseconds | None]
    """By channel; None: idle."""
    before_end: dict[int, Milliseconds | None] = {}
    """By channel whose time has ended, where it was before; None: idle."""
    failed: bool = False
    report: bytes = b""


class Keyed:
    """A batch that went through `key_by`: its distinct keys, encoded, and for each row the index of its key."""

    __slots__ = ("batch", "codes", "keys")

    def __init__(self, batch: Batch, keys: list[bytes], codes: Codes) -> None:
        self.batch = batch
        self.keys = keys
        self.codes = codes

    def __len__(self) -> int:
        return len(self.batch)


Payload = Records | Columns | Keyed


class Frame:
    """A data frame, decoded as far as its head; `payload()` does the rest."""

    __slots__ = ("channel", "data", "sequence", "upstream", "watermark")

    def __init__(self, data: bytes) -> None:
        _, self.channel, self.upstream, self.sequence, self.watermark = _HEAD.unpack_from(data)
        self.data = data

    def order(self) -> tuple[Milliseconds, int, int]:
        return self.watermark, self.upstream, self.sequence


def encode_frame(channel: int, upstream: int, sequence: int, watermark: Milliseconds, body: Iterable[Buffer]) -> bytes:
    return b"".join((_HEAD.pack(DATA, channel, upstream, sequence, watermark), *body))


def encode_trailer(trailer: Trailer) -> bytes:
    return _HEAD.pack(TRAILER, 0, trailer.upstream, trailer.frames, 0) + msgspec.msgpack.encode(trailer)


_trailers = msgspec.msgpack.Decoder(Trailer)


def is_trailer(data: bytes) -> bool:
    return data[0] == TRAILER


def decode_trailer(data: bytes) -> Trailer:
    return _trailers.decode(memoryview(data)[HEAD_SIZE:])


# --- payloads -------------------------------------------------------------------------------------------------------------

_ARROW, _PICKLED, _CLOUDPICKLED, _ARROW_STREAM = 0, 1, 2, 3
_SECTION = Struct("<BQQQQ")  # kind, then lengths: timestamps, codes, keys, rows
_COLUMNS = Struct("<HI")  # index of the row type, length of the schema


def encode_payload(payload: Payload, rows: RowTypes) -> list[Buffer]:
    """A batch as bytes, in pieces to be joined. Row classes travel as an index into the plan's `rows`."""
    keys: Buffer = b""
    codes: Buffer = b""
    if isinstance(payload, Keyed):
        keys, codes = msgspec.msgpack.encode(payload.keys), np.ascontiguousarray(payload.codes).data.cast("B")
        payload = payload.batch
    times: Buffer = b"" if payload.timestamps is None else np.ascontiguousarray(payload.timestamps).data.cast("B")
    if isinstance(payload, Columns):
        kind, schema, data = _dump_columns(payload.data)
        body: list[Buffer] = [_COLUMNS.pack(rows.index(payload.row), len(schema)), schema, data]
    else:
        kind, values = dump_values(payload.values())
        body = [values]
    return [_SECTION.pack(kind, len(times), len(codes), len(keys), sum(map(len, body))), times, codes, keys, *body]


def decode_payload(frame: bytes, rows: RowTypes, offset: int = HEAD_SIZE) -> Payload:
    kind, n_times, n_codes, n_keys, n_body = _SECTION.unpack_from(frame, offset)
    view = memoryview(frame)
    at = offset + _SECTION.size
    times = np.frombuffer(view[at : at + n_times], dtype=np.int64) if n_times else None
    at += n_times
    codes = view[at : at + n_codes]
    at += n_codes
    keys = view[at : at + n_keys]
    at += n_keys
    body = view[at : at + n_body]
    batch: Batch
    if kind in (_ARROW, _ARROW_STREAM):
        row, n_schema = _COLUMNS.unpack_from(body)
        schema_end = _COLUMNS.size + n_schema
        batch = Columns(_load_columns(kind, body[_COLUMNS.size : schema_end], body[schema_end:]), rows[row], times)
    else:
        batch = Records(load_values(kind, body), times)
    if not n_keys:
        return batch
    return Keyed(batch, _keys.decode(keys), np.frombuffer(codes, dtype=np.int32))


_keys = msgspec.msgpack.Decoder(list[bytes])


def _dump_columns(data: pa.RecordBatch) -> tuple[int, Buffer, Buffer]:
    """Kind, schema, columns. A schema and a batch by themselves are quicker than a stream, but hold no dictionaries."""
    if not any(_has_dictionary(field.type) for field in data.schema):
        return _ARROW, memoryview(data.schema.serialize()), memoryview(data.serialize())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    return _ARROW_STREAM, b"", memoryview(sink.getvalue())


def _has_dictionary(type_: pa.DataType) -> bool:
    return pa.types.is_dictionary(type_) or any(_has_dictionary(type_.field(i).type) for i in range(type_.num_fields))


def _load_columns(kind: int, schema: memoryview, columns: memoryview) -> pa.RecordBatch:
    if kind == _ARROW:
        return pa.ipc.read_record_batch(pa.py_buffer(columns), pa.ipc.read_schema(pa.py_buffer(schema)))
    with pa.ipc.open_stream(pa.py_buffer(columns)) as reader:
        return reader.read_next_batch()


def dump_values(values: list[Any]) -> tuple[int, bytes]:
    """Python values as bytes, for the short way between two workers; never for the disk."""
    try:
        return _PICKLED, pickle.dumps(values, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _CLOUDPICKLED, shipping.dumps(values)


def load_values(kind: int, data: bytes | memoryview) -> list[Any]:
    return pickle.loads(data) if kind == _PICKLED else cloudpickle.loads(data)  # type: ignore[no-any-return]


class RowTypes:
    """The row types of a job, by index, known to all workers through the plan."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[RowType]) -> None:
        self._rows = rows

    def __getitem__(self, index: int) -> RowType:
        return self._rows[index]

    def index(self, row: RowType) -> int:
        return self._rows.index(row)
