"""Rows on their way: encoded by the workers into the job's storage, read back by the driver when the epoch is durable.

A staged file is a run of blocks, each `length (4, big-endian) · CRC-32 (4) · payload`, so that neither side holds more than a
block in memory. Its name carries the attempt, so that leftovers are recognised.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import pyarrow as pa

from penstock.connectors.protocol import Committable, WriterContext
from penstock.errors import CorruptFileError, SinkError
from penstock.records import Batch
from penstock.storage import Storage
from penstock.storage.pending import PendingObject

BLOCK_ROWS = 4096

_HEADER = struct.Struct(">II")
_STAGED = re.compile(r".*/staged/[0-9]+/[0-9]+-(.+)\.rows")

Encode = Callable[[list[Any]], bytes]
Decode = Callable[[bytes], list[Any]]


def staged_path(context: WriterContext) -> str:
    return f"{context.folder}/staged/{context.epoch:020d}/{context.partition:05d}-{quote(context.attempt, safe='')}.rows"


def staged_attempt(path: str) -> str | None:
    match = _STAGED.fullmatch(path)
    return unquote(match[1]) if match else None


class StagedWriter:
    """A sink writer that stages encoded rows in the job's storage."""

    def __init__(self, context: WriterContext, encode: Encode) -> None:
        if context.storage is None:
            hint = "give the job a storage: WriterContext(storage=…)"
            raise SinkError(f"the sink {context.step} has no storage to stage its rows in", hint=hint)
        self._storage = context.storage
        self._step = context.step
        self._path = staged_path(context)
        self._encode = encode
        self._pending: PendingObject | None = None
        self._few: list[Any] = []
        self._rows = 0

    def write(self, batch: Batch) -> None:
        values = batch.values()
        if len(self._few) + len(values) < BLOCK_ROWS:
            self._few += values
            return
        self._flush()
        for start in range(0, len(values), BLOCK_ROWS):
            self._block(values[start : start + BLOCK_ROWS])

    def prepare(self) -> Committable:
        self._flush()
        if self._pending is not None:
            self._pending.keep()
        return {"path": self._path if self._rows else None, "rows": self._rows}

    def abort(self) -> None:
        self._few = []
        if self._pending is not None:
            self._pending.abandon()
        self._storage.delete([self._path])

    def _flush(self) -> None:
        if self._few:
            few, self._few = self._few, []
            self._block(few)

    def _block(self, rows: list[Any]) -> None:
        try:
            payload = self._encode(rows)
        except Exception as error:
            raise SinkError(
                f"the sink {self._step} cannot encode its rows",
                detail=f"first row: {str(rows[0])[:200]}\n{error!r}",
                hint="map the rows to built-in types, dataclasses or msgspec Structs, or override encode and decode",
            ) from error
        if self._pending is None:
            self._pending = PendingObject(self._storage, self._path)
        self._pending.file.write(_HEADER.pack(len(payload), zlib.crc32(payload)))
        self._pending.file.write(payload)
        self._rows += len(rows)


def staged_rows(storage: Storage, committables: Sequence[Committable], decode: Decode) -> Iterator[list[Any]]:
    """The rows of committables, block by block, in the order they were written; checked."""
    for committable in committables:
        path = committable["path"]
        if path is None:
            continue
        rows = 0
        with storage.open(path) as file:
            while header := file.read(_HEADER.size):
                length, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0)
                payload = file.read(length)
                if len(header) != _HEADER.size or not length or len(payload) != length or zlib.crc32(payload) != checksum:
                    raise CorruptFileError(f"the staged rows {storage.uri}/{path} are damaged")
                block = decode(payload)
                rows += len(block)
                yield block
        if rows != committable["rows"]:
            raise CorruptFileError(f"the staged rows {storage.uri}/{path} are {rows}, not {committable['rows']}")


def staged_paths(committables: Sequence[Committable]) -> list[str]:
    return [committable["path"] for committable in committables if committable["path"] is not None]


def encode_rows(rows: list[Any]) -> bytes:
    """MessagePack."""
    return _ENCODER.encode(rows)


def decode_rows(data: bytes, row: Any = Any) -> list[Any]:
    """Rows of a class where one is given; else dicts for objects, and tuples for sequences."""
    rows: list[Any] = msgspec.msgpack.decode(data, type=list[row])
    if row is Any:
        return [tuple(value) if type(value) is list else value for value in rows]
    return rows


def plain(value: object) -> object:
    """For msgspec: numpy's and Arrow's scalars as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, pa.Scalar):
        return value.as_py()
    raise NotImplementedError(f"objects of type {type(value).__name__} are not supported")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=plain)
