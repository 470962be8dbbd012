"""Rows as people have them, as Arrow tables: Arrow itself, pandas, Spark, lists of dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.entries.state_table import FROM_PANDAS
from penstock.state.tabular.conversions import EXACT, inexact

_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
_NULLS = ("NoneType", "NAType", "NaTType")


def tables_of(rows: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """`rows`: a table, a batch, a reader or an iterable of these; a pandas or Spark DataFrame; dicts. `schema`: of the state."""
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif hasattr(rows, "toArrow") and hasattr(rows, "sparkSession"):
        yield rows.toArrow()
    elif hasattr(rows, "to_dict") and hasattr(rows, "iloc"):
        yield _of_pandas(rows, _of(rows.columns, schema))
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
    mine = _of(names, schema)
    try:
        for field in mine:
            if _has_integers(field.type):
                for row in rows:
                    _exact(row.get(field.name), field.type)
        return pa.Table.from_pylist(rows, schema=mine)
    except _UNFIT as error:
        raise _unfit(error, schema) from None


def _of_pandas(frame: Any, schema: pa.Schema) -> pa.Table:
    if not frame.columns.is_unique:
        raise StateError("a DataFrame has two columns of one name", detail=f"given: {', '.join(frame.columns)}")
    try:
        arrays = [_of_series(frame[field.name], field.type) for field in schema]
    except _UNFIT as error:
        raise _unfit(error, schema) from None
    return pa.Table.from_arrays(arrays, schema=schema.with_metadata(FROM_PANDAS))


def _of_series(series: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_nested(kind):
        return pa.array([_exact(value, kind) for value in series], kind)
    if pa.types.is_integer(kind):
        if series.dtype.kind == "f":
            _exact_floats(series.to_numpy(dtype=np.float64, na_value=np.nan))
        elif series.dtype.kind == "O":
            for value in series:
                _exact(value, kind)
    return pa.array(series, kind, from_pandas=True)


def _exact(value: Any, kind: pa.DataType, *, nan_is_null: bool = False) -> Any:
    """A value as pandas has it, as Arrow takes it. A float is no integer if it may have been another one.

    In arrays of pandas NaN is null (`nan_is_null`); in dicts and pairs it is NaN.
    """
    if isinstance(value, (float, np.floating)):
        if pa.types.is_integer(kind):
            _exact_floats(np.asarray([value], np.float64))
        return None if value != value and (nan_is_null or not pa.types.is_floating(kind)) else value
    if type(value).__name__ in _NULLS:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        kinds = {field.name: field.type for field in kind}
        return {name: _exact(part, kinds[name]) if name in kinds else part for name, part in value.items()}
    if pa.types.is_struct(kind):
        fits = isinstance(value, tuple) and len(value) == kind.num_fields
        return tuple(_exact(part, field.type) for part, field in zip(value, kind, strict=True)) if fits else value
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_exact(key, kind.key_type), _exact(item, kind.item_type)) for key, item in pairs]
    if isinstance(value, np.ndarray) and value.dtype.kind not in "fO":
        return value
    if pa.types.is_nested(kind) and isinstance(value, (list, tuple, np.ndarray, set, frozenset)):
        return [_exact(item, kind.value_type, nan_is_null=True) for item in value]
    return value


def _exact_floats(floats: Any) -> None:
    if (np.abs(floats) >= EXACT).any():
        raise inexact()
    broken = floats[np.isfinite(floats) & (floats != np.trunc(floats))]
    if len(broken):
        raise ValueError(f"{float(broken[0])} is not an integer")


def _has_integers(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or any(_has_integers(kind.field(n).type) for n in range(kind.num_fields))


def _unfit(error: Exception, schema: pa.Schema) -> StateError:
    wanted = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return StateError("rows do not have the types of the state", detail=str(error), hint=f"its columns: {wanted}")


def _of(names: Iterable[str], schema: pa.Schema) -> pa.Schema:
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise StateError(f"the state has no column {', '.join(map(repr, unknown))}", hint=f"it has {', '.join(schema.names)}")
    return pa.schema([field for field in schema if field.name in set(names)])
