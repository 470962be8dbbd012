"""What the records of files look like, before any is read: by the schema, or by the newest Parquet file that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.file_format import format_of
from penstock.connectors.files.reading.locations import location_of
from penstock.errors import PenstockError
from penstock.plan.row_schemas import row_schema
from penstock.plan.schema import Schema

if TYPE_CHECKING:
    from penstock.connectors.files.source import FileSource


def known_columns(source: FileSource) -> Schema | None:
    """The columns of a file source's records; None if they are not known. Input that cannot be read now is not known."""
    if isinstance(source.schema, pa.Schema):
        found: Schema | None = Schema.of_arrow(source.schema)
    elif source.schema is not None:
        found = row_schema(source.schema)
    else:
        try:
            found = _of_newest(source)
        except (PenstockError, OSError, pa.ArrowException):
            return None
    return found if found is None or source.columns is None else found.only(source.columns)


def _of_newest(source: FileSource) -> Schema | None:
    location = location_of(source.path)
    files = location.find()
    if not files:
        return None
    newest = max(files, key=lambda file: (file.mtime_ns, file.path))
    if format_of(newest.path, source.format).name != "parquet":
        return None
    with location.open(newest.path) as file, pq.ParquetFile(file) as parquet:
        return Schema.of_arrow(parquet.schema_arrow)
