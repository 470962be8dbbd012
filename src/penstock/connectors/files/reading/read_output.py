"""`read_output`: what a `FileSink` has published, for people, notebooks and batch jobs. Streaming jobs have `FileSource`.

Law: what is staged, taken back, or held back by a repair is not there. Every use looks at the sink's log anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.files.file_format import FORMATS, FormatName
from penstock.connectors.files.reading.published import published_files, published_rows, tables
from penstock.connectors.files.writing.log_format import shown_entries
from penstock.connectors.files.writing.names import LOG, OWNER, entry_sequence
from penstock.data_frames import as_pandas
from penstock.errors import ConfigError, NotFoundError, StateError
from penstock.storage import LocalStorage, Storage, open_storage

if TYPE_CHECKING:
    import pandas as pd


_HINT = "give the folder that the job's FileSink writes to; it is made with the first rows"


class Output:
    """What a file sink has published: iterate over its rows, or take it as a table. Made by `penstock.read_output`."""

    def __init__(self, storage: Storage, format: FormatName | None) -> None:
        self._storage = storage
        self._format = format

    def __iter__(self) -> Iterator[Any]:
        """The rows, in the order of epochs: dicts, or strings where the files are text."""
        return published_rows(self._storage, self._format)

    def __len__(self) -> int:
        """How many rows there are, as the log says."""
        return sum(file.rows for file in published_files(self._storage))

    def __repr__(self) -> str:
        return f"<Output {self._storage.uri}: {len(self):,} rows in {len(self.paths()):,} files>"

    @property
    def epochs(self) -> list[int]:
        """The epochs whose output is shown, oldest first."""
        return [entry.epoch for _, entry in shown_entries(self._storage)]

    def paths(self) -> list[str]:
        """The published files, oldest first: for other tools, such as `spark.read.parquet(*paths)`."""
        files = [file.path for file in published_files(self._storage)]
        if isinstance(self._storage, LocalStorage):
            return [os.path.join(self._storage.root, path) for path in files]
        location = self._storage.uri.partition("?")[0]
        return [f"{location}/{path}" for path in files]

    def to_arrow(self) -> pa.Table:
        """All rows as one table: a column that some files do not have is null there. Text is a column `value`."""
        found = tables(self._storage, published_files(self._storage), self._format)
        if not found:
            return pa.table({})
        try:
            return pa.concat_tables(found, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise StateError(
                f"the rows in {self._storage.uri} do not make one table",
                detail=str(error),
                hint="a column has values of types that do not go together: iterate over the rows instead",
            ) from error

    def to_pandas(self, *, flatten: bool = False) -> pd.DataFrame:
        """A pandas DataFrame; `flatten`: a column for each field of nested values, such as `reading.celsius`."""
        return as_pandas(self.to_arrow(), flatten=flatten)

    def to_spark(self, spark: Any) -> Any:
        """A Spark DataFrame, through this process. Spark can read large output itself: `spark.read.parquet(*output.paths())`."""
        table = self.to_arrow()
        if not table.num_columns:
            raise NotFoundError(
                f"nothing is published in {self._storage.uri} yet",
                hint="a Spark DataFrame needs columns: wait for rows",
            )
        return spark.createDataFrame(table)


def read_output(path: str | os.PathLike[str], *, format: FormatName | None = None) -> Output:
    """What a `FileSink` has published in a folder, local or `s3://`: rows, `to_arrow()`, `to_pandas()`, `to_spark(spark)`.

    `format`: of files whose names do not tell. A folder that no sink has written to is an error.
    """
    if format is not None and format not in FORMATS:
        raise ConfigError(f"format is {format!r}", hint=f"choose one of {', '.join(FORMATS)}")
    storage = open_storage(path)
    if not any(listed.path == OWNER or entry_sequence(listed.path) for listed in storage.list(LOG)):
        raise _no_output(storage)
    return Output(storage, format)


def _no_output(storage: Storage) -> NotFoundError:
    if isinstance(storage, LocalStorage) and not os.path.exists(storage.root):
        return NotFoundError(f"there is no folder {storage.root}", hint=_HINT)
    below = [listed.path[: -len(OWNER) - 1] for listed in storage.list() if listed.path.endswith(f"/{OWNER}")]
    detail = f"sinks have written to folders below it: {', '.join(below[:5])}" if below else f"there is no {LOG}/ in it"
    return NotFoundError(f"no file sink has published in {storage.uri}", detail=detail, hint=_HINT)
