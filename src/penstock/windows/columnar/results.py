"""What windows over columns emit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.records import DICT_ROW, Batch, Columns, Records
from penstock.runtime.operators.operator import Operator
from penstock.windows.columnar.measures import Measure, Vectors
from penstock.windows.columnar.partial import cannot_be_computed
from penstock.windows.columnar.vectors import Rows, column_of, values_of
from penstock.windows.declared import WINDOW_COLUMNS, Declared


def results(
    step: str,
    declared: Declared,
    measures: Sequence[Measure],
    keys: list[Any],
    starts: Rows,
    ends: Rows,
    vectors: Sequence[Vectors],
) -> Batch:
    """A row for each (key, window), stamped with the window's last moment: as columns, unless a column's types differ."""
    names = [*declared.key_names, *WINDOW_COLUMNS, *(one.name for one in declared.aggregates)]
    key_columns = _key_columns(keys, len(declared.key_names))
    found = []
    for aggregate, measure, held in zip(declared.aggregates, measures, vectors, strict=True):
        try:
            found.append(measure.result(held))
        except (TypeError, ArithmeticError) as error:
            raise cannot_be_computed(aggregate, step, error) from error
    times = ends - 1
    try:
        arrays = [_array_of_keys(column) for column in key_columns]
        arrays += [pa.array(starts), pa.array(ends), *(column_of(vector, missing) for vector, missing in found)]
        return Columns(pa.RecordBatch.from_arrays(arrays, names=names), DICT_ROW, times)
    except (pa.ArrowException, TypeError, OverflowError):
        columns = [*key_columns, starts.tolist(), ends.tolist(), *(values_of(vector, missing) for vector, missing in found)]
        return Records([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], times)


def emit_late(operator: Operator, tag: str | None, records: Batch) -> None:
    """Late records go to their side output, and are counted."""
    counters = operator.services.contexts[operator.step]
    counters.count("late", len(records))
    if tag is None:
        counters.count("late_dropped", len(records))
    else:
        operator.outputs.emit_side(tag, records)


def _key_columns(keys: list[Any], names: int) -> list[list[Any]]:
    return [keys] if names == 1 else [list(part) for part in zip(*keys, strict=True)] if names else []


def _array_of_keys(column: list[Any]) -> pa.Array:
    """1 and 1.0 are two keys: Arrow would make them one."""
    if len(set(map(type, column)) - {type(None)}) > 1:
        raise TypeError("keys of different types")
    return pa.array(column)
