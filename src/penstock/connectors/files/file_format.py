"""The format of a file, by its name."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.errors import SourceError

FormatName = Literal["json", "csv", "parquet", "text"]

FORMATS: tuple[FormatName, ...] = ("json", "csv", "parquet", "text")

_EXTENSIONS: dict[str, FormatName] = {
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "parquet": "parquet",
    "pq": "parquet",
    "txt": "text",
    "text": "text",
    "log": "text",
}
_COMPRESSIONS = {"gz": "gzip", "zst": "zstd", "bz2": "bz2"}


class FileFormat(msgspec.Struct, frozen=True):
    """The format of a file and how it is compressed as a whole (Parquet compresses inside and needs none)."""

    name: FormatName
    compression: str | None = None


def format_of(path: str, given: FormatName | None) -> FileFormat:
    """The format of a file: the one given, or the one its extension stands for."""
    parts = path.rpartition("/")[2].lower().split(".")[1:]
    compression = _COMPRESSIONS.get(parts[-1]) if parts else None
    if compression is not None:
        parts = parts[:-1]
    name = given or (_EXTENSIONS.get(parts[-1]) if parts else None)
    if name is None:
        raise SourceError(
            f"the format of {path} is not clear from its name",
            hint=f"set format= to one of {', '.join(FORMATS)}, or narrow the path to the files that you mean",
            nature="configuration",
        )
    return FileFormat(name, None if name == "parquet" else compression)
