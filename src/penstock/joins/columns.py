"""Which columns a join's results have, and how they are put together.

Law: rows without a partner have nulls in the columns of the other side. A key column that both sides have under one name is one
column, and has the key in all rows, unless columns were named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PlanError, UserCodeError
from penstock.joins.spec import LEFT, RIGHT, Side
from penstock.plan.schema import Schema
from penstock.records import Batch, Columns, as_dict

Named = tuple[tuple[str, str], ...]
"""(column, name in the result)."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the results: of a side; `otherwise`: what it is in rows without a record of that side."""

    side: Side
    column: str
    name: str
    otherwise: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedColumns:
    """What `select(...)` was given, for both sides; None: all columns. `keys`: the key columns of each side, where the key is
    made of columns. `known`: what the plan knows of each side."""

    named: tuple[Named | None, Named | None] = (None, None)
    keys: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    known: tuple[Schema | None, Schema | None] = (None, None)

    def __post_init__(self) -> None:
        known = self.known
        for side in (LEFT, RIGHT):
            for column, _ in self.named[side] or ():
                schema = known[side]
                if schema is not None and column not in schema:
                    raise PlanError(
                        f"select: the {('left', 'right')[side]} records have no column {column!r}",
                        detail=f"columns: {', '.join(schema.names)}",
                        hint="name one of the columns",
                    )
        if all(self.named[side] is not None or known[side] is not None for side in (LEFT, RIGHT)):
            self.outputs(*(_names(schema) for schema in known))

    @property
    def shared_keys(self) -> frozenset[str]:
        """Key columns that both sides have under one name."""
        return frozenset(left for left, right in zip(*self.keys, strict=False) if left == right)

    def kept(self, side: Side) -> tuple[str, ...] | None:
        """The columns of a side that are in results; None: all."""
        named = self.named[side]
        return None if named is None else tuple(dict.fromkeys(column for column, _ in named))

    def outputs(self, left: Sequence[str], right: Sequence[str]) -> list[Output]:
        """The columns of results, if the sides have these; `PlanError` if two are named alike."""
        shared = self.shared_keys if self.named == (None, None) else frozenset()
        of_left, of_right = self.named
        if of_left is None:
            of_left = _same(left)
        if of_right is None:
            of_right = _same(name for name in right if name not in shared)
        found = [
            Output(side=side, column=column, name=name, otherwise=column if column in shared else None)
            for side, mine in ((LEFT, of_left), (RIGHT, of_right))
            for column, name in mine
        ]
        said = [output.name for output in found]
        twice = [name for name in dict.fromkeys(said) if said.count(name) > 1]
        if twice:
            raise PlanError(
                f"both sides of the join have a column {twice[0]!r}",
                detail=f"left: {', '.join(left)}\nright: {', '.join(right)}",
                hint=f'choose columns, and another name: select(left=[...], right={{"{twice[0]}": "other_{twice[0]}"}})',
            )
        return found

    def schema(self, inputs: tuple[Schema | None, Schema | None]) -> Schema | None:
        """What is known of results."""
        left, right = inputs
        if left is None or right is None:
            return None
        sides = (left, right)
        return Schema.of((one.name, sides[one.side].type_of(one.column)) for one in self.outputs(left.names, right.names))

    def joined(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, at: tuple[Rows, Rows]) -> pa.RecordBatch:
        """Rows of both sides, side by side; row -1 is none. None: no record of this side has ever come."""
        data = (left, right)
        names = [_names(known) if batch is None else batch.schema.names for batch, known in zip(data, self.known, strict=True)]
        arrays, fields = [], []
        for output in self.outputs(names[0], names[1]):
            array = self._column(output.side, output.column, data, at)
            if output.otherwise is not None and (at[LEFT] < 0).any():
                array = _filled(array, self._column(RIGHT, output.otherwise, data, at))
            arrays.append(array)
            fields.append(output.name)
        if not arrays:
            return pa.RecordBatch.from_pylist([{} for _ in range(len(at[0]))])
        return pa.RecordBatch.from_arrays(arrays, names=fields)

    def _column(
        self, side: Side, name: str, data: tuple[pa.RecordBatch | None, pa.RecordBatch | None], at: tuple[Rows, Rows]
    ) -> pa.Array:
        batch, rows = data[side], at[side]
        if batch is None or name not in batch.schema.names:
            known = self.known[side]
            return pa.nulls(len(rows), (None if known is None else known.type_of(name)) or pa.null())
        missing = rows < 0
        return batch.column(name).take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))

    def describe(self) -> str:
        """For explain, and to tell whether stored rows are of this join."""
        return "; ".join(
            f"{where}: " + ("all columns" if named is None else ", ".join(c if c == n else f"{c} as {n}" for c, n in named))
            for where, named in zip(("left", "right"), self.named, strict=True)
        )

    def with_known(self, left: Schema | None, right: Schema | None) -> JoinedColumns:
        return replace(self, known=(left, right))


def named_columns(given: Iterable[str] | Mapping[str, str] | None) -> Named | None:
    """What one side of `select(...)` was given: columns, or columns with their new names."""
    if given is None:
        return None
    if isinstance(given, str):
        raise PlanError(f"select: {given!r} is one column", hint=f"give a list: [{given!r}]")
    pairs = tuple(given.items()) if isinstance(given, Mapping) else _same(given)
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        raise PlanError(f"select: {given!r}", hint='columns are named: ["a", "b"], or {"a": "new name of a"}')
    return pairs


def _same(names: Iterable[str]) -> Named:
    return tuple((name, name) for name in names)


def _names(schema: Schema | None) -> tuple[str, ...]:
    return () if schema is None else schema.names


def _filled(array: pa.Array, other: pa.Array) -> pa.Array:
    if pa.types.is_null(array.type):
        return other
    return pc.coalesce(array, other if other.type == array.type else other.cast(array.type))


# --- records as columns ----------------------------------------------------------------------------------------------------


def payload_of(batch: Batch, names: tuple[str, ...] | None, step: str) -> pa.RecordBatch:
    """The columns of a batch that a join keeps."""
    if isinstance(batch, Columns):
        fields = batch.row.fields()
        data = batch.data if fields is None else batch.data.select(list(fields))
    else:
        data = _from_records(batch.values(), names, step)
    if names is not None:
        lacking = [name for name in names if name not in data.schema.names]
        if lacking:
            raise PlanError(
                f"step {step!r}: there is no column {lacking[0]!r}",
                detail=f"columns: {', '.join(data.schema.names)}",
                hint="name one of the columns",
            )
        data = data.select(list(names))
    if any(pa.types.is_dictionary(kind) for kind in data.schema.types):
        columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in data.columns]
        data = pa.RecordBatch.from_arrays(columns, names=data.schema.names)
    return data if data.schema.metadata is None else data.replace_schema_metadata(None)


def _from_records(values: list[Any], names: tuple[str, ...] | None, step: str) -> pa.RecordBatch:
    rows = [as_dict(value) for value in values]
    found = dict.fromkeys(name for row in rows for name in row) if names is None else dict.fromkeys(names)
    arrays = []
    for name in found:
        column = [row.get(name) for row in rows]
        kinds = set(map(type, column)) - {type(None)}
        try:
            if len(kinds) > 1:
                raise TypeError(f"values of {len(kinds)} types: {', '.join(sorted(kind.__name__ for kind in kinds))}")
            arrays.append(pa.array(column))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _not_columnar(name, step, error) from error
    return pa.RecordBatch.from_arrays(arrays, names=list(found)) if arrays else pa.RecordBatch.from_pylist(rows)


def one_payload(parts: Sequence[pa.RecordBatch], step: str) -> pa.RecordBatch:
    """The rows of all, in order. Columns that some do not have are null there; types must agree."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if all(part.schema.equals(first.schema) for part in parts):
        return pa.concat_batches(parts)
    try:
        whole = pa.concat_tables([pa.Table.from_batches([part]) for part in parts], promote_options="default")
    except pa.ArrowException as error:
        raise _not_columnar("", step, error) from error
    (batch,) = whole.combine_chunks().to_batches() or (parts[0],)
    return batch


def _not_columnar(name: str, step: str, error: Exception) -> UserCodeError:
    which = f"column {name!r} cannot be" if name else "its columns cannot be"
    return UserCodeError(
        f"step {step!r} joins over columns, and {which} one: {error}",
        hint="let the values of a column be of one type; or join record by record: select(..., columnar=False), or apply(...)",
    )
