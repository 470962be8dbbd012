"""How the entries of each kind of state are taken apart into columns, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.errors import StateError
from penstock.jobs.manifest import StateInfo
from penstock.snapshots.tabular.chunk_columns import ChunkLayout
from penstock.snapshots.tabular.parts import Column, Counted, Encoded, Entry, Items, Layout, Times
from penstock.snapshots.tabular.shapes import Shape, shape_of
from penstock.snapshots.tabular.store_keys import split_map_keys
from penstock.state.encoding.keys import canonical_key
from penstock.state.entries.layout import sortable_time
from penstock.windows.window import WINDOW_SIZE

CHUNKED = ("slices", "session runs")
"""Kinds of state whose entries are chunks of many keys."""


class Undeclared(msgspec.Struct, frozen=True):
    """What a program does not say of a state, and a sample may: schemas of keys, and whether datetimes have no time zone."""

    key: Any = "any"
    map_key: Any = "any"
    naive: bool = False

    @classmethod
    def of(cls, info: StateInfo) -> Undeclared:
        return cls(info.key_schema or "any", info.sub_schema or "any")


def layout_of(info: StateInfo, found: Undeclared, *, null_is_nan: bool = False) -> Layout:
    """How the entries of a state are taken apart. `null_is_nan`: see `shape_of`."""
    if info.kind in CHUNKED:
        return ChunkLayout(info, found.key, found.naive)
    return keyed_layout(info, found, null_is_nan=null_is_nan)


def keyed_layout(info: StateInfo, found: Undeclared | None = None, *, null_is_nan: bool = False) -> KeyedLayout:
    """The same, of a state whose entries are of one key each."""
    found = found or Undeclared.of(info)
    spaces = Spaces(info, found.key, found.naive)
    shape = shape_of(info.schema or "any", naive=found.naive, null_is_nan=null_is_nan)
    if info.kind == "timers":
        return TimerLayout(spaces)
    if info.kind == "list":
        return ListLayout(info, spaces, shape)
    if info.kind in ("value", "reducing", "aggregating", "map"):
        return EntryLayout(info, spaces, found, shape)
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
        self.columns: list[Column] = [key_column("key", key_schema, naive, exact=info.key_schema is None)]
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


def key_column(name: str, schema: Any, naive: bool, *, exact: bool) -> Encoded:
    return Encoded(name, shape_of(schema, naive=naive, of_keys=True), lambda data: canonical_key(data, schema), exact=exact)


class KeyedLayout(Layout):
    """Entries that are of one key each."""

    _spaces: Spaces

    def spaces(self, raw_keys: list[bytes]) -> list[bytes]:
        """Key and window of each."""
        raise NotImplementedError

    def keys(self, raw_keys: list[bytes]) -> list[bytes]:
        """The encoded key of each."""
        size = self._spaces.size
        return [space[:-size] for space in self.spaces(raw_keys)] if size else self.spaces(raw_keys)


class TimerLayout(KeyedLayout):
    """time · key · window"""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self.columns = [Times("time"), *spaces.columns]

    def spaces(self, raw_keys: list[bytes]) -> list[bytes]:
        return [raw[8:] for raw in raw_keys]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        times = Times.unpack(b"".join([raw[:8] for raw in raw_keys]))
        return [times, *self._spaces.split(self.spaces(raw_keys))]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[Entry]:
        spaces = self._spaces.join(parts[1:])
        return [
            (group(key), sortable_time(time) + space, b"") for time, key, space in zip(parts[0], parts[1], spaces, strict=True)
        ]


class ListLayout(KeyedLayout):
    """key · window · chunk → items"""

    def __init__(self, info: StateInfo, spaces: Spaces, shape: Shape) -> None:
        self._spaces = spaces
        items = Items("value", shape, ttl=info.ttl, pickled=_is_pickle(info.schema))
        self.columns = [*spaces.columns, Counted("chunk"), items]

    def spaces(self, raw_keys: list[bytes]) -> list[bytes]:
        return [raw[:-8] for raw in raw_keys]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        chunks = Counted.unpack(b"".join([raw[-8:] for raw in raw_keys]))
        return [*self._spaces.split(self.spaces(raw_keys)), chunks, raw_values]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[Entry]:
        spaces = self._spaces.join(parts[:-2])
        chunks = parts[-2] if parts[-2] is not None else _numbered(spaces)
        return [
            (group(key), space + chunk.to_bytes(8, "big"), value)
            for key, space, chunk, value in zip(parts[0], spaces, chunks, parts[-1], strict=True)
        ]


class EntryLayout(KeyedLayout):
    """key · window · [map key] → [expires] value"""

    def __init__(self, info: StateInfo, spaces: Spaces, found: Undeclared, shape: Shape) -> None:
        self._spaces = spaces
        self._is_map = info.kind == "map"
        self._ttl = info.ttl
        self.columns = [*spaces.columns]
        if self._is_map:
            self.columns.append(key_column("map_key", found.map_key, found.naive, exact=info.sub_schema == "any"))
        if info.ttl:
            self.columns.append(Times("expires", required=False))
        self.columns.append(Encoded("value", shape, pickled=_is_pickle(info.schema)))

    def spaces(self, raw_keys: list[bytes]) -> list[bytes]:
        return split_map_keys(raw_keys, self._spaces.size)[0] if self._is_map else raw_keys

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
