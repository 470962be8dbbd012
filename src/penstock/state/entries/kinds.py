"""The kinds of state: how the entries of each are made. Nothing else asks what kind a state is.

    kind                            raw key                                  value
    value, reducing, aggregating    key · window                             one item
    elements                        when it was added · position             one item
    list                            key · window · chunk(8)                  items
    map                             key · window · map key                   one item
    timers                          time(8) · key · window                   –
    slices, session runs            see `windows/columnar/stored/`

A window is 16 bytes, in states of windows only: the *namespace* of a state says how many bytes follow the key. An item is an
encoded value; of a state with a time to live it is stamped (see `stored_values`).

A kind is registered by the package that it belongs to; `windows/` registers its own.

Law: head, space and tail, one after another, are the raw key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.errors import StateError
from penstock.ids import Milliseconds
from penstock.state.encoding.stored_values import framed, unframed
from penstock.state.entries.entry_columns import EntryColumns, GroupedEntries, GroupedEntry, KeyedColumns, Undeclared, key_column
from penstock.state.entries.state_info import StateInfo
from penstock.state.entries.store_keys import sortable_time, split_map_keys, time_from_sortable
from penstock.state.key_groups import KeyGroups
from penstock.state.tabular.columns import Column, ExpiryColumn, ItemsColumn, NumberColumn, ValueColumn
from penstock.state.tabular.conversions import Conversion

CHUNK_NUMBER = 8
TIME = 8


class RawKeys(NamedTuple):
    """Raw keys, taken apart: what is ahead of the key; key and window (*space*); what follows. None: there is no such part."""

    heads: list[bytes] | None
    spaces: list[bytes]
    tails: list[bytes] | None


class EntryPlace(NamedTuple):
    """Where an entry is. `key`: encoded; `tail`: a map's key, encoded, or the number of a list's chunk; `time`: of a timer."""

    key: bytes
    window: bytes = b""
    tail: bytes = b""
    time: Milliseconds | None = None


class StateKind:
    """One kind of state."""

    internal = False
    """A step has it without declaring it: lists of states leave it out."""
    many_keys = False
    """An entry holds the rows of many keys."""
    by_time = False
    """Entries are in order of a time, not of keys."""
    spread = False
    """A value is spread over several entries, which follow one another."""
    in_plain_text = False
    """An entry can be shown by itself, without the columns of its state."""

    def __init__(self, name: str) -> None:
        self.name = name

    # --- raw keys

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys(None, raw_keys, None)

    def place(self, raw_key: bytes, namespace: int) -> EntryPlace:
        """The parts of one raw key."""
        heads, (space,), tails = self.split([raw_key], namespace)
        cut = len(space) - namespace
        time = None if heads is None else time_from_sortable(heads[0])
        return EntryPlace(space[:cut], space[cut:], b"" if tails is None else tails[0], time)

    def join(self, place: EntryPlace) -> bytes:
        """The inverse of `place`."""
        return place.key + place.window + place.tail

    def shared_prefix(self, key: bytes) -> bytes:
        """The beginning of a raw key, or store key, that all keys of one value share."""
        return key

    def keys(self, raw_keys: list[bytes], namespace: int) -> list[bytes]:
        """The encoded key of each."""
        spaces = self.split(raw_keys, namespace).spaces
        return [space[:-namespace] for space in spaces] if namespace else spaces

    def holds(self, key: bytes, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo) -> list[bool]:
        """Which entries are of a key."""
        return [one == key for one in self.keys(raw_keys, info.namespace)]

    def due(self, raw_key: bytes) -> Milliseconds | None:
        """The earliest time at which the entry needs attention; None: never."""
        return None

    # --- by other key groups, and compared

    def regroup(
        self, group: int, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo, key_groups: KeyGroups
    ) -> Iterable[GroupedEntry]:
        """Entries, each with the group that its key has among other key groups; to be sorted."""
        groups = info.grouping(key_groups).of_many(self.keys(raw_keys, info.namespace)).tolist()
        return zip(groups, raw_keys, raw_values, strict=True)

    def merge_regrouped(self, entries: GroupedEntries, info: StateInfo) -> GroupedEntries:
        """The entries, from what `regroup` gave, sorted: where several came together they may become one."""
        return entries

    def contents(self, entries: GroupedEntries, info: StateInfo, watermark: Milliseconds) -> tuple[StateKind, GroupedEntries]:
        """What a state holds for each key, without traces of how it got there; and the kind of these entries."""
        return self, entries

    def shown(self, raw_key: bytes, raw_value: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        """An entry that is `in_plain_text`, for people: what it is of, and its values."""
        raise NotImplementedError

    def rows(self, data: bytes | None) -> dict[bytes, list[Any]]:
        """The rows of each key, of an entry that holds many keys."""
        return {}

    # --- columns

    def columns(self, info: StateInfo, found: Undeclared, *, null_is_nan: bool = False) -> EntryColumns:
        """The columns that entries are shown in. `null_is_nan`: see `conversion_of`."""
        return KeyedColumns(self, info, found, null_is_nan=null_is_nan)

    def tail_columns(self, info: StateInfo, found: Undeclared) -> list[Column]:
        """Of what follows the key."""
        return []

    def value_columns(self, info: StateInfo, conversion: Conversion) -> list[Column]:
        """Of values: one column, after the time they expire if they do; or none."""
        value = ValueColumn("value", conversion, pickled=_is_pickle(info.schema))
        return [ExpiryColumn(), value] if info.ttl else [value]

    # --- values

    def items(self, data: bytes) -> list[bytes]:
        """The items of an entry."""
        return [data]

    def entry(self, items: list[bytes]) -> bytes:
        """The inverse of `items`."""
        return items[0]

    def value(self, place: EntryPlace, items: list[Any]) -> Any:
        """What is kept there, from decoded items."""
        return items[0]

    def values(self, value: Any) -> list[Any]:
        """The inverse of `value`."""
        return [value]

    def of_key(self, rows: list[dict[str, Any]], info: StateInfo) -> Any:
        """What is kept for a key (and window), from its rows as columns show them."""
        return rows[0]["value"]


class ListKind(StateKind):
    """A list: each epoch that appends writes a chunk."""

    spread = True

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys(None, [raw[:-CHUNK_NUMBER] for raw in raw_keys], [raw[-CHUNK_NUMBER:] for raw in raw_keys])

    def join(self, place: EntryPlace) -> bytes:
        return place.key + place.window + (place.tail or bytes(CHUNK_NUMBER))

    def shared_prefix(self, key: bytes) -> bytes:
        return key[:-CHUNK_NUMBER]

    def contents(self, entries: GroupedEntries, info: StateInfo, watermark: Milliseconds) -> tuple[StateKind, GroupedEntries]:
        """The chunks of each list as one."""
        return self, _whole_lists(entries)

    def tail_columns(self, info: StateInfo, found: Undeclared) -> list[Column]:
        return [NumberColumn("chunk")]

    def value_columns(self, info: StateInfo, conversion: Conversion) -> list[Column]:
        return [ItemsColumn("value", conversion, ttl=info.ttl, pickled=_is_pickle(info.schema))]

    def items(self, data: bytes) -> list[bytes]:
        return unframed(data)

    def entry(self, items: list[bytes]) -> bytes:
        return framed(items)

    def value(self, place: EntryPlace, items: list[Any]) -> Any:
        return items

    def values(self, value: Any) -> list[Any]:
        return list(value)

    def of_key(self, rows: list[dict[str, Any]], info: StateInfo) -> Any:
        return [item["value"] if info.ttl else item for row in rows for item in row["value"]]


class MapKind(StateKind):
    """A map: an entry for each of its keys."""

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys(None, *split_map_keys(raw_keys, namespace))

    def tail_columns(self, info: StateInfo, found: Undeclared) -> list[Column]:
        return [key_column("map_key", found.map_key, found.naive, exact=info.sub_schema == "any")]

    def of_key(self, rows: list[dict[str, Any]], info: StateInfo) -> Any:
        return {_hashable(row["map_key"]): row["value"] for row in rows}


class TimerKind(StateKind):
    """Timers: an entry for each, in order of time, without a value."""

    internal = True
    by_time = True

    def split(self, raw_keys: list[bytes], namespace: int) -> RawKeys:
        return RawKeys([raw[:TIME] for raw in raw_keys], [raw[TIME:] for raw in raw_keys], None)

    def join(self, place: EntryPlace) -> bytes:
        assert place.time is not None
        return sortable_time(place.time) + place.key + place.window

    def due(self, raw_key: bytes) -> Milliseconds | None:
        return time_from_sortable(raw_key[:TIME])

    def value_columns(self, info: StateInfo, conversion: Conversion) -> list[Column]:
        return []

    def items(self, data: bytes) -> list[bytes]:
        return []

    def entry(self, items: list[bytes]) -> bytes:
        return b""

    def value(self, place: EntryPlace, items: list[Any]) -> Any:
        return place.time

    def values(self, value: Any) -> list[Any]:
        return []

    def of_key(self, rows: list[dict[str, Any]], info: StateInfo) -> Any:
        return [row["time"] for row in rows]


def _whole_lists(entries: GroupedEntries) -> GroupedEntries:
    flat = ((group, *entry) for group, keys, values in entries for entry in zip(keys, values, strict=True))
    for group, of_group in groupby(flat, key=itemgetter(0)):
        lists = groupby(of_group, key=lambda entry: entry[1][:-CHUNK_NUMBER])
        whole = ((space + bytes(CHUNK_NUMBER), b"".join([data for _, _, data in mine])) for space, mine in lists)
        while part := list(islice(whole, 4096)):
            yield group, [key for key, _ in part], [data for _, data in part]


def _is_pickle(schema: Any) -> bool:
    return isinstance(schema, dict) and "pickle" in schema


def _hashable(key: Any) -> Any:
    if isinstance(key, dict):
        return tuple(_hashable(part) for part in key.values())
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


# --- the registry --------------------------------------------------------------------------------------------------------------

TIMERS = TimerKind("timers")
_KINDS: dict[str, StateKind] = {}


def register(kinds: Iterable[StateKind]) -> None:
    """Make kinds known by their names, which manifests and savepoints keep."""
    for kind in kinds:
        if kind.name in _KINDS:
            raise StateError(f"two kinds of state are named {kind.name!r}")
        _KINDS[kind.name] = kind


def kinds() -> Mapping[str, StateKind]:
    """All of them, by name."""
    return _KINDS


def kind_of(info: StateInfo) -> StateKind:
    """The kind of a state; one that is not known is refused."""
    kind = _KINDS.get(info.kind)
    if kind is None:
        raise StateError(
            f"state {info.name!r} of step {info.step!r} is of kind {info.kind!r}, which is not known",
            hint="a newer Penstock has written it",
        )
    return kind


def state_named(states: Iterable[StateInfo], step: str, name: str | None) -> StateInfo:
    """One of some states by step and name; of a step with a single one that is not internal, by step alone."""
    known = list(states)
    of_step = [state for state in known if state.step == step]
    wanted = [state for state in of_step if (not is_internal(state.kind) if name is None else state.name == name)]
    if len(wanted) == 1:
        return wanted[0]
    if not of_step:
        steps = ", ".join(sorted({state.step for state in known}))
        raise StateError(f"no step {step!r} has state here", hint=f"steps: {steps}" if steps else "there is no state")
    what = f"step {step!r} has several states" if name is None else f"step {step!r} has no state {name!r}"
    raise StateError(what, hint=f"its states: {', '.join(state.name for state in of_step)}")


def is_internal(name: str) -> bool:
    """Does a step have states of this kind for itself?"""
    return name in _KINDS and _KINDS[name].internal


register(map(StateKind, ("value", "reducing", "aggregating", "elements")))
register((ListKind("list"), MapKind("map"), TIMERS))
