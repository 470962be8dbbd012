"""The columns of a state's entries: a raw key and a raw value are cut into pieces, one for each column, and put together again.

key, [window_start, window_end], …        see `kinds` for what each kind has besides
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import add
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import StateError
from penstock.state.encoding.keys import canonical_key
from penstock.state.encoding.stored_values import STAMP_SIZE
from penstock.state.entries.state_info import StateInfo
from penstock.state.tabular.columns import Column, TimeColumn, ValueColumn
from penstock.state.tabular.conversions import conversion_of

if TYPE_CHECKING:
    from penstock.state.entries.kinds import StateKind

WINDOW_SIZE = 16
_KEY_START_END = slice(0, -16), slice(-16, -8), slice(-8, None)
"""Of a key with its window."""

GroupedEntry = tuple[int, bytes, bytes]
"""(key group, raw key, raw value)"""

GroupedEntries = Iterator[tuple[int, list[bytes], list[bytes]]]
"""(key group, raw keys, raw values), in order."""


class Undeclared(msgspec.Struct, frozen=True):
    """What a program does not say of a state, and a sample may: schemas of keys, and whether datetimes have no time zone."""

    key: Any = "any"
    map_key: Any = "any"
    naive: bool = False

    @classmethod
    def of(cls, info: StateInfo) -> Undeclared:
        return cls(info.key_schema or "any", info.sub_schema or "any")


class EntryColumns:
    """The columns that entries are cut into."""

    columns: list[Column]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        """The parts of each column."""
        raise NotImplementedError

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[GroupedEntry]:
        """Entries of parts; None for a column that is not there. `group` gives the group of a key."""
        raise NotImplementedError


class KeyedColumns(EntryColumns):
    """Of entries that are of one key each. `null_is_nan`: see `conversion_of`."""

    def __init__(self, kind: StateKind, info: StateInfo, found: Undeclared, *, null_is_nan: bool) -> None:
        if info.namespace not in (0, WINDOW_SIZE):
            raise StateError(
                f"the namespace of state {info.name!r} of step {info.step!r} is not known", hint="a newer Penstock has written it"
            )
        self._kind = kind
        self._namespace = info.namespace
        self._ahead: list[Column] = [TimeColumn("time")] if kind.by_time else []
        window = [TimeColumn("window_start", start=True), TimeColumn("window_end")] if info.namespace else []
        key = key_column("key", found.key, found.naive, exact=info.key_schema is None)
        self._of_key: list[Column] = [*self._ahead, key, *window, *kind.tail_columns(info, found)]
        conversion = conversion_of(info.schema or "any", naive=found.naive, null_is_nan=null_is_nan)
        self._of_value = kind.value_columns(info, conversion)
        self._stamped = len(self._of_value) == 2
        self.columns = [*self._of_key, *self._of_value]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        heads, spaces, tails = self._kind.split(raw_keys, self._namespace)
        pieces = [] if heads is None else [heads]
        if self._namespace:
            pieces += [[space[part] for space in spaces] for part in _KEY_START_END]
        else:
            pieces.append(spaces)
        if tails is not None:
            pieces.append(tails)
        if self._stamped:
            pieces += [[value[:STAMP_SIZE] for value in raw_values], [value[STAMP_SIZE:] for value in raw_values]]
        elif self._of_value:
            pieces.append(raw_values)
        return [column.unpack(mine) for column, mine in zip(self.columns, pieces, strict=True)]

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[GroupedEntry]:
        keys = parts[len(self._ahead)]
        raw_keys = _joined(self._of_key, parts[: len(self._of_key)], len(keys))
        raw_values = _joined(self._of_value, parts[len(self._of_key) :], len(keys))
        return [(group(key), raw, value) for key, raw, value in zip(keys, raw_keys, raw_values, strict=True)]


def _joined(columns: list[Column], parts: list[Any], rows: int) -> list[bytes]:
    """The pieces of all columns, one after another."""
    joined: list[bytes] = []
    for column, mine in zip(columns, parts, strict=True):
        pieces = column.absent(joined or [b""] * rows) if mine is None else column.pack(mine)
        joined = list(map(add, joined, pieces)) if joined else list(pieces)
    return joined or [b""] * rows


def key_column(name: str, schema: Any, naive: bool, *, exact: bool) -> ValueColumn:
    """Of keys, or keys of a map."""
    conversion = conversion_of(schema, naive=naive, of_keys=True)
    return ValueColumn(name, conversion, lambda data: canonical_key(data, schema), exact=exact)
