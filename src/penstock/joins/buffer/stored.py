"""Chunks: rows of one key group and stretch of time, as bytes.

A chunk is self-contained. What is not a key is one Arrow stream, which any reader of Arrow can show: the rows' columns after five
of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import CorruptFileError, StateError
from penstock.joins.buffer.rows import Rows
from penstock.joins.columns import one_payload
from penstock.windows.columnar.chunks import KeyIndex

VERSION = 1

OURS = ("_key", "_time", "_tick", "_turn", "_met")
"""Before the columns of records: the number of the key in the chunk, and what a row has beside."""

_TYPES = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.bool_())


class StoredRows(msgspec.Struct, array_like=True, frozen=True):
    """`keys`: the different ones, encoded. `schema` and `data`: of the Arrow columns. `what`: of what join the rows are."""

    version: int
    what: str
    keys: list[bytes]
    schema: bytes
    data: bytes


_stored = msgspec.msgpack.Decoder(StoredRows)
_SCHEMAS: dict[bytes, pa.Schema] = {}
"""Schemas that were read: the chunks of a state have few."""


def read_stored(data: bytes, where: str) -> StoredRows:
    try:
        stored = _stored.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptFileError(f"a chunk of {where} cannot be read", detail=str(error)) from error
    if stored.version != VERSION:
        raise CorruptFileError(f"a chunk of {where} is of version {stored.version}", hint="a newer Penstock has written it")
    return stored


def write_stored(stored: StoredRows) -> bytes:
    return msgspec.msgpack.encode(stored)


def batch_of(stored: StoredRows, where: str) -> pa.RecordBatch:
    """All columns of a chunk."""
    try:
        schema = _SCHEMAS.get(stored.schema)
        if schema is None:
            if len(_SCHEMAS) > 1000:
                _SCHEMAS.clear()
            schema = _SCHEMAS[stored.schema] = pa.ipc.read_schema(pa.py_buffer(stored.schema))
        batch = pa.ipc.read_record_batch(pa.py_buffer(stored.data), schema)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise CorruptFileError(f"a chunk of {where} cannot be read", detail=str(error)) from error
    if tuple(schema.names[: len(OURS)]) != OURS or tuple(schema.types[: len(OURS)]) != _TYPES:
        raise CorruptFileError(f"a chunk of {where} has other columns than rows of a join have", detail=str(schema))
    return batch


def stored_rows(what: str, keys: list[bytes], batch: pa.RecordBatch) -> StoredRows:
    """A chunk of keys, and columns of which the first ones are ours."""
    return StoredRows(VERSION, what, keys, batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes())


def dump_rows(rows: Rows, index: KeyIndex, what: str) -> bytes:
    numbers, codes = np.unique(rows.keys, return_inverse=True)
    encoded = index.encoded
    ours = [codes.astype(np.int32), rows.times, rows.ticks, rows.turns, rows.met]
    arrays = [*(pa.array(vector) for vector in ours), *rows.data.columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=[*OURS, *rows.data.schema.names])
    return write_stored(stored_rows(what, [encoded[number] for number in numbers.tolist()], batch))


def load_rows(chunks: Sequence[bytes], index: KeyIndex, what: str, step: str) -> tuple[Rows, list[int]]:
    """The rows of chunks, one after another; and how many each has."""
    where = f"step {step!r}"
    keys: list[bytes] = []
    firsts, batches = [], []
    for data in chunks:
        stored = read_stored(data, where)
        if stored.what != what:
            raise StateError(
                f"the join of {where} has changed since its state was written",
                detail=f"written: {stored.what}\nnow: {what}",
                hint="give the changed step another name; the old state can then be dropped with --allow-dropped-state",
            )
        firsts.append(len(keys))
        keys += stored.keys
        batches.append(batch_of(stored, where))
    sizes = [batch.num_rows for batch in batches]
    batch = one_payload(batches, step)
    codes, times, ticks, turns, met = (batch.column(place).to_numpy(zero_copy_only=False) for place in range(len(OURS)))
    payload = pa.RecordBatch.from_arrays(batch.columns[len(OURS) :], schema=pa.schema(list(batch.schema)[len(OURS) :]))
    if not payload.num_columns:
        payload = _without_columns(batch.num_rows)
    numbers = index.numbers(keys)[codes + np.repeat(firsts, sizes)]
    return Rows(numbers, times, ticks, turns, met, payload), sizes


def _without_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
