"""Files as a source: the files there are, or those that come.

The unit is a file that is put there whole: written elsewhere (or under a name that begins with `.` or `_` or ends in `.tmp`) and
moved in. What is in a file when it is first seen is what is read of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, cast

import pyarrow as pa

from penstock.connectors.files.file_format import FORMATS, FormatName
from penstock.connectors.files.first_look import known_columns
from penstock.connectors.files.reading.enumerator import FileEnumerator
from penstock.connectors.files.reading.readers import FileReader
from penstock.connectors.protocol import SourceContext
from penstock.errors import ConfigError
from penstock.plan.schema import Schema
from penstock.plan.shapes import shape_of
from penstock.records import RowType


@dataclass(frozen=True, slots=True)
class FileSource:
    """JSON lines, CSV, Parquet or lines of text from files: a path, a folder with all below it, or a glob, here or in `s3://`.

    - `format`: json, csv, parquet or text; by default what the extension says. Text formats may be compressed (.gz, .zst, .bz2):
      such a file is read in one piece.
    - `schema`: a dataclass, NamedTuple or msgspec Struct to make of each row, or a pyarrow schema for dicts of these types.
      Without one rows are dicts: Parquet's own types, JSON's own values, for CSV what the beginning of the file suggests. Rows
      that are columns are fastest: Parquet, CSV, and JSON with a schema of plain fields. Lines of text are plain strings.
    - `columns`: only these.
    - `watch`: look for new files this often (seconds or timedelta), forever. A folder with a `_log/` (a file sink's) is followed
      by its log: only what is published is read. Files are read by (modification time, path), without `watch` by path.
    - `lanes`: how many files are read side by side, each lane with its own event time: file n belongs to lane n % lanes. Set it
      to the number of files that cover the same time. Default: the parallelism the job is first run with, for files one after
      another in time; where a step sees order they are then dealt out in pieces.
    - `on_bad_record`: "fail", or "skip" to count, log and leave out records that cannot be read.
    - `on_taken_back`: when a followed `_log/` takes back files that were read: "fail" names the epoch and stops, "continue" reads
      what replaces them as well.
    - CSV: `delimiter`; `header=False` takes the names from the schema; `newlines_in_values=True` allows quoted values to
      hold line ends, at the price that a file is read in one piece.
    """

    path: str
    _: KW_ONLY
    format: FormatName | None = None
    schema: Any = None
    columns: Sequence[str] | None = None
    watch: timedelta | float | None = None
    lanes: int | None = None
    batch_size: int = 262144
    on_bad_record: Literal["fail", "skip"] = "fail"
    on_taken_back: Literal["fail", "continue"] = "fail"
    delimiter: str = ","
    header: bool = True
    newlines_in_values: bool = False
    _absent_stays_absent: bool = field(init=False, repr=False, compare=False, default=False)
    """The columns were chosen by the plan: a JSON object without one of them does not get it as null."""

    def __post_init__(self) -> None:
        path = os.fspath(cast("str | os.PathLike[str]", self.path))
        if not path:
            raise ConfigError("the path of a file source is empty", hint="give a file, a folder, a glob, or an s3:// URI")
        if "://" not in path:  # the working folder of a worker is another one
            path = os.path.abspath(os.path.expanduser(path))
        object.__setattr__(self, "path", path)
        if self.format is not None and self.format not in FORMATS:
            raise ConfigError(f"format={self.format!r} is not known", hint=f"use one of {', '.join(FORMATS)}")
        if self.columns is not None:
            if isinstance(self.columns, str) or not self.columns:
                raise ConfigError(f"columns={self.columns!r} is not valid", hint="give a list of column names, or leave it out")
            object.__setattr__(self, "columns", tuple(self.columns))
        if self.on_bad_record not in ("fail", "skip"):
            raise ConfigError(f"on_bad_record={self.on_bad_record!r} is not known", hint='use "fail" or "skip"')
        if self.on_taken_back not in ("fail", "continue"):
            raise ConfigError(f"on_taken_back={self.on_taken_back!r} is not known", hint='use "fail" or "continue"')
        for name in ("lanes", "batch_size"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name}={value!r} is not valid", hint="give a whole number, 1 or more")
        if self.watch_ms is not None and self.watch_ms <= 0:
            raise ConfigError(f"watch={self.watch!r} is not valid", hint="give seconds or a timedelta, above 0")
        self._check_csv()
        shape_of(self.schema, self.columns)

    def _check_csv(self) -> None:
        if len(self.delimiter) != 1:
            raise ConfigError(f"delimiter={self.delimiter!r} is not valid", hint="give one character")
        if not self.header and self.schema is None:
            raise ConfigError("header=False leaves the columns without names", hint="give a schema, in the order of the columns")
        if self.newlines_in_values and self.on_bad_record == "skip":
            raise ConfigError(
                "bad records cannot be skipped in files with newlines in their values",
                hint='use on_bad_record="fail", or newlines_in_values=False',
            )

    @property
    def watch_ms(self) -> int | None:
        if self.watch is None:
            return None
        seconds = self.watch.total_seconds() if isinstance(self.watch, timedelta) else self.watch
        return max(1, round(seconds * 1000)) if seconds > 0 else 0

    @property
    def bounded(self) -> bool:
        return self.watch is None

    @property
    def reads_in_order(self) -> bool:
        """An epoch may stop anywhere in its splits."""
        return True

    @property
    def row(self) -> RowType:
        return RowType(self.schema if isinstance(self.schema, type) else None)

    def enumerator(self, context: SourceContext) -> FileEnumerator:
        return FileEnumerator(self, context)

    def reader(self) -> FileReader:
        return FileReader(self)

    def known_columns(self) -> Schema | None:
        return known_columns(self)

    def with_columns(self, columns: Sequence[str], *, strict: bool) -> FileSource | None:
        """The source reading only these columns: it can, if it would read all that there are."""
        if self.columns is not None or not columns or (self.schema is not None and not isinstance(self.schema, pa.Schema)):
            return None
        if self.schema is not None and (not strict or self.on_bad_record == "skip" or not set(columns) <= set(self.schema.names)):
            return None
        pruned = replace(self, columns=tuple(columns))
        object.__setattr__(pruned, "_absent_stays_absent", strict)
        return pruned

    def describe(self) -> str:
        what = self.format or "by extension"
        how = "" if self.watch_ms is None else f", watched every {self.watch_ms / 1000:g} s"
        return f"files {self.path} ({what}{how})"
