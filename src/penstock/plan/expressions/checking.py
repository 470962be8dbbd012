"""Types: what an expression gives for a schema, or why it gives nothing.

Where a column's type is not known (`None`), what depends on it is not known either: then only what is wrong for all types is
found, and the rest when the first batch comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import PlanError, did_you_mean
from penstock.plan.expressions import functions  # noqa: F401 - registers them
from penstock.plan.expressions.nodes import Column, Literal, Node
from penstock.plan.expressions.registry import Function, TypeProblemError, function_of
from penstock.plan.expressions.text import node_text
from penstock.plan.expressions.types import computed_type
from penstock.plan.schema import Schema


class ExpressionError(PlanError):
    """An expression cannot be computed from these columns."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A node with its type. `casts`: what the arguments become before the function is called."""

    node: Node
    type: pa.DataType | None
    arguments: tuple[Checked, ...] = ()
    casts: tuple[pa.DataType | None, ...] = ()
    function: Function | None = None


def check(node: Node, schema: Schema | None) -> Checked:
    """The expression with its types; `ExpressionError` if it is wrong. Without a schema any column is there."""
    if isinstance(node, Column):
        return Checked(node, _column_type(node.name, schema))
    if isinstance(node, Literal):
        return Checked(node, node.type)
    options = dict(node.options)
    function = function_of(node.function, len(node.arguments), options)
    for number in function.constants:
        if not isinstance(node.arguments[number], Literal):
            raise ExpressionError(f"{node_text(node)}: argument {number + 1} is a constant, not a column")
    arguments = tuple(check(argument, schema) for argument in node.arguments)
    try:
        typing = function.rule([argument.type for argument in arguments], options)
    except TypeProblemError as problem:
        raise ExpressionError(
            f"{node_text(node):.300}: {problem}", hint="compare and compute like with like: .cast(...)"
        ) from problem
    return Checked(node, typing.result, arguments, typing.casts, function)


def _column_type(name: str, schema: Schema | None) -> pa.DataType | None:
    if schema is None:
        return None
    if name not in schema:
        raise no_column(name, schema.names)
    kind = schema.type_of(name)
    return None if kind is None else computed_type(kind)


def no_column(name: str, there: tuple[str, ...] | list[str]) -> ExpressionError:
    return ExpressionError(
        f"there is no column {name!r}",
        detail=f"columns: {', '.join(map(str, there)) or 'none'}",
        hint=did_you_mean(name, map(str, there)) or "name one of the columns",
    )
