"""Reading small files whole, whatever they hold: bounded before they are in memory, decoded or refused by name.

Law: a file of a job's storage that is huge, nested without end or no text at all is an error of that file, never of the process.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.errors import CorruptFileError
from penstock.storage.protocol import Storage

T = TypeVar("T")

NOTE_BYTES = 256 << 10
"""A fixed number of short fields: job, term, lease, pin, owner, mirror, a note of the lineage. Real ones are below 2 KB."""

LIST_BYTES = 8 << 20
"""A few fields for each step or module: status, requests and answers, programs (at most 500 modules). Real ones are below
100 KB."""

MANIFEST_BYTES = 128 << 20
"""What an epoch knows, by partition and file: manifests, intents, savepoint.json, entries of a sink's log. 1,000 partitions of a
source, and a chain of 20 files for each of 1,000 partitions of state in four stages, make 20 MB."""

_AT_FIRST = 1 << 20

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises: no JSON, another type; no UTF-8; nested too deep."""


def read_small(storage: Storage, path: str, limit: int) -> bytes:
    """All of an object of at most `limit` bytes, mostly in one request; `CorruptFileError` for a larger one."""
    data = storage.read_range(path, 0, min(limit, _AT_FIRST) + 1)
    if len(data) <= min(limit, _AT_FIRST):
        return data
    size = storage.size(path)
    if size > limit:
        raise CorruptFileError(
            f"{storage.uri}/{path} is too large: {size:,} bytes",
            detail=f"no file of its kind has more than {limit:,}",
            hint="it was not written by Penstock: restore the file from a backup",
        )
    return storage.read(path)


def decode_json(data: bytes, kind: type[T], path: str, *, hint: str = "") -> T:
    """The document in `data`; `path` is what messages call the file."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise CorruptFileError(f"{path} cannot be read", detail=str(error), hint=hint) from error
