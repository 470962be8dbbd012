"""Arrow tables as pandas DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def as_pandas(table: pa.Table, *, flatten: bool = False) -> pd.DataFrame:
    """Columns of integers that have nulls are `Int64`, not floats. `flatten`: see `flattened`."""
    if flatten:
        table = flattened(table)
    frame: pd.DataFrame = table.to_pandas(integer_object_nulls=True)
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    return frame.astype({name: "Int64" for name in integers if table.column(name).null_count})


def flattened(table: pa.Table) -> pa.Table:
    """A column for each field of a nested value, down to the last.

    >>> flattened(pa.table({"value": [{"amount": 3, "by": {"name": "ann"}}]})).column_names
    ['value.amount', 'value.by.name']
    """
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table
