"""Files, exactly once.

Writers put each epoch's records into files of their own, under names that no other attempt has. Nobody is promised to find them
by listing: they become output when the committer names them in the log (see `log`).
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, get_args

import msgspec
import pyarrow as pa

from penstock.connectors.files.formats import FormatName
from penstock.connectors.files.log import PublishedFile, PublishedLog
from penstock.connectors.files.output.arrow_types import arrow_schema
from penstock.connectors.files.output.names import DATA, PUBLISHED, part_attempt
from penstock.connectors.files.writers import FileWriter
from penstock.connectors.protocol import Committable, CommitterContext, WriterContext
from penstock.errors import ConfigError
from penstock.ids import Epoch
from penstock.storage import LocalStorage, Storage, open_storage

_LOGGER = logging.getLogger(__name__)
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
    or a function from a record to a folder. `tidy=True` also shows published files under `published/`, for people who just list.
    """

    uri: str
    _: KW_ONLY
    format: FormatName = "json"
    schema: type | pa.Schema | None = None
    columns: Sequence[str] | None = None
    partition_by: str | Callable[[Any], str] | None = None
    compression: str | None = None
    max_file_records: int | None = None
    tidy: bool = False

    def __post_init__(self) -> None:
        uri = os.fspath(self.uri)
        if not uri:
            raise ConfigError("A FileSink needs a folder", hint="FileSink('out/') or FileSink('s3://bucket/prefix')")
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", uri):  # workers may run in another folder
            uri = os.path.abspath(os.path.expanduser(uri))
        object.__setattr__(self, "uri", uri)
        if self.format not in get_args(FormatName):
            hint = f"format= is one of {', '.join(get_args(FormatName))}"
            raise ConfigError(f"A FileSink cannot write {self.format!r}", hint=hint)
        known = _COMPRESSIONS[self.format]
        if self.compression not in known:
            raise ConfigError(
                f"A FileSink cannot compress {self.format} by {self.compression!r}",
                hint=f"compression= is one of {', '.join(name for name in known if name)}",
            )
        if self.compression == "none" and self.format != "parquet":
            object.__setattr__(self, "compression", None)
        if self.max_file_records is not None and self.max_file_records < 1:
            raise ConfigError(f"A file cannot have {self.max_file_records} records", hint="max_file_records= is 1 or more")
        if self.schema is not None:
            if self.columns is not None:
                raise ConfigError("A FileSink has schema= or columns=, not both", hint="the schema names the columns")
            arrow_schema(self.schema)
        if self.columns is not None:
            columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            if not columns or not all(columns) or len(set(columns)) < len(columns):
                raise ConfigError(f"These are no column names: {list(columns)}", hint="columns= is a list of different names")
            object.__setattr__(self, "columns", columns)
        if self.partition_by is not None and not callable(self.partition_by) and self.partition_by == "":
            raise ConfigError(
                f"A FileSink cannot partition by {self.partition_by!r}",
                hint="partition_by= is a column name, or a function from a record to a folder",
            )

    @property
    def volatile(self) -> bool:
        return False

    def writer(self, context: WriterContext) -> FileWriter:
        return FileWriter(self, context, open_storage(self.uri))

    def committer(self, context: CommitterContext) -> FileCommitter:
        return FileCommitter(self, context, open_storage(self.uri))

    def describe(self) -> str:
        return f"{self.format} files in {self.uri}"


class FileCommitter:
    """Publishes; the folder is taken when it is made."""

    def __init__(self, sink: FileSink, context: CommitterContext, storage: Storage) -> None:
        self._sink = sink
        self._context = context
        self._storage = storage
        self._log = PublishedLog(storage, context.job, context.step, context.job_name)
        self._log.own()

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        files = _files(committables)
        if not files:
            return
        self._log.publish(epoch, files)
        if self._sink.tidy:
            self._show(files)

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        published = self._log.published_in(epoch)  # whatever the caller believes: output is never taken back
        self._storage.delete([file.path for file in _files(committables) if file.path not in published])

    def sweep(self) -> int:
        """Remove files of old attempts that were never published; returns how many.

        Only after recovery has committed what the last manifest holds: until then its files are not in the log.
        """
        old = [
            listed.path
            for listed in self._storage.list(DATA)
            if (attempt := part_attempt(listed.path)) is not None and self._context.sweepable(attempt)
        ]
        if not old:
            return 0
        published = self._log.published()  # after the listing: what was published in between is in it
        left = [path for path in old if path not in published]
        self._storage.delete(left)
        return len(left)

    def close(self) -> None:
        pass

    def _show(self, files: Sequence[PublishedFile]) -> None:
        for file in files:
            path = PUBLISHED + file.path.removeprefix(DATA)
            try:
                if isinstance(self._storage, LocalStorage):
                    _link(os.path.join(self._storage.root, file.path), os.path.join(self._storage.root, path))
                elif not self._storage.exists(path):
                    with self._storage.open(file.path) as source, self._storage.writer(path) as target:
                        shutil.copyfileobj(source, target, 1 << 20)
            except OSError as error:  # the output is published; only the convenience is missing
                _LOGGER.warning("%s could not be shown as %s: %s", file.path, path, error)


def _files(committables: Sequence[Committable]) -> list[PublishedFile]:
    return [msgspec.convert(file, PublishedFile) for committable in committables for file in committable["files"]]


def _link(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        pass
