"""Expressions over batches: columns as they are, Python records made into the columns that are needed.

Law: what is computed for a record depends on nothing but the record. Values of a column that are of several types (whole numbers
and floats, say) are computed type by type, since one Arrow column for all of them would change some.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.expressions.checking import ExpressionError, no_column
from penstock.plan.expressions.evaluation import Bound, computing, rows_of
from penstock.plan.expressions.nodes import Node, columns_of
from penstock.plan.schema import Schema
from penstock.records import Batch, Columns, field_getter, fields_of_record

Values: TypeAlias = Any
"""An Arrow array; or a list, of values that no array holds."""
Indices = npt.NDArray[np.int64]

_KEPT = 64
"""So many schemas at most are kept compiled: those of nested records may be many."""

_NONE = type(None)


class RowsFailedError(Exception):
    """Some rows of a batch cannot be computed. `text`: the expression; `error`: why not, of one of them."""

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(text, error)
        self.text = text
        self.error = error


class Evaluator:
    """Computes some expressions, each with a text that stands for it in messages."""

    def __init__(self, nodes: Sequence[tuple[str, Node]]) -> None:
        self._nodes = nodes
        self._text = ", ".join(text for text, _ in nodes)
        self._columns = tuple(dict.fromkeys(name for _, node in nodes for name in columns_of(node)))
        self._compiled: dict[tuple[pa.DataType, ...], list[Bound]] = {}

    def __call__(self, batch: Batch) -> list[Values]:
        """The values of each expression. `RowsFailedError` if some rows have none; `ExpressionError` if the columns are wrong."""
        if isinstance(batch, Columns):
            names = batch.data.schema.names
            for name in self._columns:
                if name not in names:
                    raise no_column(name, names)
            columns = {name: computing(batch.data.column(name)) for name in self._columns}
            return list(self._computed(self._bound(columns), columns, len(batch)))
        return self._of_records(batch.values())

    def _of_records(self, records: list[Any]) -> list[Values]:
        lists = {name: self.field(records, name) for name in self._columns}
        kinds = {name: kind_codes(values) for name, values in lists.items()}
        mixed = [codes for codes in kinds.values() if codes is not None]
        if not mixed:
            return list(self._of_lists(lists, len(records)))
        _, group = np.unique(np.stack(mixed), axis=1, return_inverse=True)
        groups = [np.flatnonzero(group.reshape(-1) == number) for number in range(int(group.max()) + 1)]
        parts = []
        for rows in groups:
            chosen = rows.tolist()
            part = {name: [values[row] for row in chosen] for name, values in lists.items()}
            parts.append(self._of_lists(part, len(chosen)))
        return [_merged(groups, each) for each in zip(*parts, strict=True)]

    def _of_lists(self, lists: dict[str, list[Any]], size: int) -> list[pa.Array]:
        columns = {name: computing(self._array(name, values)) for name, values in lists.items()}
        try:
            bound = self._bound(columns)
        except ExpressionError as error:
            raise RowsFailedError(self._text, error) from error
        return self._computed(bound, columns, size)

    def _bound(self, columns: dict[str, pa.Array]) -> list[Bound]:
        types = tuple(column.type for column in columns.values())
        found = self._compiled.get(types)
        if found is None:
            schema = Schema(self._columns, types)
            found = [Bound(node, schema) for _, node in self._nodes]
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            self._compiled[types] = found
        return found

    def _computed(self, bound: list[Bound], columns: dict[str, pa.Array], size: int) -> list[pa.Array]:
        rows = rows_of(columns, size)
        out = []
        for (text, _), one in zip(self._nodes, bound, strict=True):
            try:
                out.append(one(rows))
            except pa.ArrowException as error:
                raise RowsFailedError(text, ValueError(_reason(error))) from error
        return out

    def field(self, records: list[Any], name: str) -> list[Any]:
        """A field of each record. `RowsFailedError` if one has none."""
        found: list[Any] = []
        try:
            found.extend(map(field_getter(records[0], name), records))
        except (KeyError, AttributeError, IndexError, TypeError) as error:
            missing = no_column(name, fields_of_record(records[len(found)]))
            if "did you mean" not in missing.hint:
                missing.hint = (
                    "all records need the field; a file source with columns= or a schema gives None where it is missing"
                )
            raise RowsFailedError(self._text, missing) from error
        return found

    def _array(self, name: str, values: list[Any]) -> pa.Array:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            problem = ValueError(f"column {name!r}: {_reason(error)}")
            raise RowsFailedError(self._text, problem) from error


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _merged(groups: list[Indices], parts: Sequence[pa.Array]) -> Values:
    """The values of groups of rows, in the order of the rows."""
    if len({part.type for part in parts}) == 1:
        order = np.argsort(np.concatenate(groups), kind="stable")
        return pa.concat_arrays(list(parts)).take(pa.array(order))
    merged: list[Any] = [None] * sum(map(len, groups))
    for rows, part in zip(groups, parts, strict=True):
        for row, value in zip(rows.tolist(), part.to_pylist(), strict=True):
            merged[row] = value
    return merged


# --- records ---------------------------------------------------------------------------------------------------------------


def kind_codes(values: list[Any]) -> Indices | None:
    """A number for the type of each value; None if they are of one type. Null is of any type; a time with a zone is of another
    type than one without."""
    kinds = set(map(type, values)) - {_NONE}
    if len(kinds) > 1 or (kinds and issubclass(next(iter(kinds)), datetime) and len({v.tzinfo for v in values if v}) > 1):
        numbers: dict[Any, int] = {}
        codes = [0 if value is None else numbers.setdefault(_kind(value), len(numbers)) for value in values]
        return np.asarray(codes, dtype=np.int64) if len(numbers) > 1 else None
    return None


def _kind(value: Any) -> Any:
    return (datetime, value.tzinfo is None) if isinstance(value, datetime) else type(value)


_FAITHFUL = (int, float, str, bool, bytes, date)


def faithful_column(values: list[Any]) -> pa.Array | None:
    """The values as a column that gives back the same values; None if there is no such column."""
    kinds = set(map(type, values)) - {_NONE}
    if len(kinds) > 1:
        return None
    kind = next(iter(kinds), _NONE)
    if kind is datetime:
        if any(value is not None and value.tzinfo is not None for value in values):
            return None
    elif kind is not _NONE and kind not in _FAITHFUL:
        return None
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None
