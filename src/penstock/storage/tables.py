"""Tables as objects of a storage: written once, read by workers, which keep those that they read last."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import CorruptFileError
from penstock.storage.protocol import Storage

FEW = 8
"""So many tables are kept in a process."""

_TABLES: dict[tuple[str, str], pa.Table] = {}


def encode_table(table: pa.Table) -> bytes:
    """The same bytes for the same table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_table(storage: Storage, path: str, digest: str, rows: int) -> pa.Table:
    """A table of which digest and number of rows are known."""
    key = (path, digest)
    table = _TABLES.pop(key, None)
    if table is None:
        try:
            with pa.ipc.open_file(pa.py_buffer(storage.read(path))) as reader:
                table = reader.read_all()
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(f"the table {path} cannot be read", detail=str(error)) from error
        if table.num_rows != rows:
            raise CorruptFileError(f"the table {path} has {table.num_rows} rows, not {rows}")
    _TABLES[key] = table
    while len(_TABLES) > FEW:
        del _TABLES[next(iter(_TABLES))]
    return table
