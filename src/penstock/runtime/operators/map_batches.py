"""map_batches: a user's function from whole batches to whole batches.

Law: a row that the function returns has the timestamp of the row it came from, or the one in the column that the user named; in a
stream that updates it has that row's kind. Where it is not known the step fails: no row gets a timestamp or a kind by guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.changes import ANY_CHANGES, Changes
from penstock.errors import UserCodeError
from penstock.functions import Call, call_of, function_location, life_cycle
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.plan.row_schemas import row_schema
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns, Records, RowType, as_batch, carried
from penstock.runtime.fields import to_arrow
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.observer import Invocation
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.returned import is_frame, rows_of
from penstock.runtime.operators.row_origins import ROW, RowOrigins, UntracedError
from penstock.runtime.services import Services
from penstock.timing.timestamps import Unit, select_timestamps, unit_warning


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBatches(Definition):
    """A user's function from an Arrow batch (or pandas frame) to another, or to a list of records.

    `timestamp`: the column of the result that has the times, in `unit`. `aligned`: a row comes back for each row, in order.
    """

    body: Any
    as_pandas: bool = False
    row: RowType = DICT_ROW
    columns: tuple[str, ...] | None = None
    timestamp: str | None = None
    unit: Unit = "ms"
    aligned: bool = False

    @property
    def kind(self) -> str:
        return "map_batches"

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        return call_of(self.body, "map_batch", "batch", several=True), *life_cycle(self.body)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return None if self.row.cls is None else row_schema(self.row.cls)

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return None if self.columns is None else frozenset(self.columns)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return MapBatchesOperator(step, services, services.opened(step, self.body), self)


class MapBatchesOperator(Operator):
    observed = frozenset(("batch",))

    def __init__(self, step: StepId, services: Services, function: Any, definition: MapBatches, inputs: int = 1) -> None:
        super().__init__(step, services, inputs)
        self._function = function
        self._call = method_of(function, "map_batch")
        self._definition = definition
        self._first = definition.timestamp is not None

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        batch = unkeyed(batch)
        definition = self._definition
        data = self._chosen(batch.data if isinstance(batch, Columns) else to_arrow(batch.values(), self.step))
        if batch.kinds is not None or (definition.timestamp is None and batch.timestamps is not None):
            self._carry(data, batch)
        elif definition.timestamp is not None:
            for out in self._batches(self._applied(data, None)):
                self.outputs.emit(self._timed(out, definition.timestamp))
        else:
            for out in self._batches(self._applied(data, None)):
                self.outputs.emit(out.with_timestamps(None))

    def _carry(self, data: pa.RecordBatch, batch: Batch) -> None:
        """Timestamps, ticks and kinds go with their rows."""
        size, rows = data.num_rows, None
        origins = None if self._definition.aligned else RowOrigins(size)
        result = self._applied(data, origins)
        if result is None or not len(result):
            return
        if origins is not None:
            try:
                rows, result = _origins_of(origins, result, data)
            except UntracedError as error:
                raise self._untraced(str(error), batch, len(result)) from error
        elif len(result) != size:
            raise self._untraced("aligned=True promises a row for each row", batch, len(result))
        beside = Records([], *carried(batch, rows))
        named, start = self._definition.timestamp, 0
        for out in self._batches(result):
            times, ticks, kinds = carried(beside, slice(start, start + len(out)))
            start += len(out)
            out = out.with_kinds(kinds)
            self.outputs.emit(out.with_timestamps(times).with_ticks(ticks) if named is None else self._timed(out, named))

    def _applied(self, data: pa.RecordBatch, origins: RowOrigins | None) -> Any:
        """What the function returns: a DataFrame, a table, a batch, a list, or None."""
        given: Any = data
        if self._definition.as_pandas:
            given = data.to_pandas() if origins is None else origins.mark_frame(data.to_pandas())
        elif origins is not None:
            if ROW in data.schema.names:
                raise self._refused(f"the input has a column {ROW!r}", "the name is taken", "rename the column before this step")
            given = origins.mark(data)
        try:
            result = self._called(given)
        except Exception as error:
            failed = self.user_error(error, self._function, f"a batch of {data.num_rows} rows: {data.schema}")
            failed.hint = "mend the function or the input"
            if origins is not None:
                without = "timestamp= or aligned=True" if self._definition.timestamp is None else "aligned=True"
                failed.hint += f"; {_carrier(self._definition.as_pandas)}; with {without} it is not there"
            raise failed from error
        return result if result is None or is_frame(result) else self._rows(result)

    def _called(self, given: Any) -> Any:
        if self.observer is None:
            return self._call(given)

        def proceed() -> Any:
            result = self._call(given)
            return list(result) if isinstance(result, Iterator) else result

        return self.observer.on_call(Invocation("batch", given, NO_TIMESTAMP, self.watermark), proceed)

    def _rows(self, result: Any) -> pa.RecordBatch | pa.Table | list[Any]:
        return rows_of(result, self.step, self._function, "map_batches")

    def _batches(self, result: Any) -> Iterator[Batch]:
        if result is None:
            return
        rows = self._rows(result) if is_frame(result) else result
        needed = self._definition.row.fields()
        if needed is not None and not isinstance(rows, list):
            missing = [name for name in needed if name not in rows.schema.names]
            if missing:
                raise self._refused(
                    f"the result has no column {missing[0]!r}",
                    f"its columns: {', '.join(rows.schema.names)}; schema= needs {', '.join(needed)}",
                    "schema= is the type of the rows that the function returns: return a column for each of its fields",
                )
        yield from as_batch(rows, self._definition.row)

    def _timed(self, out: Batch, timestamp: str) -> Batch:
        unit = self._definition.unit
        try:
            out = out.with_timestamps(select_timestamps(out, timestamp, unit))
        except Exception as error:
            raise self._refused(
                f"{type(error).__name__}: {error} (assigning timestamps)",
                "\n".join((f"timestamp: {timestamp!r}, unit {unit!r}", *getattr(error, "__notes__", ()))),
                "timestamp= is a column of the result that holds whole numbers in unit=, datetimes or dates",
            ) from error
        if self._first and len(out):
            self._first = False
            self.services.warn(self.step, unit_warning(self.step, out, timestamp, unit))
        return out

    def _chosen(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the function asked for, no matter what the source reads."""
        columns = self._definition.columns
        if columns is None or data.schema.names == list(columns):
            return data
        missing = [name for name in columns if name not in data.schema.names]
        if missing:
            raise self._refused(
                f"the input has no column {missing[0]!r}",
                f"its columns: {', '.join(data.schema.names)}",
                "columns= names columns of the input",
            )
        return data.select(list(columns))

    def _untraced(self, why: str, given: Batch, returned: int) -> UserCodeError:
        what = "timestamps" if given.kinds is None else "kinds of change"
        named = "or name the column of the result that holds the time with timestamp=; " if given.kinds is None else ""
        return self._refused(
            f"the {what} of the rows that the function returned are not known: {why}",
            f"rows given: {len(given)}; returned: {returned}",
            f"{_carrier(self._definition.as_pandas)}; {named}or say aligned=True, if the function returns a row for each row in "
            "the same order",
        )

    def _refused(self, what: str, detail: str, hint: str) -> UserCodeError:
        where = f"function: {function_location(self._function)}"
        return UserCodeError(f"step {self.step!r}: {what}", detail=f"{where}\n{detail}", hint=hint)


def _carrier(as_pandas: bool) -> str:
    if as_pandas:
        return (
            "the index says which row a row came from: keep it (filters, sort_values, assign, explode and concat do; merge, "
            "groupby, reset_index(drop=True) and a new DataFrame without index=frame.index do not)"
        )
    return (
        f"the last column, {ROW!r}, says which row a row came from: keep it (filter, take, sort_by, append_column and set_column "
        "do; select, group_by and new batches do not)"
    )


def _origins_of(origins: RowOrigins, result: Any, given: pa.RecordBatch) -> tuple[Any, Any]:
    if is_frame(result):
        return origins.of_frame(result)
    if isinstance(result, list):
        return origins.of_records(result)
    return origins.of_table(result, given)
