"""Rows as people have them, as Arrow tables: Arrow itself, pandas, Spark, lists of dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import StateError


def tables_of(rows: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """`rows`: a table, a batch, a reader or an iterable of these; a pandas or Spark DataFrame; dicts. `schema`: of the state."""
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif hasattr(rows, "toArrow") and hasattr(rows, "sparkSession"):
        yield rows.toArrow()
    elif hasattr(rows, "to_dict") and hasattr(rows, "iloc"):
        yield pa.Table.from_pandas(rows, schema=_of(rows.columns, schema), preserve_index=False)
    elif isinstance(rows, dict) or not isinstance(rows, Iterable):
        raise StateError(f"rows cannot be a {type(rows).__name__}", hint="give a table, a DataFrame, or a list of dicts")
    else:
        yield from _of_many(rows, schema)


def _of_many(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.Table]:
    dicts: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, dict):
            dicts.append(row)
            if len(dicts) >= 10_000:
                yield _of_dicts(dicts, schema)
                dicts = []
        elif isinstance(row, (pa.Table, pa.RecordBatch)):
            yield from tables_of(row, schema)
        else:
            raise StateError(f"a row cannot be a {type(row).__name__}", hint='give dicts, such as {"key": "a", "value": 1}')
    if dicts:
        yield _of_dicts(dicts, schema)


def _of_dicts(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pa.Table.from_pylist(rows, schema=_of(names, schema))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise StateError("rows do not have the types of the state", detail=str(error), hint=f"its columns: {wanted}") from None


def _of(names: Iterable[str], schema: pa.Schema) -> pa.Schema:
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise StateError(f"the state has no column {', '.join(map(repr, unknown))}", hint=f"it has {', '.join(schema.names)}")
    return pa.schema([field for field in schema if field.name in set(names)])
