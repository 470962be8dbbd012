"""Entries of a state as a table that people can read, and back.

    value, reducing, aggregating   key, [window_start, window_end], [expires], value
    list                           key, [window ...], chunk, value: the items that one epoch appended
    map                            key, [window ...], map_key, [expires], value
    timers                         time, key, [window ...]
    slices, session runs           see `windows/columnar/stored/columns`

and in all of them, last, `as_json`. `key`, `map_key` and `value` have the type that the schema says (see `conversions`). Times
are UTC; null is the end of time (for `window_start`: its beginning), so an entry whose `expires` is null stays. Items of a list
that expire are structs of `expires` and `value`.

A key (or key of a map) whose type was not declared has the type of the sample that the caller gives (the keys of the first
groups, say), if all of it are integers, floats, texts, bytes, booleans, instants, or tuples of these of one form; JSON text
otherwise, and without a sample. Like datetimes without a zone it is decided once for a file, by its schema: `StateTable.like`.

Laws:
- What a column cannot hold (an integer of more than 64 bits, a key unlike the sample) is null there, and stands in `as_json`: an
  object with the names of such columns. `as_json` is null in all other rows.
- `write(read(entries))` are the same entries, byte for byte, as far as they were written by a state's own codec.
- No class of the user's is needed, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import StateError
from penstock.state.encoding.keys import encode_key
from penstock.state.entries.entry_columns import EntryColumns, GroupedEntry, Undeclared
from penstock.state.entries.kinds import kind_of
from penstock.state.entries.state_info import StateInfo
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.state.tabular.columns import Column, unreadable_to_json
from penstock.state.tabular.conversions import MISFITS

AS_JSON = "as_json"

_METADATA = b"penstock.columns"

FROM_PANDAS = {b"penstock.from": b"pandas"}
"""Metadata of a table that was a DataFrame: a null may have been NaN."""

_unpack = msgspec.msgpack.Decoder().decode


class StateTable:
    """The columns of one state."""

    def __init__(self, info: StateInfo, key_groups: KeyGroups, undeclared: Undeclared | None = None) -> None:
        self.info = info
        self.key_groups = info.grouping(key_groups)
        self.undeclared = undeclared = undeclared or Undeclared.of(info)
        self._columns = kind_of(info).columns(info, undeclared)
        self.schema = pa.schema(
            [*(column.field for column in self._columns.columns), pa.field(AS_JSON, pa.string())],
            metadata={_METADATA: msgspec.json.encode(undeclared)},
        )

    @classmethod
    def sampled(cls, info: StateInfo, key_groups: KeyGroups, raw_keys: list[bytes], raw_values: list[bytes]) -> StateTable:
        """What was not declared is found out from some entries."""
        return cls(info, key_groups, _found_out(info, raw_keys, raw_values))

    @classmethod
    def like(cls, info: StateInfo, key_groups: KeyGroups, schema: pa.Schema) -> StateTable:
        """The columns that a file was written with."""
        found = (schema.metadata or {}).get(_METADATA)
        return cls(info, key_groups, None if found is None else msgspec.json.decode(found, type=Undeclared))

    def read(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[pa.Array]:
        """The columns of some entries, in the order of `schema`."""
        odd: dict[int, dict[str, Any]] = {}
        arrays = []
        for column, parts in zip(self._columns.columns, self._columns.split(raw_keys, raw_values), strict=True):
            array, rows = _read(column, parts)
            arrays.append(array)
            for row in rows:
                odd.setdefault(row, {})[column.field.name] = unreadable_to_json(column, parts[row])
        if not odd:
            arrays.append(pa.nulls(len(raw_keys), pa.string()))
        else:
            texts = [msgspec.json.encode(odd[row]).decode() if row in odd else None for row in range(len(raw_keys))]
            arrays.append(pa.array(texts, pa.string()))
        return arrays

    def write(self, table: pa.Table | pa.RecordBatch) -> list[GroupedEntry]:
        """(group, raw key, raw value) of each row, in order of rows. Columns that are not of this state are not looked at."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        table = table.combine_chunks()
        columns = self._columns_for(table)
        if AS_JSON not in table.column_names or table.column(AS_JSON).null_count == len(table):
            return columns.join(self._parts(columns, table), self._group)
        texts = table.column(AS_JSON).to_pylist()
        plain = pa.array([text is None for text in texts])
        found = iter(columns.join(self._parts(columns, table.filter(plain)), self._group))
        return [
            next(found) if text is None else self._odd_row(columns, table.slice(row, 1), msgspec.json.decode(text))
            for row, text in enumerate(texts)
        ]

    def encode_key(self, key: Any) -> bytes:
        """The bytes of a key, given as the `key` column shows it (or as Arrow takes it)."""
        column = next(one for one in self._columns.columns if one.field.name in ("key", "keys"))
        field = column.field.with_type(column.field.type.value_type) if column.field.name == "keys" else column.field
        try:
            array = pa.array([key], field.type)
            if column.field.name == "keys":
                array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
            (part,) = column.write(array)
        except (StateError, *MISFITS) as error:
            detail = error.what if isinstance(error, StateError) else str(error)
            raise StateError(
                f"{key!r} cannot be a key of {self._where()}", detail=detail, hint=f"its keys are {field.type}"
            ) from None
        encoded: bytes = part[0] if isinstance(part, list) else part
        return encoded

    def _no_key(self, table: pa.Table) -> list[bytes]:
        """The key of state that has none: it may be left out, or null, as it is shown."""
        if "key" in table.column_names and table.column("key").null_count < len(table):
            raise StateError(f"{self._where()} is broadcast state, which has no key", hint="leave the column 'key' out")
        return [encode_key(None)] * len(table)

    def _columns_for(self, table: pa.Table) -> EntryColumns:
        if FROM_PANDAS.items() <= (table.schema.metadata or {}).items():
            return kind_of(self.info).columns(self.info, self.undeclared, null_is_nan=True)
        return self._columns

    def _parts(self, columns: EntryColumns, table: pa.Table) -> list[Sequence[Any] | None]:
        return [self._column(column, table) for column in columns.columns]

    def _odd_row(self, columns: EntryColumns, row: pa.Table, given: dict[str, Any]) -> GroupedEntry:
        parts: list[Sequence[Any] | None] = []
        for column in columns.columns:
            name = column.field.name
            parts.append([column.part_from_json(given[name])] if name in given else self._column(column, row))
        return columns.join(parts, self._group)[0]

    def _column(self, column: Column, table: pa.Table) -> Sequence[Any] | None:
        name = column.field.name
        if name == "key" and self.info.scope == "broadcast":
            return self._no_key(table)
        if name not in table.column_names:
            if column.required:
                raise StateError(
                    f"{self._where()} needs a column {name!r}",
                    detail=f"given: {', '.join(table.column_names)}",
                    hint=f"needed: {', '.join(one.field.name for one in self._columns.columns if one.required)}",
                )
            return None
        chunks = table.column(name).chunks
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.field.type)
        try:
            return column.write(array)
        except (StateError, *MISFITS) as error:
            detail, hint = (error.what, error.hint) if isinstance(error, StateError) else (str(error), "")
            raise StateError(
                f"the column {name!r} cannot be written to {self._where()}",
                detail=f"{detail}\ngiven: {array.type}",
                hint=hint or f"it must be {column.field.type}",
            ) from error

    def _group(self, key: bytes) -> int:
        return self.key_groups.of(key)

    def _where(self) -> str:
        return f"state {self.info.name!r} of step {self.info.step!r}"


def _read(column: Column, parts: Sequence[Any]) -> tuple[pa.Array, list[int]]:
    """The column, and the rows that do not fit into it."""
    try:
        return column.read(parts), []
    except MISFITS:
        if len(parts) == 1:
            return pa.nulls(1, column.field.type), [0]
        half = len(parts) // 2
        (first, odd), (second, others) = _read(column, parts[:half]), _read(column, parts[half:])
        return pa.concat_arrays([first, second]), odd + [half + row for row in others]


# --- what was not declared -----------------------------------------------------------------------------------------------------


def _found_out(info: StateInfo, raw_keys: list[bytes], raw_values: list[bytes]) -> Undeclared:
    found = Undeclared.of(info)
    if not raw_keys:
        return found
    columns = kind_of(info).columns(info, found)
    parts = dict(zip([column.field.name for column in columns.columns], columns.split(raw_keys, raw_values), strict=True))
    if found.key == "any":
        keys = parts["key"] if "key" in parts else chain.from_iterable(parts["keys"])
        found = msgspec.structs.replace(found, key=schema_of_keys([_unpack(key) for key in keys]))
    if found.map_key == "any" and "map_key" in parts:
        found = msgspec.structs.replace(found, map_key=schema_of_keys([_unpack(key) for key in parts["map_key"]]))
    if "'datetime'" not in repr((info.schema, info.sub_schema, info.key_schema)):
        return found
    choices = [msgspec.structs.replace(found, naive=naive) for naive in (False, True)]
    return min(
        choices, key=lambda choice: -StateTable(info, KeyGroups(1, NEW_JOBS), choice).read(raw_keys, raw_values)[-1].null_count
    )


_KEYS: dict[type, str] = {int: "int", str: "str", float: "float", bytes: "bytes", bool: "bool", datetime: "datetime"}


def schema_of_keys(keys: list[Any]) -> Any:
    """The schema that all these decoded keys have, or "any"."""
    kinds = {type(key) for key in keys}
    if len(kinds) != 1:
        return "any"
    kind = kinds.pop()
    if kind is list:
        if len({len(key) for key in keys}) != 1 or not keys[0]:
            return "any"
        parts = [schema_of_keys(list(part)) for part in zip(*keys, strict=True)]
        return "any" if "any" in parts else {"tuple": parts}
    return _KEYS.get(kind, "any")
