"""Frames: what crosses an exchange.

    data frame   kind · channel · upstream · sequence · watermark · lane · rounds   then a payload
    trailer      the last frame of every upstream task to every target
    changes      what a lap has changed of its partition, for the next one: see `penstock.runtime.loops.laps`

Laws:
- A data frame's watermark is its upstream's *before* the frame's records: a consumer that takes frames by (watermark, lane,
  upstream, sequence) sees a time that does not depend on how input was cut into epochs. Of a frame whose records have ticks it is
  the first tick.
- The lane is the task that made the records; of a frame that is passed on by a relay, the one before.
- The rounds are those of all its records, within a loop; see `penstock.runtime.loops.rounds`.
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

from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.plan import job_pickle
from penstock.records import Batch, Columns, Records, RowType, Timestamps

DATA, TRAILER, CHANGES = 0, 1, 2
_HEAD = Struct("<BHIIqII")
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
    reached: dict[int, Milliseconds] = {}
    """By channel, where time got before it ended or fell idle."""
    latest: Milliseconds = MIN_WATERMARK
    """The latest clock of any source partition, as far as the task knows."""
    failed: bool = False
    report: bytes = b""


class Keyed:
    """A batch that went through `key_by`: its distinct keys, encoded, and for each row the index of its key.

    `column` is the number of the column that was the key, if rows of the same key have exactly the same value there.
    """

    __slots__ = ("batch", "codes", "column", "keys")

    def __init__(self, batch: Batch, keys: list[bytes], codes: Codes, column: int | None = None) -> None:
        self.batch = batch
        self.keys = keys
        self.codes = codes
        self.column = column

    def __len__(self) -> int:
        return len(self.batch)


Payload = Records | Columns | Keyed


def unkeyed(payload: Payload) -> Batch:
    """The records, for a step that has no use for their keys."""
    return payload.batch if isinstance(payload, Keyed) else payload


class Frame:
    """A data frame, decoded as far as its head; `payload()` does the rest."""

    __slots__ = ("channel", "data", "lane", "rounds", "sequence", "upstream", "watermark")

    def __init__(self, data: bytes) -> None:
        _, self.channel, self.upstream, self.sequence, self.watermark, self.lane, self.rounds = _HEAD.unpack_from(data)
        self.data = data

    def order(self) -> tuple[Milliseconds, int, int, int]:
        return self.watermark, self.lane, self.upstream, self.sequence


def encode_frame(
    channel: int,
    upstream: int,
    sequence: int,
    watermark: Milliseconds,
    body: Iterable[Buffer],
    lane: int | None = None,
    rounds: int = 0,
) -> bytes:
    """`lane`: of a frame that is passed on; otherwise it is the upstream's."""
    head = _HEAD.pack(DATA, channel, upstream, sequence, watermark, upstream if lane is None else lane, rounds)
    return b"".join((head, *body))


def encode_trailer(trailer: Trailer) -> bytes:
    return _HEAD.pack(TRAILER, 0, trailer.upstream, trailer.frames, 0, 0, 0) + msgspec.msgpack.encode(trailer)


_trailers = msgspec.msgpack.Decoder(Trailer)


class LapChanges(msgspec.Struct, frozen=True):
    """What the laps so far have changed of a stage partition, in order of keys, and the timers after it."""

    entries: list[tuple[bytes, bytes | None]] = []
    next_due: dict[int, Milliseconds] = {}


_changes = msgspec.msgpack.Decoder(LapChanges)


def encode_changes(upstream: int, sequence: int, changes: LapChanges) -> bytes:
    return _HEAD.pack(CHANGES, 0, upstream, sequence, 0, 0, 0) + msgspec.msgpack.encode(changes)


def decode_changes(data: bytes) -> LapChanges:
    return _changes.decode(memoryview(data)[HEAD_SIZE:])


def is_changes(data: bytes) -> bool:
    return data[0] == CHANGES


def is_trailer(data: bytes) -> bool:
    return data[0] == TRAILER


def decode_trailer(data: bytes) -> Trailer:
    return _trailers.decode(memoryview(data)[HEAD_SIZE:])


# --- payloads -------------------------------------------------------------------------------------------------------------

_ARROW, _PICKLED, _CLOUDPICKLED, _ARROW_STREAM = 0, 1, 2, 3
_SECTION = Struct("<BQQQQQ")  # kind, then lengths: timestamps, ticks, codes, keys, rows
_TICKS = Struct("<Bq")  # bytes of a tick (0: all are the same), and the least of them
_COLUMNS = Struct("<HIhI")  # index of the row type, length of the schema, the column left out (or -1), length of its values
_NARROW = 1 << 16  # up to so many keys a code has two bytes instead of four
_LEAVE_OUT_ABOVE = 4  # with so many rows for a key a column of keys goes as its distinct values


def encode_payload(payload: Payload, rows: RowTypes) -> list[Buffer]:
    """A batch as bytes, in pieces to be joined. Row classes travel as an index into the plan's `rows`; kinds come last, if there
    are any."""
    keys: Buffer = b""
    codes: Buffer = b""
    batch: Batch
    if isinstance(payload, Keyed):
        batch = payload.batch
        keys = msgspec.msgpack.encode(payload.keys)
        codes = payload.codes.astype(_code_type(payload.keys), order="C").data.cast("B")
    else:
        batch = payload
    times: Buffer = b"" if batch.timestamps is None else np.ascontiguousarray(batch.timestamps).data.cast("B")
    ticks: Buffer = b"" if batch.ticks is None else _dump_ticks(batch.ticks)
    if isinstance(batch, Columns):
        column, values, data = _without_keys(payload, batch.data) if isinstance(payload, Keyed) else (-1, b"", batch.data)
        kind, schema, columns = _dump_columns(batch.data.schema, data)
        head = _COLUMNS.pack(rows.index(batch.row), len(schema), column, len(values))
        body: list[Buffer] = [head, schema, values, columns]
    else:
        kind, pickled = dump_values(batch.values())
        body = [pickled]
    head_of_all = _SECTION.pack(kind, len(times), len(ticks), len(codes), len(keys), sum(map(len, body)))
    pieces = [head_of_all, times, ticks, codes, keys, *body]
    if batch.kinds is not None:
        pieces.append(np.ascontiguousarray(batch.kinds).data.cast("B"))
    return pieces


def decode_payload(frame: bytes, rows: RowTypes, offset: int = HEAD_SIZE) -> Payload:
    kind, n_times, n_ticks, n_codes, n_keys, n_body = _SECTION.unpack_from(frame, offset)
    view = memoryview(frame)
    at = offset + _SECTION.size
    times = np.frombuffer(view[at : at + n_times], dtype=np.int64) if n_times else None
    packed_ticks = view[at + n_times : at + n_times + n_ticks]
    at += n_times + n_ticks
    n_after = at + n_codes + n_keys
    keys, codes = [], _NO_CODES
    if n_keys:
        keys = _keys.decode(view[at + n_codes : n_after])
        codes = np.frombuffer(view[at : at + n_codes], dtype=_code_type(keys)).astype(np.int32, copy=False)
    end = n_after + n_body
    body = view[n_after:end]
    batch: Batch
    if kind in (_ARROW, _ARROW_STREAM):
        row, n_schema, column, n_values = _COLUMNS.unpack_from(body)
        schema_end = _COLUMNS.size + n_schema
        schema, values = body[_COLUMNS.size : schema_end], body[schema_end : schema_end + n_values]
        batch = Columns(_load_columns(kind, schema, body[schema_end + n_values :], column, values, codes), rows[row], times)
    else:
        batch = Records(load_values(kind, body), times)
    if n_ticks:
        batch.ticks = _load_ticks(packed_ticks, len(batch))
    if end < len(view):
        batch.kinds = np.frombuffer(view[end:], dtype=np.int8)
    return Keyed(batch, keys, codes) if n_keys else batch


def _dump_ticks(ticks: Timestamps) -> bytes:
    least, span = int(ticks.min()), int(ticks.max()) - int(ticks.min())
    if not span:
        return _TICKS.pack(0, least)
    if span < 1 << 32:
        return _TICKS.pack(4, least) + (ticks - least).astype(np.uint32).tobytes()
    return _TICKS.pack(8, least) + ticks.astype(np.int64).tobytes()


def _load_ticks(data: memoryview, rows: int) -> Timestamps:
    width, least = _TICKS.unpack_from(data)
    if not width:
        return np.full(rows, least, dtype=np.int64)
    rest = data[_TICKS.size :]
    return np.frombuffer(rest, dtype=np.int64) if width == 8 else np.frombuffer(rest, dtype=np.uint32).astype(np.int64) + least


_keys = msgspec.msgpack.Decoder(list[bytes])
_NO_CODES: Codes = np.zeros(0, dtype=np.int32)


def _code_type(keys: list[bytes]) -> type[np.uint16 | np.int32]:
    return np.uint16 if len(keys) <= _NARROW else np.int32


def _without_keys(keyed: Keyed, data: pa.RecordBatch) -> tuple[int, Buffer, pa.RecordBatch]:
    """A batch without the column of its keys, if that can go as distinct values by key: its number (or -1), these, the rest."""
    column, rows = keyed.column, len(keyed)
    if column is None or rows < _LEAVE_OUT_ABOVE * len(keyed.keys) or any(map(_has_dictionary, data.schema.types)):
        return -1, b"", data
    where = np.zeros(len(keyed.keys), dtype=np.int64)
    where[keyed.codes] = np.arange(rows)
    values = data.select([column]).take(pa.array(where))
    return column, memoryview(values.serialize()), data.remove_column(column)


def _dump_columns(schema: pa.Schema, data: pa.RecordBatch) -> tuple[int, Buffer, Buffer]:
    """Kind, schema, columns. A schema and a batch by themselves are quicker than a stream, but hold no dictionaries."""
    if not any(map(_has_dictionary, schema.types)):
        return _ARROW, memoryview(schema.serialize()), memoryview(data.serialize())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    return _ARROW_STREAM, b"", memoryview(sink.getvalue())


def _has_dictionary(type_: pa.DataType) -> bool:
    return pa.types.is_dictionary(type_) or any(_has_dictionary(type_.field(i).type) for i in range(type_.num_fields))


def _load_columns(
    kind: int, schema: memoryview, columns: memoryview, left_out: int, values: memoryview, codes: Codes
) -> pa.RecordBatch:
    if kind == _ARROW_STREAM:
        with pa.ipc.open_stream(pa.py_buffer(columns)) as reader:
            return reader.read_next_batch()
    whole = pa.ipc.read_schema(pa.py_buffer(schema))
    if left_out < 0:
        return pa.ipc.read_record_batch(pa.py_buffer(columns), whole)
    distinct = pa.ipc.read_record_batch(pa.py_buffer(values), pa.schema([whole.field(left_out)]))
    arrays = pa.ipc.read_record_batch(pa.py_buffer(columns), whole.remove(left_out)).columns
    arrays.insert(left_out, distinct.column(0).take(pa.array(codes)))
    return pa.RecordBatch.from_arrays(arrays, schema=whole)


def dump_values(values: list[Any]) -> tuple[int, bytes]:
    """Python values as bytes, for the short way between two workers; never for the disk."""
    try:
        return _PICKLED, pickle.dumps(values, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _CLOUDPICKLED, job_pickle.dumps(values)


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
