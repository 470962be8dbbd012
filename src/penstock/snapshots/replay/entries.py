"""Entries of the state store as people know them: step, state, key, window, value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.ids import Epoch, Milliseconds
from penstock.plan.definition import StateDeclaration
from penstock.plan.nodes import Graph
from penstock.snapshots.replay.result import ABSENT, NO_KEY, StateChange, Window
from penstock.state.descriptors import sub_keys_of
from penstock.state.encoding.keys import KeyCodec, key_codec
from penstock.state.encoding.stored_values import STAMP_SIZE, stamp_of, stamped
from penstock.state.entries.kinds import EntryPlace, kinds
from penstock.state.entries.store_keys import HEAD_SIZE, split_timer_key, state_id_of_store_key
from penstock.state.key_groups import KeyGroups, grouping
from penstock.state.overlay.handles import state_codec
from penstock.windows.window import decode_window

Entry = tuple[bytes, bytes | None, bytes | None]
"""A store key, what was there before, and what is there after."""


class StateForm:
    """How one declared state is kept."""

    def __init__(self, declaration: StateDeclaration) -> None:
        self.step = declaration.step
        self.name = declaration.name
        self.kind = kinds()[declaration.kind]
        self.namespace = declaration.namespace
        self.declaration = declaration
        self.keys: KeyCodec = key_codec(declaration.key_type)
        state = declaration.state
        self.ttl = state is not None and state.ttl is not None
        self.sub_keys = sub_keys_of(state)
        self._codec = None if state is None else state_codec(state)

    def grouping(self, key_groups: KeyGroups) -> KeyGroups:
        return grouping(self.declaration.scope, key_groups)

    def place(self, store_key: bytes) -> EntryPlace:
        return self.kind.place(store_key[HEAD_SIZE:], self.namespace)

    def value(self, place: EntryPlace, entries: Iterable[bytes]) -> Any:
        """The value that entries make: of a timer its time, of a list all its items."""
        return self.kind.value(place, [self._read(item) for data in entries for item in self.kind.items(data)])

    def expiries(self, entries: Iterable[bytes]) -> list[Milliseconds]:
        """When items expire, if they do."""
        return [stamp_of(item) for data in entries for item in self.kind.items(data)] if self.ttl else []

    def encode(self, value: Any, expires: Milliseconds | None = None) -> bytes:
        """An item."""
        assert self._codec is not None
        data = self._codec.write(value)
        return stamped(expires or 0, data) if self.ttl else data

    def _read(self, data: bytes) -> Any:
        assert self._codec is not None
        return self._codec.read(data[STAMP_SIZE:] if self.ttl else data)


class StateForms(dict[int, StateForm]):
    """The states of a program by their id."""

    @classmethod
    def of(cls, graph: Graph, ids: dict[tuple[str, str], int]) -> StateForms:
        return cls({ids[d.step, d.name]: StateForm(d) for node in graph for d in node.states()})

    def of_entry(self, store_key: bytes) -> StateForm | None:
        return self.get(state_id_of_store_key(store_key))

    def shared_prefix(self, store_key: bytes) -> bytes:
        """What the store keys begin with of all entries that make one value."""
        form = self.of_entry(store_key)
        return store_key if form is None else form.kind.shared_prefix(store_key)

    def changes(
        self, epoch: Epoch, entries: Iterable[Entry], chunks_before: Callable[[bytes], Iterable[tuple[bytes, bytes]]]
    ) -> list[StateChange]:
        """Entries as changes; `chunks_before` gives all entries that begin with a prefix as they were before."""
        found: list[StateChange] = []
        changed: dict[bytes, dict[bytes, tuple[bytes | None, bytes | None]]] = {}
        chunks: dict[tuple[int, int], tuple[StateForm, list[Entry]]] = {}
        for store_key, before, after in entries:
            form = self.of_entry(store_key)
            if form is None:
                continue
            if form.kind.many_keys:
                time = split_timer_key(store_key)[2]
                chunks.setdefault((state_id_of_store_key(store_key), time), (form, []))[1].append((store_key, before, after))
            elif form.kind.spread or before != after:
                changed.setdefault(self.shared_prefix(store_key), {})[store_key] = before, after
        for whole, mine in changed.items():
            form = self.of_entry(whole)
            assert form is not None
            was: dict[bytes, bytes | None] = {key: before for key, (before, _) in mine.items()}
            if form.kind.spread:
                was = dict(chunks_before(whole))
            now = {**was, **{key: after for key, (_, after) in mine.items()}}
            found.append(_change(epoch, form, next(iter(mine)), was, now))
        for (_, time), (form, rows) in chunks.items():
            found += _row_changes(epoch, form, time, rows)
        return found


def _change(
    epoch: Epoch, form: StateForm, store_key: bytes, before: dict[bytes, bytes | None], after: dict[bytes, bytes | None]
) -> StateChange:
    place = form.place(store_key)
    return StateChange(
        epoch=epoch,
        state=form.name,
        kind=form.kind.name,
        key=readable_key(form, place.key),
        window=window_of(place.window),
        map_key=NO_KEY if form.sub_keys is None else form.sub_keys.decode(place.tail),
        before=readable(form, place, (data for _, data in sorted(before.items()))),
        after=readable(form, place, (data for _, data in sorted(after.items()))),
    )


def _row_changes(epoch: Epoch, form: StateForm, time: int, entries: list[Entry]) -> list[StateChange]:
    """Chunks of one time: the rows of each key that are others than before."""
    before: dict[bytes, list[Any]] = {}
    after: dict[bytes, list[Any]] = {}
    for _, was, now in entries:
        for rows, data in ((before, was), (after, now)):
            for key, more in form.kind.rows(data).items():
                rows.setdefault(key, []).extend(more)
    return [
        StateChange(
            epoch=epoch,
            state=form.name,
            kind=form.kind.name,
            key=readable_key(form, key),
            map_key=time,
            before=_row(before[key]) if key in before else ABSENT,
            after=_row(after[key]) if key in after else ABSENT,
        )
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def _row(rows: list[Any]) -> Any:
    return rows[0] if len(rows) == 1 else rows


def readable(form: StateForm, place: EntryPlace, entries: Iterable[bytes | None]) -> Any:
    """The value that entries make; their bytes, if they cannot be read any more."""
    there = [data for data in entries if data is not None]
    if not there:
        return ABSENT
    try:
        return form.value(place, there)
    except Exception:
        return there if form.kind.spread else there[0]


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
