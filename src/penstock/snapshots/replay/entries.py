"""Entries of the state store as people know them: step, state, key, window, value.

value       group · state id · key · [window]                       → value
map         group · state id · key · [window] · map key             → value
list        group · state id · key · [window] · number of a chunk   → elements
timers      group · state id · time · key · [window]
chunks      group · state id · time · level                         → rows, one for each key
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.ids import Epoch
from penstock.plan.definition import StateDeclaration
from penstock.plan.nodes import Graph
from penstock.snapshots.replay.result import ABSENT, NO_KEY, StateChange, Window
from penstock.state.descriptors import MapState
from penstock.state.encoding.keys import KeyCodec, key_codec
from penstock.state.entries.entry_keys import end_of_value
from penstock.state.entries.layout import HEAD_SIZE, TIMER_HEAD_SIZE, split_timer_key, state_id_of_store_key
from penstock.state.overlay.handles import state_codec
from penstock.windows.columnar.vectors import load_vector
from penstock.windows.window import decode_window

VALUES = frozenset(("value", "reducing", "aggregating"))
CHUNK_NUMBER = 8

Entry = tuple[bytes, bytes | None, bytes | None]
"""A store key, what was there before, and what is there after."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is. `key`: encoded, without its window; `sub`: a map's key, encoded, or a list's chunk; `time`: of a timer
    or chunk."""

    key: bytes
    window: bytes = b""
    sub: bytes = b""
    time: int | None = None


class StateForm:
    """How one declared state is kept."""

    def __init__(self, declaration: StateDeclaration) -> None:
        self.step = declaration.step
        self.name = declaration.name
        self.kind = declaration.kind
        self.namespace = declaration.namespace
        self.declaration = declaration
        self.keys: KeyCodec = key_codec(declaration.key_type)
        state = declaration.state
        self.ttl = state is not None and state.ttl is not None
        self.sub_keys: KeyCodec | None = key_codec(state.key_type) if isinstance(state, MapState) else None
        self._codec = None if state is None else state_codec(state)

    @property
    def chunked(self) -> bool:
        """Rows of many keys in one entry: windows over columns."""
        return self.kind != "timers" and self._codec is None

    def place(self, store_key: bytes) -> Place:
        if self.kind == "timers":
            time, encoded = split_timer_key(store_key)[2:]
            key, window = self._without_window(encoded)
            return Place(key, window, time=time)
        if self.chunked:
            return Place(b"", sub=store_key[TIMER_HEAD_SIZE:], time=split_timer_key(store_key)[2])
        rest = store_key[HEAD_SIZE:]
        if self.kind in VALUES:
            return Place(*self._without_window(rest))
        if self.kind == "list":
            return Place(*self._without_window(rest[:-CHUNK_NUMBER]), sub=rest[-CHUNK_NUMBER:])
        end = end_of_value(rest)
        return Place(rest[:end], rest[end : end + self.namespace], rest[end + self.namespace :])

    def _without_window(self, encoded: bytes) -> tuple[bytes, bytes]:
        cut = len(encoded) - self.namespace
        return encoded[:cut], encoded[cut:]

    def value(self, data: bytes) -> Any:
        """The value of an entry; of a list's chunk, its elements."""
        if self.kind == "list":
            return [self._one(element) for element in elements_of(data)]
        return self._one(data)

    def expiry(self, data: bytes) -> int | None:
        """When a value, or a list's element, expires."""
        return int.from_bytes(data[:8], "big", signed=True) if self.ttl else None

    def encode(self, value: Any, expires: int | None = None) -> bytes:
        """The inverse of `value`, for one value or element."""
        assert self._codec is not None
        data = self._codec.write(value)
        return (expires or 0).to_bytes(8, "big", signed=True) + data if self.ttl else data

    def _one(self, data: bytes) -> Any:
        assert self._codec is not None
        return self._codec.read(data[8:] if self.ttl else data)

    def rows(self, data: bytes | None) -> dict[bytes, list[Any]]:
        """The rows of a chunk by encoded key: for each aggregate its vectors' values."""
        if data is None:
            return {}
        _, _, keys, vectors = msgspec.msgpack.decode(data, type=tuple[int, str, list[bytes], list[list[tuple[str, bytes]]]])
        columns = [[load_vector(kind, blob).tolist() for kind, blob in each] for each in vectors]
        found: dict[bytes, list[Any]] = {}
        for number, key in enumerate(keys):
            row = _unboxed([_unboxed([vector[number] for vector in each]) for each in columns])
            found.setdefault(key, []).append(row)
        return found


def _unboxed(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


class StateForms(dict[int, StateForm]):
    """The states of a program by their id."""

    @classmethod
    def of(cls, graph: Graph, ids: dict[tuple[str, str], int]) -> StateForms:
        return cls({ids[d.step, d.name]: StateForm(d) for node in graph for d in node.states()})

    def of_entry(self, store_key: bytes) -> StateForm | None:
        return self.get(state_id_of_store_key(store_key))

    def changes(
        self, epoch: Epoch, entries: Iterable[Entry], chunks_before: Callable[[bytes], Iterable[tuple[bytes, bytes]]]
    ) -> list[StateChange]:
        """Entries as changes; `chunks_before` gives all entries that begin with a prefix as they were before."""
        found: list[StateChange] = []
        lists: dict[bytes, dict[bytes, bytes | None]] = {}
        chunks: dict[tuple[int, int], tuple[StateForm, list[Entry]]] = {}
        for store_key, before, after in entries:
            form = self.of_entry(store_key)
            if form is None:
                continue
            if form.chunked:
                time = split_timer_key(store_key)[2]
                chunks.setdefault((state_id_of_store_key(store_key), time), (form, []))[1].append((store_key, before, after))
            elif form.kind == "list":
                lists.setdefault(store_key[:-CHUNK_NUMBER], {})[store_key] = after
            elif before != after:
                found.append(_change(epoch, form, store_key, before, after))
        for prefix, changed in lists.items():
            form = self.of_entry(prefix)
            assert form is not None
            was: dict[bytes, bytes | None] = dict(chunks_before(prefix))
            now = {**was, **changed}
            place = form.place(prefix + bytes(CHUNK_NUMBER))
            found.append(
                StateChange(
                    epoch=epoch,
                    state=form.name,
                    kind=form.kind,
                    key=readable_key(form, place.key),
                    window=window_of(place.window),
                    before=_elements(form, was),
                    after=_elements(form, now),
                )
            )
        for (_, time), (form, mine) in chunks.items():
            found += _row_changes(epoch, form, time, mine)
        return found


def _change(epoch: Epoch, form: StateForm, store_key: bytes, before: bytes | None, after: bytes | None) -> StateChange:
    place = form.place(store_key)
    change = StateChange(
        epoch=epoch,
        state=form.name,
        kind=form.kind,
        key=readable_key(form, place.key),
        window=window_of(place.window),
    )
    if form.kind == "timers":
        change.before = ABSENT if before is None else place.time
        change.after = ABSENT if after is None else place.time
        return change
    if form.sub_keys is not None:
        change.map_key = form.sub_keys.decode(place.sub)
    change.before, change.after = readable(form, before), readable(form, after)
    return change


def _row_changes(epoch: Epoch, form: StateForm, time: int, entries: list[Entry]) -> list[StateChange]:
    """Chunks of one time: the rows of each key that are others than before."""
    before: dict[bytes, list[Any]] = {}
    after: dict[bytes, list[Any]] = {}
    for _, was, now in entries:
        for rows, data in ((before, was), (after, now)):
            for key, more in form.rows(data).items():
                rows.setdefault(key, []).extend(more)
    return [
        StateChange(
            epoch=epoch,
            state=form.name,
            kind=form.kind,
            key=readable_key(form, key),
            map_key=time,
            before=_unboxed(before[key]) if key in before else ABSENT,
            after=_unboxed(after[key]) if key in after else ABSENT,
        )
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def readable(form: StateForm, data: bytes | None) -> Any:
    """A value; its bytes, if they cannot be read any more."""
    if data is None:
        return ABSENT
    try:
        return form.value(data)
    except Exception:
        return data


def readable_key(form: StateForm, key: bytes) -> Any:
    try:
        return form.keys.decode(key) if key else NO_KEY
    except Exception:
        return key


def window_of(encoded: bytes) -> Window | None:
    if not encoded:
        return None
    window = decode_window(encoded)
    return window.start, window.end


def _elements(form: StateForm, chunks: dict[bytes, bytes | None]) -> Any:
    held = [data for _, data in sorted(chunks.items()) if data is not None]
    if not held:
        return ABSENT
    try:
        return [element for data in held for element in form.value(data)]
    except Exception:
        return held


def elements_of(chunk: bytes) -> list[bytes]:
    """The encoded elements of a list's chunk."""
    found, at = [], 0
    while at < len(chunk):
        size = int.from_bytes(chunk[at : at + 4], "big")
        found.append(chunk[at + 4 : at + 4 + size])
        at += 4 + size
    return found
