"""A DataFrame as Parquet files in the job's storage: written by Spark's Python workers, read by ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.formats.lines import BadRecords
from penstock.connectors.formats.parquet_rows import ParquetRows
from penstock.connectors.protocol import Reader, Split
from penstock.errors import NotFoundError, SourceError
from penstock.plan.shapes import shape_of
from penstock.records import Batch
from penstock.storage import Storage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP_ROWS = 65536
_RESULT = "partition int, path string, rows long, bytes long"


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A file that was written: all of a DataFrame's partition."""

    path: str
    rows: int
    bytes: int


def write(frame: DataFrame, storage: Storage, folder: str) -> list[Piece]:
    """Write a DataFrame below a folder, under names that nothing had before; the files in the order of its partitions."""
    task = _task(storage, f"{folder}/{uuid.uuid4().hex[:12]}")
    rows = frame.mapInArrow(task, _RESULT).collect()
    return [Piece(row.path, row.rows, row.bytes) for row in sorted(rows, key=lambda row: row.partition)]


def _task(storage: Storage, folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        running = TaskContext.get()
        assert running is not None
        path = f"{folder}/{running.partitionId():05d}-{running.taskAttemptId()}.parquet"
        rows = write_batches(batches, storage, path)
        if rows:
            line = [[running.partitionId()], [path], [rows], [storage.size(path)]]
            types = [pa.int32(), pa.string(), pa.int64(), pa.int64()]
            arrays = [pa.array(values, type=kind) for values, kind in zip(line, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=["partition", "path", "rows", "bytes"])

    return task


def write_batches(batches: Iterator[pa.RecordBatch], storage: Storage, path: str) -> int:
    """Write batches into one file, in row groups of a good size; no file when there are no rows."""
    held: list[pa.RecordBatch] = []
    waiting = total = 0
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return 0
    with storage.writer(path) as file, pq.ParquetWriter(file, first.schema) as writer:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            held.append(batch)
            waiting += batch.num_rows
            total += batch.num_rows
            if waiting >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(held), row_group_size=waiting)
                held, waiting = [], 0
            batch = next(batches, None)
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=max(1, waiting))
    return total


class FeedReader(Reader):
    """Reads ranges of the files written. A split says in which storage they are."""

    def __init__(self, record: type | None, batch_size: int, columns: Sequence[str] | None = None) -> None:
        self._storages: dict[str, Storage] = {}
        bad = BadRecords(False, lambda path: self._storage_of("").open(path))
        self._rows = ParquetRows(shape_of(record, columns), batch_size, bad)

    def read(self, split: Split) -> Iterator[Batch]:
        storage = self._storage_of(split.what["storage"])
        for path, start, stop in split.what["ranges"]:
            try:
                file = storage.open(path)
            except NotFoundError as error:
                raise SourceError(
                    f"a batch that Spark read is no longer in the job's storage: {path}",
                    detail=storage.uri,
                    hint="only the last batches are kept: an older epoch cannot be run again",
                ) from error
            with file:
                yield from self._rows.read(path, file, start, stop)

    def _storage_of(self, uri: str) -> Storage:
        storage = self._storages.get(uri)
        if storage is None:
            storage = self._storages[uri] = open_storage(uri)
        return storage


def first_lines(error: object, most: int = 20) -> str:
    """What people can use of an error of Spark's."""
    return "\n".join(str(error).splitlines()[:most])


def feed_split(partition: str, storage: Storage, pieces: list[tuple[Piece, int, int]]) -> Split:
    """A split of row ranges of files."""
    ranges: list[list[Any]] = [[piece.path, start, stop] for piece, start, stop in pieces]
    return Split(
        partition=partition,
        what={"storage": storage.uri, "ranges": ranges},
        records=sum(stop - start for _, start, stop in pieces),
        bytes=sum(piece.bytes * (stop - start) // max(1, piece.rows) for piece, start, stop in pieces),
    )
