"""A checked expression as a function of rows: kernels looked up, literals made, casts in their places, all once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.plan.expressions.checking import Checked, ExpressionError, check
from penstock.plan.expressions.nodes import Call, Column, Literal, Node
from penstock.plan.expressions.rows import Argument, Rows
from penstock.plan.expressions.text import node_text
from penstock.plan.expressions.types import computed_type, is_floating, is_integer, type_text
from penstock.plan.schema import Schema


class Bound:
    """An expression, for columns of certain types."""

    __slots__ = ("_run", "node", "type")

    def __init__(self, node: Node, schema: Schema) -> None:
        checked = check(node, schema)
        assert checked.type is not None, "the types of a batch's columns are known"
        self.node = node
        self.type: pa.DataType = checked.type
        self._run = _bound(checked)

    def __call__(self, rows: Rows) -> pa.Array:
        """A value for each row. `pa.ArrowInvalid` if there is none for some."""
        try:
            return rows.array(self._run(rows))
        except pa.ArrowInvalid:
            if rows.careful:
                raise
        careful = Rows(rows.columns, rows.size, careful=True)
        return careful.array(self._run(careful))


def rows_of(columns: dict[str, pa.Array], size: int) -> Rows:
    """The rows of some columns, in the types that are computed with."""
    return Rows({name: computing(column) for name, column in columns.items()}, size)


def computing(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    wanted = computed_type(column.type)
    return column if column.type == wanted else column.cast(wanted)


def _bound(checked: Checked) -> Argument:
    node = checked.node
    if isinstance(node, Column):
        name = node.name
        return lambda rows: rows.columns[name]
    if isinstance(node, Literal):
        scalar = pa.scalar(node.value, node.type)
        return lambda rows: scalar
    return _call(node, checked)


def _call(node: Call, checked: Checked) -> Argument:
    function = checked.function
    assert function is not None
    arguments = []
    types: list[pa.DataType] = []
    for argument, cast in zip(checked.arguments, checked.casts, strict=True):
        assert argument.type is not None
        types.append(argument.type if cast is None else cast)
        run = _literal(argument, cast, node)
        arguments.append(_cast(_bound(argument), argument.type, cast) if run is None else run)
    kernel: Any = function.kernel(dict(node.options), tuple(types))
    if function.lazy:
        return lambda rows: kernel(rows, *arguments)
    if function.arrays:
        return lambda rows: kernel(*[rows.array(argument(rows)) for argument in arguments])
    if len(arguments) == 1:
        (only,) = arguments
        return lambda rows: kernel(only(rows))
    if len(arguments) == 2:
        left, right = arguments
        return lambda rows: kernel(left(rows), right(rows))
    return lambda rows: kernel(*[argument(rows) for argument in arguments])


def _cast(run: Argument, kind: pa.DataType, wanted: pa.DataType | None) -> Argument:
    if wanted is None or wanted == kind:
        return run
    safe = not (is_integer(kind) and is_floating(wanted))  # the nearest float does, as in Python
    return lambda rows: run(rows).cast(wanted, safe=safe)


def _literal(argument: Checked, cast: pa.DataType | None, call: Call) -> Argument | None:
    """A literal in the type that it is needed in."""
    node = argument.node
    if not isinstance(node, Literal) or cast is None or cast == node.type:
        return None
    try:
        scalar = pa.scalar(node.value, node.type).cast(cast, safe=not (is_integer(node.type) and is_floating(cast)))
    except pa.ArrowException as error:
        raise ExpressionError(f"{node_text(call):.300}: {node.value!r:.100} does not fit into {type_text(cast)}") from error
    return lambda rows: scalar
