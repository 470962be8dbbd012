"""Files, exactly once.

Writers put each epoch's records into files of their own, under names that no other attempt has. They become output when the
committer names them in the log (`writing/log_format`, `writing/log_writer`); a listing may show more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, get_args

import pyarrow as pa

from penstock.changes import Changelog
from penstock.connectors.files.file_format import FormatName
from penstock.connectors.files.writing.arrow_types import arrow_schema
from penstock.connectors.files.writing.committer import FileCommitter
from penstock.connectors.files.writing.writers import FileWriter
from penstock.connectors.protocol import CommitterContext, WriterContext
from penstock.errors import ConfigError
from penstock.functions import Call, call_of
from penstock.storage import open_storage
from penstock.timing.durations import Duration, to_ms

_LINES = (None, "none", "gzip", "zstd")
_COMPRESSIONS: dict[str, tuple[str | None, ...]] = {
    "json": _LINES,
    "csv": _LINES,
    "text": _LINES,
    "parquet": (None, "none", "snappy", "lz4", "zstd", "gzip"),
}


@dataclass(frozen=True)
class FileSink:
    """Writes records as files below a folder or an object-store prefix, each exactly once.

    Records are dicts, dataclasses, NamedTuples, msgspec Structs, tuples (columns `f0`, `f1`, … or those in `columns=`) or single
    values (column `value`). Parquet and CSV have the columns of `schema=`, or of the first records. `partition_by=` is a column,
    or a function from a record to a folder. `kind_field=` takes streams that update: each change is a row, with its kind (`"+I"`,
    `"-U"`, `"+U"` or `"-D"`) in that field. `tidy=True` also shows published files under `published/`, for people who just list.
    Files of output that is taken back, when the job goes back to an earlier epoch, stay for `keep_taken_back`.
    """

    uri: str
    _: KW_ONLY
    format: FormatName = "json"
    schema: type | pa.Schema | None = None
    columns: Sequence[str] | None = None
    partition_by: str | Callable[[Any], str] | None = None
    compression: str | None = None
    max_file_records: int | None = None
    kind_field: str | None = None
    tidy: bool = False
    keep_taken_back: Duration = timedelta(hours=1)

    def __post_init__(self) -> None:
        uri = os.fspath(self.uri)
        if not uri:
            raise ConfigError("a FileSink needs a folder", hint="FileSink('out/') or FileSink('s3://bucket/prefix')")
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", uri):  # workers may run in another folder
            uri = os.path.abspath(os.path.expanduser(uri))
        object.__setattr__(self, "uri", uri)
        if self.format not in get_args(FormatName):
            hint = f"format= is one of {', '.join(get_args(FormatName))}"
            raise ConfigError(f"a FileSink cannot write {self.format!r}", hint=hint)
        known = _COMPRESSIONS[self.format]
        if self.compression not in known:
            raise ConfigError(
                f"a FileSink cannot compress {self.format} by {self.compression!r}",
                hint=f"compression= is one of {', '.join(name for name in known if name)}",
            )
        if self.compression == "none" and self.format != "parquet":
            object.__setattr__(self, "compression", None)
        if self.max_file_records is not None and self.max_file_records < 1:
            raise ConfigError(f"max_file_records={self.max_file_records} is not valid", hint="give a whole number, 1 or more")
        to_ms(self.keep_taken_back, what="keep_taken_back")
        if self.schema is not None:
            if self.columns is not None:
                raise ConfigError("a FileSink takes schema= or columns=, not both", hint="the schema names the columns")
            arrow_schema(self.schema)
        if self.columns is not None:
            columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            if not columns or not all(columns) or len(set(columns)) < len(columns):
                raise ConfigError(f"columns={list(columns)} is not valid", hint="give a list of different column names")
            object.__setattr__(self, "columns", columns)
        if self.kind_field is not None and (not self.kind_field or self.format == "text"):
            hint = "use json, csv or parquet" if self.kind_field else 'for example kind_field="kind"'
            raise ConfigError(f"A FileSink cannot write {self.format} with the kind in a field {self.kind_field!r}", hint=hint)
        if self.partition_by is not None and not callable(self.partition_by) and self.partition_by == "":
            raise ConfigError(
                f"a FileSink cannot partition by {self.partition_by!r}",
                hint="partition_by= is a column name, or a function from a record to a folder",
            )

    @property
    def volatile(self) -> bool:
        return False

    @property
    def changelog(self) -> Changelog:
        return "append" if self.kind_field is None else "retract"

    def function_calls(self) -> tuple[Call, ...]:
        return (call_of(self.partition_by, "partition_by", "record"),) if callable(self.partition_by) else ()

    def writer(self, context: WriterContext) -> FileWriter:
        return FileWriter(self, context, open_storage(self.uri))

    def committer(self, context: CommitterContext) -> FileCommitter:
        return FileCommitter(self, context, open_storage(self.uri))

    def describe(self) -> str:
        return f"{self.format} files in {self.uri}"
