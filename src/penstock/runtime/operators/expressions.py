"""Steps that compute with column expressions: `filter(col(...) > 1)`, `select(...)`, `with_columns(...)`.

Laws:
- Timestamps, ticks and kinds stay with their rows, and the order is kept.
- Which rows fail does not depend on how the input was cut into batches: a batch that fails is halved until the rows that fail are
  alone. What is computed for the others is what they give by themselves.
- A record that passes is as it was: columns stay columns, and Python values are not made into columns and back if that could
  change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

import pyarrow as pa

from penstock.changes import ANY_CHANGES, Changes
from penstock.errors import PlanError, UserCodeError
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.plan.expressions.checking import ExpressionError, check, no_column
from penstock.plan.expressions.expression import Expression, Then, When, lit
from penstock.plan.expressions.json_form import node_data
from penstock.plan.expressions.nodes import Column, Node, columns_of
from penstock.plan.expressions.text import node_text
from penstock.plan.expressions.types import is_null, type_text
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Columns, Records, as_dict, carried, to_list
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.evaluator import Evaluator, RowsFailedError, faithful_column
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of a result."""

    name: str
    node: Node

    @property
    def passes(self) -> str | None:
        """The column that it is, if it is one as it is."""
        return self.node.name if isinstance(self.node, Column) else None

    def __str__(self) -> str:
        text = node_text(self.node)
        return text if self.passes == self.name else f"{self.name} = {text}"


def outputs_of(columns: Iterable[str | Expression], computed: Mapping[str, Any], name: str | None) -> tuple[OutputColumn, ...]:
    """The columns of a result, as they were written."""
    if isinstance(name, Expression | When | Then):
        raise PlanError(
            "name= is the name of the step, and was given an expression",
            hint='a column that is to be called "name" is given as col(...).alias("name")',
        )
    outputs = []
    for column in columns:
        if isinstance(column, str):
            outputs.append(OutputColumn(column, Column(column)))
            continue
        if not isinstance(column, Expression):
            raise PlanError(
                f"{column!r:.100} is not a column", hint='give names and expressions, such as "user" or col("user").lower()'
            )
        if column.name is None:
            raise PlanError(f"the column {column!r:.200} has no name", hint='say name=expression, or expression.alias("name")')
        outputs.append(OutputColumn(column.name, column.node))
    for key, value in computed.items():
        if isinstance(value, str):
            raise PlanError(
                f"{key}={value!r:.100}: is this a column or a text?", hint=f"write col({value!r:.100}) or lit({value!r:.100})"
            )
        if isinstance(value, When | Then):
            raise PlanError(f"{key}=: a choice has no end", hint="end it with .otherwise(value)")
        outputs.append(OutputColumn(key, lit(value).node))
    if not outputs:
        raise PlanError("no columns were named", hint='for example select("user", total=col("price") * col("n"))')
    names = [output.name for output in outputs]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise PlanError(f"two columns are called {twice[0]!r}", hint='give one another name: .alias("another")')
    return tuple(outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Definition):
    """Only the rows for which a condition is true. `where`: file:line of the step in the program."""

    condition: Node
    where: str = ""
    names_columns: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "filter"

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def describe(self) -> dict[str, str]:
        """For explain."""
        return {"keeps": f"{node_text(self.condition)} ({self.where})"}

    def data(self) -> Any:
        """What is computed, for the plan's hash."""
        return node_data(self.condition)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        with placed(self.where, node_text(self.condition)):
            kind = check(self.condition, inputs[0]).type
            if kind is not None and not pa.types.is_boolean(kind) and not is_null(kind):
                raise _no_condition(self.condition, kind)
        return inputs[0]

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return None if wanted is None or self.errors == "dead_letter" else wanted.union(columns_of(self.condition))

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return FilterRows(step, services, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Definition):
    """Rows of computed columns; with `keeps_others` beside those that they had. `where`: file:line of the step in the program."""

    outputs: tuple[OutputColumn, ...]
    keeps_others: bool = False
    where: str = ""
    names_columns: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "with_columns" if self.keeps_others else "select"

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def describe(self) -> dict[str, str]:
        """For explain."""
        return {"columns": f"{', '.join(map(str, self.outputs))} ({self.where})"}

    def data(self) -> Any:
        """What is computed, for the plan's hash."""
        return [[output.name, node_data(output.node)] for output in self.outputs]

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        (given,) = inputs
        made = {}
        for output in self.outputs:
            with placed(self.where, str(output)):
                made[output.name] = self._type(output, given)
        if not self.keeps_others:
            return Schema.of(made.items())
        return None if given is None else Schema.of({**given.fields(), **made}.items())

    def _type(self, output: OutputColumn, given: Schema | None) -> pa.DataType | None:
        """Of a column that passes, the type that it has; of a computed one, that of its values."""
        kind = check(output.node, given).type
        return kind if given is None or output.passes is None else given.type_of(output.passes)

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        if self.errors == "dead_letter" or (self.keeps_others and wanted is None):
            return None
        used = frozenset(name for output in self.outputs for name in columns_of(output.node))
        if not self.keeps_others or wanted is None:
            return used
        return used | (wanted - {output.name for output in self.outputs})

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return ProjectRows(step, services, self)


class placed:  # noqa: N801 - reads as a statement
    """Says of an `ExpressionError` where in the program the expression is."""

    def __init__(self, where: str, text: str) -> None:
        self._where = where
        self._text = text

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ExpressionError):
            raise ExpressionError(error.what, detail=_detail(self._text, self._where, error.detail), hint=error.hint) from error


def _detail(text: str, where: str, more: str) -> str:
    lines = [f"expression: {text:.500}" if text else "", f"at: {where}" if where else "", more]
    return "\n".join(line for line in lines if line)


def _no_condition(node: Node, kind: pa.DataType) -> ExpressionError:
    return ExpressionError(
        f"filter needs a condition, and this is of type {type_text(kind)}", hint=f"compare it, such as {node_text(node):.100} > 0"
    )


class WrittenAt:
    """Stands for a function in what says which function failed."""

    def __init__(self, text: str, where: str) -> None:
        self.__qualname__ = f"{text} ({where})" if where else text


class ExpressionOperator(Operator):
    """Computes for a batch at a time; finds the rows for which it cannot."""

    def __init__(self, step: StepId, services: Services, definition: Filter | Project) -> None:
        super().__init__(step, services)
        self.errors = definition.errors
        self._where = definition.where

    def computed(self, batch: Batch) -> Batch:
        """What becomes of a batch; `RowsFailedError` if some of its rows cannot be computed."""
        raise NotImplementedError

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        if len(batch):
            self._pass_on(unkeyed(batch))

    def _pass_on(self, batch: Batch) -> None:
        try:
            out = self.computed(batch)
        except RowsFailedError as failed:
            if len(batch) == 1:
                self._reject(failed, batch)
            else:
                middle = len(batch) // 2
                self._pass_on(batch.slice(0, middle))
                self._pass_on(batch.slice(middle, len(batch)))
            return
        except ExpressionError as error:  # of columns: it is not a row that is wrong
            raise PlanError(
                f"step {self.step!r}: {error.what}", detail=_detail("", self._where, error.detail), hint=error.hint
            ) from error
        self.outputs.emit(out)

    def _reject(self, failed: RowsFailedError, batch: Batch) -> None:
        """A row that cannot be computed: fail, skip, or send it to the dead letters."""
        record, error = batch.values()[0], failed.error
        if self.errors != "fail":
            time = NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[0])
            self.set_aside(error, WrittenAt(failed.text, self._where), record, time)
            return
        shown = f"record: {record!r:.500}"
        if isinstance(error, ExpressionError):
            more = f"{error.detail}\n{shown}".lstrip("\n")
            detail = _detail(failed.text, self._where, more)
            raise PlanError(f"step {self.step!r}: {error.what}", detail=detail, hint=error.hint) from error
        raise UserCodeError(
            f"step {self.step!r}: {failed.text:.300} cannot be computed: {error}",
            detail=_detail("", self._where, shown),
            hint='mend the expression or the input; errors="skip" or errors="dead_letter" on the step let the others pass',
        ) from error


class FilterRows(ExpressionOperator):
    def __init__(self, step: StepId, services: Services, definition: Filter) -> None:
        super().__init__(step, services, definition)
        self._condition = definition.condition
        self._evaluate = Evaluator([(node_text(definition.condition), definition.condition)])

    def computed(self, batch: Batch) -> Batch:
        (found,) = self._evaluate(batch)
        assert isinstance(found, pa.Array)
        if not pa.types.is_boolean(found.type):
            if not is_null(found.type):
                raise _no_condition(self._condition, found.type)
            found = found.cast(pa.bool_())
        if found.null_count:
            found = found.fill_null(False)
        if found.true_count == len(batch):
            return batch
        mask = found.to_numpy(zero_copy_only=False)
        if isinstance(batch, Columns):
            return Columns(batch.data.filter(found), batch.row, *carried(batch, mask))
        return Records(list(compress(batch.values(), mask.tolist())), *carried(batch, mask))


class ProjectRows(ExpressionOperator):
    def __init__(self, step: StepId, services: Services, definition: Project) -> None:
        super().__init__(step, services, definition)
        self._definition = definition
        self._computed = [output for output in definition.outputs if output.passes is None]
        self._evaluate = Evaluator([(str(output), output.node) for output in self._computed])
        self._look = Evaluator([(str(output), output.node) for output in definition.outputs if output.passes is not None])

    def computed(self, batch: Batch) -> Batch:
        values = dict(zip((output.name for output in self._computed), self._evaluate(batch), strict=True))
        if isinstance(batch, Columns):
            return Columns(self._table(batch.data, values), DICT_ROW, *carried(batch))
        return self._records(batch, values)

    def _table(self, data: pa.RecordBatch, computed: dict[str, Any]) -> pa.RecordBatch:
        names = data.schema.names
        columns = {name: data.column(i) for i, name in enumerate(names)} if self._definition.keeps_others else {}
        for output in self._definition.outputs:
            passes = output.passes
            if passes is not None and passes not in names:
                raise no_column(passes, names)
            columns[output.name] = computed[output.name] if passes is None else data.column(passes)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _records(self, batch: Records, computed: dict[str, Any]) -> Batch:
        records = batch.values()
        columns: dict[str, Any] = {}
        for output in self._definition.outputs:
            passes = output.passes
            columns[output.name] = computed[output.name] if passes is None else self._look.field(records, passes)
        if self._definition.keeps_others:
            made = zip(*(_list(column) for column in columns.values()), strict=True)
            names = tuple(columns)
            return Records(
                [as_dict(record) | dict(zip(names, row, strict=True)) for record, row in zip(records, made, strict=True)],
                *carried(batch),
            )
        arrays = [faithful_column(column) if isinstance(column, list) else column for column in columns.values()]
        if all(array is not None and not is_null(array.type) for array in arrays):
            return Columns(pa.RecordBatch.from_arrays(arrays, names=list(columns)), DICT_ROW, *carried(batch))
        names = tuple(columns)
        rows = zip(*(_list(column) for column in columns.values()), strict=True)
        return Records([dict(zip(names, row, strict=True)) for row in rows], *carried(batch))


def _list(column: pa.Array | list[Any]) -> list[Any]:
    return column if isinstance(column, list) else to_list(column)
