"""Which row each row of a batch came from, whatever a user's function does with them.

Law: a row that comes back with its mark came from the row that the mark names; a mark cannot be made by accident.

- Arrow: a last column of 8 bytes for each row, the number of the batch and the number of the row. Filtering, sorting, taking and
  joining carry it along; arithmetic on it is refused by Arrow.
- pandas: the index, an ordered categorical with the labels 0 to n - 1 and a name of its own. It behaves like the usual index
  (selection by label, assignment of a Series), but what pandas numbers anew, or computes from it, is not of this type and name.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROW = "_penstock_row"
"""The column of marks; also how the name of the index begins."""

Rows = npt.NDArray[np.int64]

_MARK = pa.binary(8)
_serials = count(1)
"""Batches of this process: rows that a function kept from an earlier batch are known by their number."""


class UntracedError(ValueError):
    """It cannot be said which rows these rows came from; the message says what is missing. The same batch gives the same."""


class RowOrigins:
    """The marks of one batch of `size` rows."""

    __slots__ = ("_high", "_name", "_size")

    def __init__(self, size: int) -> None:
        serial = next(_serials)
        self._size = size
        self._high = (serial & 0x7FFFFFFF) << 32
        self._name = f"{ROW}_{serial}"

    # --- on the way in -----------------------------------------------------------------------------------------------------

    def mark(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a column more."""
        marks = np.arange(self._high, self._high + self._size, dtype="<i8")
        return data.append_column(ROW, pa.Array.from_buffers(_MARK, self._size, [None, pa.py_buffer(marks)]))

    def mark_frame(self, frame: Any) -> Any:
        """The DataFrame with an index that marks its rows."""
        import pandas as pd

        kind = pd.CategoricalDtype(pd.RangeIndex(self._size), ordered=True)
        rows = pd.Categorical.from_codes(np.arange(self._size, dtype=np.int32), dtype=kind)
        frame.index = pd.CategoricalIndex(rows, name=self._name)
        return frame

    # --- on the way back ---------------------------------------------------------------------------------------------------

    def of_table(self, table: pa.RecordBatch | pa.Table, given: pa.RecordBatch) -> tuple[Rows, Any]:
        """The row that each row came from, and the table without marks."""
        if self._name in table.schema.names:  # a table that the function made of a DataFrame, with its index
            return self._known(_labels(table.column(self._name))), table.drop_columns([self._name])
        if ROW not in table.schema.names:
            if table.num_rows == self._size and _same_memory(table, given):
                return np.arange(self._size), table
            raise UntracedError(f"the column {ROW!r} is missing from the result")
        return self._read(table.column(ROW)), table.drop_columns([ROW])

    def of_frame(self, frame: Any) -> tuple[Rows, Any]:
        """As `of_table`, for a DataFrame: the marks are its index, a level of it, or a column that `reset_index` made."""
        names = list(frame.index.names)
        if self._name in names:
            labels: Any = frame.index.get_level_values(self._name) if len(names) > 1 else frame.index
        elif self._name in frame.columns:
            labels = frame[self._name].array
            frame = frame.drop(columns=[self._name])
        elif ROW in frame.columns:  # a batch of Arrow columns that the function turned into a DataFrame
            rows = self._read(pa.array(frame[ROW]))
            return rows, frame.drop(columns=[ROW])
        else:
            raise UntracedError("the index of the result is not the one that the function was given, nor a part of it")
        categories = getattr(labels, "categories", None)
        if categories is None or len(categories) != self._size:
            raise UntracedError("the index of the result has labels that the function was not given")
        return self._known(np.asarray(labels.codes, dtype=np.int64)), frame

    def of_records(self, records: list[Any]) -> tuple[Rows, list[Any]]:
        """As `of_table`, for a list: dicts that were made from rows have their marks."""
        if not all(isinstance(record, dict) and ROW in record for record in records):
            raise UntracedError("the result is a list of records that do not say which rows they came from")
        rows = self._read(pa.array([record[ROW] for record in records], type=pa.binary()))
        return rows, [{name: value for name, value in record.items() if name != ROW} for record in records]

    def _read(self, marks: pa.Array | pa.ChunkedArray) -> Rows:
        if isinstance(marks, pa.ChunkedArray):
            marks = marks.combine_chunks()
        if not len(marks):
            return np.zeros(0, dtype=np.int64)
        if marks.null_count:
            raise UntracedError(f"the column {ROW!r} is null in {marks.null_count} rows of the result")
        try:
            marks = marks if marks.type == _MARK else marks.cast(_MARK)
        except pa.ArrowException as error:
            raise UntracedError(f"the column {ROW!r} of the result has been changed: it is {marks.type}") from error
        found = np.frombuffer(marks.buffers()[1], dtype="<i8")[marks.offset : marks.offset + len(marks)]
        return self._known(found - self._high)

    def _known(self, rows: Rows) -> Rows:
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= self._size):
            raise UntracedError("the result has rows that came from none of this batch")
        return rows


def _labels(column: pa.Array | pa.ChunkedArray) -> Rows:
    """The labels of an index that has become a column."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type) or column.null_count:
        raise UntracedError("the index of the result has labels that the function was not given")
    labels: Rows = column.dictionary_decode().cast(pa.int64()).to_numpy()
    return labels


def _same_memory(table: pa.RecordBatch | pa.Table, given: pa.RecordBatch) -> bool:
    """Whether a column of the result is a column of the input, untouched: then the rows are as they were."""
    there = {place for column in given.columns if (place := _place(column)) is not None}
    return any(_place(column) in there for column in table.columns)


def _place(column: pa.Array | pa.ChunkedArray) -> tuple[Any, ...] | None:
    """Where a column is in memory."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            return None
        column = column.chunk(0)
    buffers = tuple((buffer.address, buffer.size) for buffer in column.buffers() if buffer is not None and buffer.size)
    return (column.type, column.offset, len(column), buffers) if buffers else None
