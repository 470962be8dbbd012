"""JSON documents that carry a checksum of themselves, in one of two forms:

    {"version":1,…,"crc":123}            `seal`: as the last field
    {"crc":123,"manifest":{…}}           `enclose`: before the document, which has a name

Law: a document is read as it was written, or refused by name. One without a checksum is from before there were any, and is read
as it is.
"""

from __future__ import annotations

from typing import Any, TypeVar
from zlib import crc32

import msgspec

from penstock.errors import CorruptFileError
from penstock.storage.documents import decode_json

T = TypeVar("T")

_MARK = b',"crc":'


def seal(document: Any) -> bytes:
    """A document (a struct or a dict, not empty) as JSON with its checksum."""
    body = msgspec.json.encode(document)
    return body[:-1] + _MARK + b"%d}" % crc32(body)


def is_sealed(data: bytes) -> bool:
    """Does a document carry a checksum?"""
    return _MARK in data


def unseal(data: bytes, kind: type[T], path: str) -> T:
    """The document in `data`; `path` is what messages call the file."""
    body = body_of(data)
    if body is None:
        raise CorruptFileError(f"{path} is damaged", detail="its checksum does not match", hint=_HINT)
    return decode_json(body, kind, path, hint=_HINT)


def body_of(data: bytes) -> bytes | None:
    """A document without its checksum (`data` itself if it has none); None if that does not match."""
    head, mark, crc = data.rpartition(_MARK)
    if not mark:
        return data
    body = head + b"}"
    return body if crc == b"%d}" % crc32(body) else None


def enclose(name: str, body: bytes) -> bytes:
    """A document, as JSON, with its checksum before it."""
    return b'{"crc":%d,"%s":%s}\n' % (crc32(body), name.encode(), body)


def enclosed(name: str, data: bytes) -> bytes | None:
    """The document that `enclose` was given; None if it is damaged, or none of that name."""
    head, _, rest = data.partition(b',"%s":' % name.encode())
    body = rest[:-2]
    whole = head.startswith(b'{"crc":') and rest[-2:] == b"}\n" and head[7:].isdigit() and int(head[7:]) == crc32(body)
    return body if whole else None


_HINT = "restore the file from a backup"
