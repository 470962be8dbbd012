"""What can be made of records that are joined: columns, one result of each pair, or any number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from penstock.api.joining import Columns, TwoStreams
from penstock.api.stream import DataStream
from penstock.errors import PlanError
from penstock.joins.columns import JoinedColumns
from penstock.joins.functions import JoinFunction, ProcessJoinFunction
from penstock.joins.interval.record import JoinBody
from penstock.joins.keyed_steps import JoinProcess
from penstock.joins.records import SelectColumns
from penstock.plan.definition import ErrorPolicy
from penstock.plan.schema import Schema

L = TypeVar("L")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - the output

Types = tuple[Any, Any]
"""Of the records of both sides, as state keeps them."""


class JoinEnds(Generic[L, R]):
    """What can be made of records that are joined. `types`: of the records of both sides, for the state."""

    _streams: TwoStreams

    def select(
        self,
        left: Columns | None = None,
        right: Columns | None = None,
        *,
        types: Types = (None, None),
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[dict[str, Any]]:
        """Columns of both sides: lists of names, or dicts from names to new names; without any, all columns of both."""
        columns = self._streams.columns(left, right)
        return self._made(JoinBody(SelectColumns(columns)), columns, types, name, "fail", previous_names)

    def apply(
        self,
        function: Callable[[L, R], O] | JoinFunction[L, R, O],
        *,
        types: Types = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """One result of each pair, by a function of the left and the right record."""
        return self._made(JoinBody(function), None, types, name, errors, previous_names)

    def process(
        self,
        function: ProcessJoinFunction[L, R, O],
        *,
        types: Types = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """Any number of results of each pair, by a function that also sees their times."""
        if not callable(getattr(function, "process", None)):
            raise PlanError(
                f"{function!r} is not a ProcessJoinFunction",
                hint="give an instance of a class with process(self, left, right, ctx); or a plain function to apply(...)",
            )
        return self._made(JoinBody(function), None, types, name, errors, previous_names)

    def _made(
        self,
        body: JoinBody,
        columns: JoinedColumns | None,
        types: Types,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        raise NotImplementedError

    def _process(
        self,
        body: Any,
        columns: JoinedColumns | None,
        label: str,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        exchange = self._streams.left._exchange
        definition = JoinProcess(
            body=body,
            key_type=exchange.key_type,
            key_fields=exchange.key_fields,
            label=label.replace("_", " "),
            errors=errors,
            schema_of=None if columns is None else SchemaOf(columns),
            why="a function sees the records" if columns is None else "rows are kept one by one",
        )
        return self._streams.then(definition, name, label, previous_names)


class SchemaOf:
    """What is known of the results of columns."""

    def __init__(self, columns: JoinedColumns) -> None:
        self._columns = columns

    def __call__(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self._columns.schema((inputs[0], inputs[1]))
