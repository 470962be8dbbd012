"""Small JSON files with a checksum of their content."""

from __future__ import annotations

from typing import TypeVar
from zlib import crc32

import msgspec

from penstock.errors import CorruptFileError

T = TypeVar("T")


def seal(content: msgspec.Struct) -> bytes:
    body = msgspec.json.encode(content)
    return b'{"crc":%d,"content":' % crc32(body) + body + b"}\n"


def unseal(data: bytes, kind: type[T], path: str, hint: str = "") -> T:
    """What was sealed; `CorruptFileError` if it is not what was written."""
    head, _, rest = data.partition(b',"content":')
    if head != b'{"crc":%d' % crc32(rest[:-2]):
        raise CorruptFileError(f"{path} is damaged", detail=f"{len(data)} bytes, checksum does not match", hint=hint)
    try:
        return msgspec.json.decode(rest[:-2], type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(f"{path} cannot be read", detail=str(error), hint=hint) from error
