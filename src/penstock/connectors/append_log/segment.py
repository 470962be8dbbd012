"""The files of an append log, and where they are.

    feeds/<source>/log/log.json                  which log it is; made by the job, once
    feeds/<source>/log/fields.json               what its records look like, if the source has a schema
    feeds/<source>/log/0000000000000001.segment  records, by the number of the segment

A segment is a fixed start, a header and a body: a record of JSON on each line.

    start:  b"PNSL", version u16, length of the header u32, CRC-32 of the header u32
    header: JSON; it has the CRC-32 of the body, and that of the header of the segment before

Law: segments are created exclusively and have consecutive numbers. Who finds a number taken has to read that segment first, so
two that append to one log never lose or repeat anything, wherever they are.
"""

from __future__ import annotations

import re
import struct
from zlib import crc32

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.storage import Storage
from penstock.storage.documents import UNREADABLE
from penstock.storage.protocol import segment as as_segment

MAGIC = b"PNSL"
VERSION = 1
_START = struct.Struct("<4sHII")
_AT_FIRST = 4096
_LARGEST_HEADER = 64 << 20

LOG = "log.json"
FIELDS = "fields.json"
_NAME = re.compile(r"([0-9]{16})\.segment")

Mark = tuple[int, int]
"""The length of a segment's header, and its CRC-32."""


class LogIdentity(msgspec.Struct, frozen=True):
    """`log.json`. A position of another log means nothing here."""

    id: str
    version: int = VERSION


class Append(msgspec.Struct, frozen=True, array_like=True):
    """Records that came together. `crc`: of all of them; empty `id`: without one."""

    id: str
    records: int
    crc: int


class Header(msgspec.Struct, frozen=True):
    """`first`: how many records are before this segment; `previous`: the CRC-32 of the header before, 0 for none."""

    log: str
    number: int
    first: int
    previous: int
    appends: list[Append]
    records: int
    bytes: int
    crc: int
    created_ms: int

    @property
    def end(self) -> int:
        return self.first + self.records


def folder_of(source: str) -> str:
    """Where in a job's storage the log of a source is."""
    return f"feeds/{as_segment(source)}/log"


def segment_name(number: int) -> str:
    return f"{number:016d}.segment"


def number_of(name: str) -> int | None:
    """Of a file in the folder of a log; None for what is no segment."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found is not None else None


def numbers_in(log: Storage) -> range:
    """The numbers of the segments that a log has. What is not connected to the newest is no part of it."""
    numbers = {n for n in (number_of(listed.path) for listed in log.list()) if n is not None}
    if not numbers:
        return range(1, 1)
    first = last = max(numbers)
    while first - 1 in numbers:
        first -= 1
    return range(first, last + 1)


def is_of_a_log(path: str) -> bool:
    """Is it a path that this module makes?"""
    head, _, name = path.rpartition("/")
    parts = head.split("/")
    return (
        len(parts) == 3 and parts[0] == "feeds" and parts[2] == "log" and (name in (LOG, FIELDS) or number_of(name) is not None)
    )


def encode_segment(header: Header, body: bytes) -> tuple[bytes, Mark]:
    head = msgspec.json.encode(header)
    mark = len(head), crc32(head)
    return _START.pack(MAGIC, VERSION, *mark) + head + body, mark


def read_header(log: Storage, number: int) -> tuple[Header, int] | None:
    """A segment's header, and its CRC-32; None if there is no such segment."""
    name = segment_name(number)
    try:
        data = log.read_range(name, 0, _AT_FIRST)
        length, crc = _mark(log, name, data)
        if _START.size + length > len(data):
            data = log.read_range(name, 0, _START.size + length)
    except NotFoundError:
        return None
    return _header(log, name, data, length, crc), crc


def read_records(log: Storage, number: int) -> tuple[Header, list[bytes]]:
    """All records of a segment."""
    name = segment_name(number)
    data = log.read(name)
    length, crc = _mark(log, name, data)
    header = _header(log, name, data, length, crc)
    body = data[_START.size + length :]
    if len(body) != header.bytes or crc32(body) != header.crc:
        raise _corrupt(log, name, "its records are not what was written")
    return header, body.split(b"\n")[:-1]


def _mark(log: Storage, name: str, data: bytes) -> Mark:
    if len(data) < _START.size:
        raise _corrupt(log, name, "it is cut off")
    magic, version, length, crc = _START.unpack_from(data)
    if magic != MAGIC:
        raise _corrupt(log, name, "it is no segment")
    if version > VERSION:
        raise CorruptFileError(
            f"{log.uri}/{name} is of version {version}, and this Penstock knows {VERSION}", hint="use a later Penstock"
        )
    if length > _LARGEST_HEADER:
        raise _corrupt(log, name, "its header is too large")
    return length, crc


def _header(log: Storage, name: str, data: bytes, length: int, crc: int) -> Header:
    head = data[_START.size : _START.size + length]
    if len(head) != length or crc32(head) != crc:
        raise _corrupt(log, name, "its header is not what was written")
    try:
        header = msgspec.json.decode(head, type=Header)
    except UNREADABLE as error:
        raise _corrupt(log, name, str(error)) from error
    if segment_name(header.number) != name:
        raise _corrupt(log, name, f"it says that it is segment {header.number}")
    return header


def _corrupt(log: Storage, name: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{log.uri}/{name} cannot be read", detail=why, hint="restore the file from a backup")
