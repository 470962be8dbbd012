"""The step that enriches: a stateless one, with a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.changes import ANY_CHANGES, Changes
from penstock.errors import PlanError, StateError
from penstock.functions import Call, call_of
from penstock.ids import StepId
from penstock.joins.columns import Named, payload_of
from penstock.joins.static.index import KeyColumn, TableIndex, key_column
from penstock.joins.static.tables import GivenTable
from penstock.plan.definition import Definition
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns, Records, as_dict, carried, to_list
from penstock.runtime.fields import fields_of
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.storage.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrich(Definition):
    """Records with the columns of the table's rows that have their key.

    `on`: (field of the record, column of the table); `columns`: of the table, with their new names (None: all but the key);
    `keeps`: records without a row too; `function_`: of a record and a row (None), in place of columns."""

    table: GivenTable
    on: Named
    columns: Named | None = None
    keeps: bool = True
    function_: Callable[[Any, dict[str, Any] | None], Any] | None = None
    is_join: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "enrich"

    def function(self) -> Any:
        return self.function_

    def calls(self) -> tuple[Call, ...]:
        return () if self.function_ is None else (call_of(self.function_, "join", "record", "row"),)

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        table, given = self.table.schema(), inputs[0]
        if table is not None:
            for name in (*(column for _, column in self.on), *(column for column, _ in self.columns or ())):
                _known(name, table, "the table")
        if given is not None:
            for name, _ in self.on:
                _known(name, given, "a record")
        if given is None or table is None or self.function_ is not None:
            return None
        added = self._added(table.names)
        self._check_names(given.names, added)
        return Schema.of([*given.fields().items(), *((name, table.type_of(column)) for column, name in added)])

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        if wanted is None or self.function_ is not None or self.columns is None:
            return None
        return (wanted - {name for _, name in self.columns}) | {name for name, _ in self.on}

    def _added(self, names: Any) -> Named:
        keys = {column for _, column in self.on}
        return tuple((name, name) for name in names if name not in keys) if self.columns is None else self.columns

    def _check_names(self, names: Any, added: Named) -> None:
        both = [name for _, name in added if name in names]
        if both:
            raise PlanError(
                f"enrich: a record and the table both have a column {both[0]!r}",
                hint=f'choose columns of the table, and another name: columns={{"{both[0]}": "other_{both[0]}"}}',
            )

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return EnrichOperator(step, services, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        on = ", ".join(field if field == column else f"{field} = {column}" for field, column in self.on)
        refresh = self.table.refresh_ms
        when = "when asked to" if refresh is None else f"every {refresh} ms, between epochs"
        path = "over columns" if self.function_ is None else "record by record, not over columns: a function sees the records"
        return {
            "table": self.table.describe(),
            "join": f"{'left' if self.keeps else 'inner'}, on {on}",
            "refreshed": when,
            "path": path,
        }


def _known(name: str, schema: Schema, what: str) -> None:
    if name not in schema:
        raise PlanError(f"enrich: {what} has no column {name!r}", detail=f"columns: {', '.join(schema.names)}")


class EnrichOperator(Operator):
    def __init__(self, step: StepId, services: Services, definition: Enrich) -> None:
        super().__init__(step, services)
        self._definition = definition
        self.errors = definition.errors
        services.opened(step, definition.function_)
        self._index: TableIndex | None = None

    def _table(self) -> TableIndex:
        """Read when the first record comes."""
        if self._index is None:
            version = self.services.order.tables.get(self.step)
            if version is None:
                raise StateError(
                    f"step {self.step!r} has no version of its table", hint="the epoch was written by a program without the step"
                )
            keys = [column for _, column in self._definition.on]
            key = (version.path, version.digest, tuple(keys))
            self._index = _INDEXES.get(key)
            if self._index is None:
                table = read_table(self.services.job.storage, version.path, version.digest, version.rows)
                needed = (*keys, *(column for column, _ in self._definition.columns or ()))
                lacking = [name for name in needed if name not in table.column_names]
                if lacking:
                    raise PlanError(
                        f"step {self.step!r}: the table has no column {lacking[0]!r}",
                        detail=f"columns: {', '.join(table.column_names)}",
                    )
                while len(_INDEXES) >= _FEW:
                    del _INDEXES[next(iter(_INDEXES))]
                self._index = _INDEXES[key] = TableIndex(table, keys)
        return self._index

    def on_batch(self, batch: Payload) -> None:
        batch = unkeyed(batch)
        self.records_in += len(batch)
        if not len(batch):
            return
        index, definition = self._table(), self._definition
        rows, found = index.matches(self._keys(batch), outer=definition.keeps)
        beside = carried(batch, rows)
        if definition.function_ is not None:
            self._with_function(batch, rows, found, index)
            return
        added = definition._added(index.table.schema.names)
        missing = found < 0
        at = pa.array(found, mask=missing) if missing.any() else pa.array(found)
        columns = [index.table.column(column).take(at) for column, _ in added]
        if not isinstance(batch, Columns):
            self.outputs.emit(Records(self._with_columns(batch, rows, added, columns), *beside))
            return
        data = payload_of(batch, None, self.step)
        if rows is not None:
            data = data.take(pa.array(rows))
        definition._check_names(data.schema.names, added)
        names = [*data.schema.names, *(name for _, name in added)]
        whole = pa.RecordBatch.from_arrays([*data.columns, *columns], names=names)
        self.outputs.emit(Columns(whole, DICT_ROW, *beside))

    def _with_columns(self, batch: Batch, rows: Any, added: Named, columns: list[pa.Array]) -> list[dict[str, Any]]:
        """Records stay as they are: their values need not make columns."""
        records = [as_dict(value) for value in batch.values()]
        self._definition._check_names(set().union(*records), added)
        if rows is not None:
            records = [records[row] for row in rows.tolist()]
        if not added:
            return [dict(record) for record in records]
        names = [name for _, name in added]
        return [
            {**record, **dict(zip(names, row, strict=True))}
            for record, row in zip(records, zip(*map(to_list, columns), strict=True), strict=True)
        ]

    def _keys(self, batch: Batch) -> list[KeyColumn]:
        columns: list[KeyColumn] = []
        for field, _ in self._definition.on:
            if isinstance(batch, Columns):
                if field not in batch.data.schema.names:
                    raise PlanError(
                        f"step {self.step!r}: there is no column {field!r}",
                        detail=f"columns: {', '.join(batch.data.schema.names)}",
                    )
                columns.append(batch.data.column(field))
            else:
                columns.append(key_column(fields_of(batch.values(), field, self.step)))
        return columns

    def _with_function(self, batch: Batch, rows: Any, found: Any, index: TableIndex) -> None:
        function = self._definition.function_
        assert function is not None
        numbers = np.arange(len(batch)) if rows is None else rows
        values = batch.values()
        table = {row: index.table.slice(row, 1).to_pylist()[0] for row in np.unique(found[found >= 0]).tolist()}
        out, kept = [], []
        for place, (number, row) in enumerate(zip(numbers.tolist(), found.tolist(), strict=True)):
            try:
                out.append(function(values[number], table.get(row)))
                kept.append(place)
            except Exception as error:
                if self.errors == "fail":
                    raise self.user_error(error, function, values[number]) from error
                time = NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[number])
                self.set_aside(error, function, values[number], time)
        self.outputs.emit(Records(out, *carried(batch, numbers[np.asarray(kept, dtype=np.int64)])))


_FEW = 8
_INDEXES: dict[tuple[str, str, tuple[str, ...]], TableIndex] = {}
"""Tables by key that were made in this process."""
