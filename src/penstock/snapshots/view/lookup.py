"""One key of a state: its entries are found by its bytes, in its key group."""

from __future__ import annotations

from itertools import compress
from typing import Any

import msgspec
import pyarrow as pa

from penstock.jobs.manifest import StateInfo
from penstock.snapshots.view.content import Content
from penstock.state.encoding.keys import encode_key
from penstock.state.entries.kinds import kind_of
from penstock.state.entries.state_table import AS_JSON, StateTable
from penstock.state.tabular.conversions import JSON_METADATA


class Lookup:
    """Finds the entries of a key."""

    def __init__(self, content: Content, number: int, info: StateInfo, columns: StateTable) -> None:
        self._content = content
        self._number = number
        self._info = info
        self._kind = kind_of(info)
        self._columns = columns

    @staticmethod
    def encode(info: StateInfo, columns: StateTable, key: Any) -> bytes:
        """The bytes under which the running job keeps a key."""
        return encode_key(key) if info.key_schema is None else columns.encode_key(key)

    def rows(self, key: Any) -> pa.Table:
        encoded = self.encode(self._info, self._columns, key)
        group = self._columns.key_groups.of(encoded)
        keys: list[bytes] = []
        values: list[bytes] = []
        for _, raw_keys, raw_values in self._content.entries(self._number, range(group, group + 1)):
            holds = self._kind.holds(encoded, raw_keys, raw_values, self._info)
            keys += compress(raw_keys, holds)
            values += compress(raw_values, holds)
        return pa.Table.from_arrays(self._columns.read(keys, values), schema=self._columns.schema)

    def value(self, key: Any, default: Any = None) -> Any:
        shown = readable(self.rows(key))
        if not shown and not self._kind.many_keys:
            return default
        if not self._info.namespace:
            return self._kind.of_key(shown, self._info)
        windows: dict[Any, list[dict[str, Any]]] = {}
        for row in shown:
            windows.setdefault((row["window_start"], row["window_end"]), []).append(row)
        return {window: self._kind.of_key(mine, self._info) for window, mine in windows.items()}


def readable(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, with what their columns cannot hold, and JSON text read."""
    json = {field.name for field in rows.schema if field.metadata == JSON_METADATA}
    return [_shown(row, json) for row in rows.to_pylist()]


def _shown(row: dict[str, Any], json: set[str]) -> dict[str, Any]:
    odd = row.pop(AS_JSON)
    read = {name: msgspec.json.decode(text) if name in json and text is not None else text for name, text in row.items()}
    if odd is None:
        return read
    return {**read, **{name: _items(value) for name, value in msgspec.json.decode(odd).items()}}


def _items(value: Any) -> Any:
    """Of a chunk of a list, its items: the bytes that stand with them are for writing it back."""
    return value["items"] if isinstance(value, dict) and value.keys() == {"$raw", "items"} else value
