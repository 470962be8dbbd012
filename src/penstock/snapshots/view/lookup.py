"""One key of a state: its entries are found by its bytes, in its key group."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import StateError
from penstock.jobs.manifest import StateInfo
from penstock.snapshots.tabular.columns import AS_JSON, Columns
from penstock.snapshots.tabular.kinds import CHUNKED
from penstock.snapshots.tabular.shapes import JSON_METADATA
from penstock.snapshots.view.content import Content
from penstock.state.encoding.keys import encode_key
from penstock.state.entries.entry_keys import end_of_value
from penstock.windows.columnar.chunks import read_stored


class Lookup:
    """Finds the entries of a key."""

    def __init__(self, content: Content, number: int, info: StateInfo, columns: Columns) -> None:
        self._content = content
        self._number = number
        self._info = info
        self._columns = columns

    @staticmethod
    def encode(info: StateInfo, columns: Columns, key: Any) -> bytes:
        """The bytes under which the running job keeps a key."""
        return encode_key(key) if info.key_schema is None else columns.encode_key(key)

    def rows(self, key: Any) -> pa.Table:
        encoded = self.encode(self._info, self._columns, key)
        group = self._columns.key_groups.of(encoded)
        keys: list[bytes] = []
        values: list[bytes] = []
        for _, raw_keys, raw_values in self._content.entries(self._number, range(group, group + 1)):
            for raw, value in zip(raw_keys, raw_values, strict=True):
                if self._is_of(raw, value, encoded):
                    keys.append(raw)
                    values.append(value)
        return pa.Table.from_arrays(self._columns.read(keys, values), schema=self._columns.schema)

    def _is_of(self, raw: bytes, value: bytes, encoded: bytes) -> bool:
        if self._info.kind in CHUNKED:
            return encoded in read_stored(value, self._info.step).keys
        if self._info.kind == "timers":
            return raw[8 : 8 + len(encoded)] == encoded and end_of_value(raw, 8) == 8 + len(encoded)
        return raw.startswith(encoded) and end_of_value(raw) == len(encoded)

    def value(self, key: Any, default: Any = None) -> Any:
        rows = self.rows(key)
        if self._info.kind in CHUNKED:
            raise StateError(
                f"state {self._info.name!r} of step {self._info.step!r} keeps keys together in chunks",
                hint="find(key) gives the chunks that the key is in",
            )
        if not len(rows):
            return default
        shown = readable(rows)
        if not self._info.namespace:
            return self._of(shown)
        windows: dict[Any, list[dict[str, Any]]] = {}
        for row in shown:
            windows.setdefault((row["window_start"], row["window_end"]), []).append(row)
        return {window: self._of(mine) for window, mine in windows.items()}

    def _of(self, rows: list[dict[str, Any]]) -> Any:
        """Of the rows of one key (and window)."""
        if self._info.kind == "timers":
            return [row["time"] for row in rows]
        if self._info.kind == "map":
            return {_hashable(row["map_key"]): row["value"] for row in rows}
        if self._info.kind == "list":
            return [item["value"] if self._info.ttl else item for row in rows for item in row["value"]]
        return rows[0]["value"]


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


def _hashable(key: Any) -> Any:
    if isinstance(key, dict):
        return tuple(_hashable(part) for part in key.values())
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
