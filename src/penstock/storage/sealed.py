"""Small JSON documents that carry a checksum of themselves, as their last field: `{"version":1,…,"crc":123}`.

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
    body = data
    head, mark, crc = data.rpartition(_MARK)
    if mark:
        body = head + b"}"
        if crc != b"%d}" % crc32(body):
            raise CorruptFileError(f"{path} is damaged", detail="its checksum does not match", hint=_HINT)
    return decode_json(body, kind, path, hint=_HINT)


_HINT = "restore the file from a backup"
