"""One state of a job, to be asked by key: keys from text and values, entries as values.

Law: what has expired by the epoch's own clock is not shown, wherever it is still stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.jobs.manifest import Manifest
from penstock.query.errors import BadRequestError
from penstock.query.reading import Entry, Reading
from penstock.snapshots.view.lookup import readable
from penstock.state.encoding.json_values import tagged
from penstock.state.encoding.keys import encode_key
from penstock.state.encoding.stored_values import STAMP_SIZE, framed, stamp_of, unframed
from penstock.state.entries.entry_columns import WINDOW_SIZE, Undeclared
from penstock.state.entries.kinds import kind_of
from penstock.state.entries.state_info import StateInfo
from penstock.state.entries.state_table import StateTable
from penstock.state.entries.store_keys import time_from_sortable
from penstock.state.key_groups import SHARED_GROUP, KeyGroups
from penstock.timing.durations import calendar_time

SAMPLE = 200
_PLAIN = frozenset(("int", "float", "str", "bool"))
"""Schemas of which MessagePack, decoded, is the value."""

_unpack = msgspec.msgpack.Decoder().decode
_WHOLE = encode_key(None)


class StateView:
    """A state by its number. Keys whose type was not declared are what a sample of them is."""

    def __init__(self, number: int, info: StateInfo, key_groups: KeyGroups, sample: list[Entry]) -> None:
        self.number = number
        self.info = info
        self.kind = kind_of(info)
        self.key_groups = info.grouping(key_groups)
        keys, values = [key for key, _ in sample], [value for _, value in sample]
        self.table = StateTable.sampled(info, key_groups, keys, values) if keys else StateTable(info, key_groups)
        self.is_settled = bool(keys) or Undeclared.of(info).key != "any"
        self.has_windows = bool(info.namespace)
        self.is_broadcast = info.scope == "broadcast"
        self.is_direct = (
            self.kind.name in ("value", "reducing", "aggregating") and not info.namespace and not self.kind.in_plain_text
        )
        self._plain = self.is_direct and not info.earlier and isinstance(info.schema, str) and info.schema in _PLAIN

    @classmethod
    def of(cls, reading: Reading, number: int, info: StateInfo) -> StateView:
        groups = [SHARED_GROUP] if info.scope == "broadcast" else reading.groups
        found: Iterator[Entry] = (entry for group in groups for entry in reading.scan(number, group))
        wanted = SAMPLE if Undeclared.of(info).key == "any" or (info.sub_schema or "any") == "any" else 0
        return cls(number, info, reading.key_groups, list(islice(found, wanted)))

    # --- keys

    def key_of_text(self, text: str) -> bytes:
        """A key as it stands in a URL: the text itself where keys are texts, JSON otherwise."""
        kind = self._key_type()
        undeclared = self.info.key_schema is None
        if self.keys_are_texts:
            return self.key_of_value(text)
        try:
            return self.key_of_value(json.loads(text))
        except ValueError:
            if undeclared or not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_nested(kind)):
                return self.key_of_value(text)
            raise BadRequestError(
                f"{text!r:.100} is not a key here", hint=f"keys of step {self.info.step!r} are {kind}"
            ) from None
        except RecursionError:
            raise BadRequestError("the key is nested too deeply") from None

    def key_of_value(self, key: Any) -> bytes:
        """The bytes of a key, given as JSON or as Python has it."""
        if self.is_broadcast:
            return _WHOLE
        kind = self._key_type()
        if isinstance(key, list):
            key = tuple(key)
        if pa.types.is_floating(kind) and type(key) is int:
            key = float(key)
        try:
            return encode_key(key) if self.info.key_schema is None else self.table.encode_key(key)
        except (StateError, ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise BadRequestError(
                f"{key!r:.100} is not a key here", detail=str(error)[:200], hint=f"keys of step {self.info.step!r} are {kind}"
            ) from None

    @property
    def keys_are_texts(self) -> bool:
        """They stand in URLs as they are."""
        undeclared = self.info.key_schema is None and self.table.undeclared.key == "any"
        return pa.types.is_string(self._key_type()) and not undeclared

    def group_of(self, encoded: bytes) -> int:
        return self.key_groups.of(encoded)

    def _key_type(self) -> pa.DataType:
        schema = self.table.schema
        return schema.field("key").type if "key" in schema.names else schema.field("keys").type.value_type

    # --- entries

    def entries(self, reading: Reading, encoded: bytes) -> list[Entry]:
        """What is stored of a key, without what has expired."""
        group = self.group_of(encoded)
        if self.is_direct:
            found = reading.get(self.number, group, encoded)
            entries = [] if found is None else [(encoded, found)]
        elif self.kind.many_keys or self.kind.by_time:
            entries = list(reading.scan(self.number, group))
            keys, values = [key for key, _ in entries], [value for _, value in entries]
            held = self.kind.holds(encoded, keys, values, self.info)
            entries = [entry for entry, is_held in zip(entries, held, strict=True) if is_held]
        else:
            entries = list(reading.scan(self.number, group, encoded))
        return self.alive(reading.manifest, entries)

    def alive(self, manifest: Manifest, entries: list[Entry]) -> list[Entry]:
        if not self.info.ttl:
            return entries
        now = self._now(manifest)
        if self.kind.spread:
            kept = [(key, [item for item in unframed(value) if stamp_of(item) > now]) for key, value in entries]
            return [(key, framed(items)) for key, items in kept if items]
        return [(key, value) for key, value in entries if stamp_of(value) > now]

    def _now(self, manifest: Manifest) -> Milliseconds:
        if self.info.ttl_time == "event":
            return min(manifest.watermarks.get(self.info.step, MIN_WATERMARK), MAX_WATERMARK - 1)
        return manifest.processing_time

    # --- values

    def rows(self, entries: list[Entry]) -> list[dict[str, Any]]:
        """Entries as people read them."""
        keys, values = [key for key, _ in entries], [value for _, value in entries]
        return readable(pa.Table.from_arrays(self.table.read(keys, values), schema=self.table.schema))

    def keys_shown(self, raw_keys: list[bytes]) -> list[dict[str, Any]]:
        """What entries are of, as rows, without their values."""
        if not raw_keys:
            return []
        heads, spaces, tails = self.kind.split(raw_keys, self.info.namespace)
        cut = self.info.namespace
        found: list[dict[str, Any]] = []
        for number, space in enumerate(spaces):
            row: dict[str, Any] = {} if heads is None else {"time": calendar_time(time_from_sortable(heads[number]))}
            row["key"] = tagged(_unpack(space[:-cut] if cut else space))
            if cut == WINDOW_SIZE:
                start, end = space[-cut:-8], space[-8:]
                row |= {"window_start": _moment(start), "window_end": _moment(end)}
            if tails is not None:
                tail = tails[number]
                row |= {"map_key": tagged(_unpack(tail))} if self.kind.name == "map" else {"chunk": int.from_bytes(tail, "big")}
            found.append(row)
        return found

    def value(self, reading: Reading, encoded: bytes, entries: list[Entry]) -> Any:
        """What is kept for a key: a value; of windows a list with an object for each."""
        if self._plain:
            data = entries[0][1]
            return tagged(_unpack(data[STAMP_SIZE:] if self.info.ttl else data))
        if self.kind.many_keys:
            return self._windows(reading, encoded, entries)
        rows = self.rows(entries)
        if not self.has_windows:
            return self._of_key(rows)
        windows: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
        for row in rows:
            windows.setdefault((row["window_start"], row["window_end"]), []).append(row)
        return [{"start": start, "end": end, "value": self._of_key(mine)} for (start, end), mine in windows.items()]

    def _of_key(self, rows: list[dict[str, Any]]) -> Any:
        found = self.kind.of_key(rows, self.info)
        return [[key, value] for key, value in found.items()] if self.kind.name == "map" else found

    def _windows(self, reading: Reading, encoded: bytes, entries: list[Entry]) -> list[dict[str, Any]]:
        watermark = reading.manifest.watermarks.get(self.info.step, MIN_WATERMARK)
        grouped = iter([(self.group_of(encoded), [key for key, _ in entries], [value for _, value in entries])])
        kind, contents = self.kind.contents(grouped, self.info, watermark)
        if not kind.in_plain_text:
            raise BadRequestError(f"what state {self.info.name!r} of step {self.info.step!r} keeps cannot be shown by key")
        wanted = tagged(_unpack(encoded))
        shown = [kind.shown(key, value) for _, keys, values in contents for key, value in zip(keys, values, strict=True)]
        return [
            {**{name: of[name] for name in of if name != "key"}, "value": values} for of, values in shown if of["key"] == wanted
        ]


def _moment(data: bytes) -> Any:
    """A bound of a window; None where time begins or ends."""
    time_ms = time_from_sortable(data)
    return None if time_ms in (MIN_WATERMARK, MAX_WATERMARK) else calendar_time(time_ms)
