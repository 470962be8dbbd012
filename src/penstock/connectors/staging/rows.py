"""Rows on their way: encoded by the workers into the job's storage, read back by the driver when the epoch is durable.

A staged file is a run of blocks, each `length (4, big-endian) · CRC-32 (4) · payload`, so that neither side holds more than a
block in memory. Of a stream that updates each block of rows is followed by one with a byte for each: its kind. The name of the
file carries the attempt, so that leftovers are recognised.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO
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
        self._few_kinds = b""
        self._changes = False
        self._rows = 0

    def write(self, batch: Batch) -> None:
        values = batch.values()
        kinds = b"" if batch.kinds is None else batch.kinds.tobytes()
        self._changes |= bool(kinds)
        if len(self._few) + len(values) < BLOCK_ROWS:
            self._few += values
            self._few_kinds += kinds
            return
        self._flush()
        for start in range(0, len(values), BLOCK_ROWS):
            self._block(values[start : start + BLOCK_ROWS], kinds[start : start + BLOCK_ROWS])

    def prepare(self) -> Committable:
        self._flush()
        if self._pending is not None:
            self._pending.keep()
        prepared = {"path": self._path if self._rows else None, "rows": self._rows}
        return {**prepared, "changes": True} if self._changes else prepared

    def abort(self) -> None:
        self._few = []
        if self._pending is not None:
            self._pending.abandon()
        self._storage.delete([self._path])

    def _flush(self) -> None:
        if self._few:
            few, self._few = self._few, []
            kinds, self._few_kinds = self._few_kinds, b""
            self._block(few, kinds)

    def _block(self, rows: list[Any], kinds: bytes) -> None:
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
        for part in (payload, kinds) if kinds else (payload,):
            self._pending.file.write(_HEADER.pack(len(part), zlib.crc32(part)))
            self._pending.file.write(part)
        self._rows += len(rows)


def staged_rows(storage: Storage, committables: Sequence[Committable], decode: Decode) -> Iterator[list[Any]]:
    """The rows of committables, block by block, in the order they were written; checked."""
    for rows, _ in staged_blocks(storage, committables, decode):
        yield rows


def staged_blocks(
    storage: Storage, committables: Sequence[Committable], decode: Decode
) -> Iterator[tuple[list[Any], bytes | None]]:
    """As `staged_rows`, with the kinds of the rows; None: of a stream that only adds rows."""
    for committable in committables:
        path = committable["path"]
        if path is None:
            continue
        rows = 0
        with storage.open(path) as file:
            while (payload := _payload(file, storage, path)) is not None:
                block = decode(payload)
                kinds = _payload(file, storage, path) or b"" if committable.get("changes") else None
                if kinds is not None and len(kinds) != len(block):
                    raise _damaged(storage, path)
                rows += len(block)
                yield block, kinds
        if rows != committable["rows"]:
            raise CorruptFileError(f"the staged rows {storage.uri}/{path} are {rows}, not {committable['rows']}")


def _payload(file: BinaryIO, storage: Storage, path: str) -> bytes | None:
    """The next block; None at the end."""
    header = file.read(_HEADER.size)
    if not header:
        return None
    length, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0)
    payload = file.read(length)
    if not length or len(payload) != length or zlib.crc32(payload) != checksum:
        raise _damaged(storage, path)
    return payload


def _damaged(storage: Storage, path: str) -> CorruptFileError:
    return CorruptFileError(f"the staged rows {storage.uri}/{path} are damaged")


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
