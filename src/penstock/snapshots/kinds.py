"""How the entries of each kind of state are taken apart into columns, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import StateError
from penstock.runtime.manifest import StateInfo
from penstock.snapshots.chunk_columns import ChunkLayout
from penstock.snapshots.parts import Column, Counted, Encoded, Entry, Items, Layout, Times
from penstock.snapshots.shapes import shape_of
from penstock.snapshots.store_keys import split_map_keys
from penstock.state.keys import canonical_key
from penstock.state.layout import sortable_time
from penstock.windows.window import WINDOW_SIZE

CHUNKED = ("slices", "session runs")
"""Kinds of state whose entries are chunks of many keys."""


def layout_of(info: StateInfo, key_schema: Any, naive: bool) -> Layout:
    """`key_schema`: of the keys, declared or found out; `naive`: datetimes have no time zone."""
    if info.kind in CHUNKED:
        return ChunkLayout(info, key_schema, naive)
    spaces = Spaces(info, key_schema, naive)
    if info.kind == "timers":
        return TimerLayout(spaces)
    if info.kind == "list":
        return ListLayout(info, spaces, naive)
    if info.kind in ("value", "reducing", "aggregating", "map"):
        return EntryLayout(info, spaces, naive)
    raise StateError(
        f"state {info.name!r} of step {info.step!r} is of kind {info.kind!r}, which is not known",
        hint="a newer Penstock has written it",
    )


class Spaces:
    """Keys, each with its window if the state is one of windows."""

    def __init__(self, info: StateInfo, key_schema: Any, naive: bool) -> None:
        if info.namespace not in (0, WINDOW_SIZE):
            raise StateError(
                f"the namespace of state {info.name!r} of step {info.step!r} is not known", hint="see a newer Penstock"
            )
        self.size = info.namespace
        self.columns: list[Column] = [key_column("key", key_schema, naive)]
        if self.size:
            self.columns += [Times("window_start", start=True), Times("window_end")]

    def split(self, spaces: list[bytes]) -> list[Sequence[Any]]:
        if not self.size:
            return [spaces]
        starts = Times.unpack(b"".join([space[-16:-8] for space in spaces]))
        ends = Times.unpack(b"".join([space[-8:] for space in spaces]))
        return [[space[:-16] for space in spaces], starts, ends]

    def join(self, parts: list[Any]) -> list[bytes]:
        """Of the parts of `columns`."""
        if not self.size:
            return list(parts[0])
        return [key + sortable_time(start) + sortable_time(end) for key, start, end in zip(*parts, strict=True)]


def key_column(name: str, schema: Any, naive: bool) -> Encoded:
    return Encoded(name, shape_of(schema, naive=naive, of_keys=True), lambda data: canonical_key(data, schema))


class TimerLayout(Layout):
    """time · key · window"""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self.columns = [Times("time"), *spaces.columns]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        times = Times.unpack(b"".join([raw[:8] for raw in raw_keys]))
        return [times, *self._spaces.split([raw[8:] for raw in raw_keys])]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[Entry]:
        spaces = self._spaces.join(parts[1:])
        return [
            (group(key), sortable_time(time) + space, b"") for time, key, space in zip(parts[0], parts[1], spaces, strict=True)
        ]


class ListLayout(Layout):
    """key · window · chunk → items"""

    def __init__(self, info: StateInfo, spaces: Spaces, naive: bool) -> None:
        self._spaces = spaces
        items = Items("value", shape_of(info.schema or "any", naive=naive), ttl=info.ttl, pickled=_is_pickle(info.schema))
        self.columns = [*spaces.columns, Counted("chunk"), items]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        chunks = Counted.unpack(b"".join([raw[-8:] for raw in raw_keys]))
        return [*self._spaces.split([raw[:-8] for raw in raw_keys]), chunks, raw_values]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[Entry]:
        spaces = self._spaces.join(parts[:-2])
        chunks = parts[-2] if parts[-2] is not None else _numbered(spaces)
        return [
            (group(key), space + chunk.to_bytes(8, "big"), value)
            for key, space, chunk, value in zip(parts[0], spaces, chunks, parts[-1], strict=True)
        ]


class EntryLayout(Layout):
    """key · window · [map key] → [expires] value"""

    def __init__(self, info: StateInfo, spaces: Spaces, naive: bool) -> None:
        self._spaces = spaces
        self._is_map = info.kind == "map"
        self._ttl = info.ttl
        self.columns = [*spaces.columns]
        if self._is_map:
            self.columns.append(key_column("map_key", info.sub_schema or "any", naive))
        if info.ttl:
            self.columns.append(Times("expires", required=False))
        self.columns.append(Encoded("value", shape_of(info.schema or "any", naive=naive), pickled=_is_pickle(info.schema)))

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        if self._is_map:
            spaces, map_keys = split_map_keys(raw_keys, self._spaces.size)
            found = [*self._spaces.split(spaces), map_keys]
        else:
            found = self._spaces.split(raw_keys)
        if not self._ttl:
            return [*found, raw_values]
        expires = Times.unpack_plain(b"".join([value[:8] for value in raw_values]))
        return [*found, expires, [value[8:] for value in raw_values]]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[Entry]:
        width, values = len(self._spaces.columns), parts[-1]
        raw_keys = self._spaces.join(parts[:width])
        if self._is_map:
            raw_keys = [space + map_key for space, map_key in zip(raw_keys, parts[width], strict=True)]
        if self._ttl:
            stamps = parts[-2] if parts[-2] is not None else [Times.END] * len(values)
            values = [stamp.to_bytes(8, "big", signed=True) + value for stamp, value in zip(stamps, values, strict=True)]
        return [(group(key), raw, value) for key, raw, value in zip(parts[0], raw_keys, values, strict=True)]


def _is_pickle(schema: Any) -> bool:
    return isinstance(schema, dict) and "pickle" in schema


def _numbered(spaces: list[bytes]) -> list[int]:
    """For each, how many of the same were before it."""
    seen: dict[bytes, int] = {}
    found = []
    for space in spaces:
        seen[space] = seen.get(space, -1) + 1
        found.append(seen[space])
    return found
