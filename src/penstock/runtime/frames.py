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


class Trailer(msgspec.Struct, frozen=True):
    """How an upstream task ended its stream to one target."""

    upstream: int
    attempt: str
    frames: int
    consumed: dict[int, str]
    watermarks: dict[int, Milliseconds | None]
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


def encode_frame(channel: int, upstream: int, sequence: int, watermark: Milliseconds, body: bytes) -> bytes:
    return _HEAD.pack(DATA, channel, upstream, sequence, watermark) + body


def encode_trailer(trailer: Trailer) -> bytes:
    return _HEAD.pack(TRAILER, 0, trailer.upstream, trailer.frames, 0) + msgspec.msgpack.encode(trailer)


_trailers = msgspec.msgpack.Decoder(Trailer)


def is_trailer(data: bytes) -> bool:
    return data[0] == TRAILER


def decode_trailer(data: bytes) -> Trailer:
    return _trailers.decode(memoryview(data)[HEAD_SIZE:])


# --- payloads -------------------------------------------------------------------------------------------------------------

_ARROW, _PICKLED, _CLOUDPICKLED = 0, 1, 2
_SECTION = Struct("<BQQQQ")  # kind, then lengths: timestamps, codes, keys, rows


def encode_payload(payload: Payload, rows: RowTypes) -> bytes:
    """A batch as bytes. Row classes travel as an index into the plan's `rows`."""
    keys, codes = b"", b""
    if isinstance(payload, Keyed):
        keys, codes = msgspec.msgpack.encode(payload.keys), payload.codes.tobytes()
        payload = payload.batch
    times = b"" if payload.timestamps is None else payload.timestamps.tobytes()
    if isinstance(payload, Columns):
        kind = _ARROW
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, payload.data.schema) as writer:
            writer.write_batch(payload.data)
        body = rows.index(payload.row).to_bytes(2, "little") + sink.getvalue().to_pybytes()
    else:
        kind, body = dump_values(payload.values())
    return b"".join((_SECTION.pack(kind, len(times), len(codes), len(keys), len(body)), times, codes, keys, body))


def decode_payload(data: bytes, rows: RowTypes, offset: int = HEAD_SIZE) -> Payload:
    kind, n_times, n_codes, n_keys, n_body = _SECTION.unpack_from(data, offset)
    view = memoryview(data)
    at = offset + _SECTION.size
    times = np.frombuffer(view[at : at + n_times], dtype=np.int64) if n_times else None
    at += n_times
    codes = view[at : at + n_codes]
    at += n_codes
    keys = view[at : at + n_keys]
    at += n_keys
    body = view[at : at + n_body]
    batch: Batch
    if kind == _ARROW:
        row = rows[int.from_bytes(body[:2], "little")]
        with pa.ipc.open_stream(pa.py_buffer(body[2:])) as reader:
            batch = Columns(reader.read_next_batch(), row, times)
    else:
        batch = Records(load_values(kind, body), times)
    if not n_keys:
        return batch
    return Keyed(batch, _keys.decode(keys), np.frombuffer(codes, dtype=np.int32))


_keys = msgspec.msgpack.Decoder(list[bytes])


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
