"""Handles of list and map state.

A list is kept in chunks: what one epoch appends to a key is one entry, so appending costs what is appended. A map has an
entry for each of its keys. Both are read in the order of their encoded sub-keys, whichever epoch wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.errors import StateError
from penstock.state.descriptors import ListState, MapState
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.stored_values import framed, stamped, unframed
from penstock.state.overlay.handles import Changes, Expiry, Handle, _read_stamped
from penstock.state.overlay.keyed import CHANGED, UNLOADED, KeyedState, Slot, store_key
from penstock.state.overlay.writes import StateLabel

MISSING: Any = object()

_AS_THEY_ARE = frozenset((str, int, bytes, bool, float, type(None)))
"""Keys of maps that are kept as they are given; others as they will be read."""


class _MapCell:
    """What the task knows of one key's map: encoded sub-key → [sub-key, value, changed?]."""

    __slots__ = ("complete", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, list[Any]] = {}
        self.complete = False


class MapHandle(Handle):
    """`MapState`."""

    def __init__(self, keyed: KeyedState, cell: int, state: MapState[Any, Any], state_id: int, label: StateLabel) -> None:
        super().__init__(keyed, cell, state, state_id, label)
        self._keys = key_codec(state.key_type)
        self._expiry = None if state.ttl is None else Expiry(keyed, state.ttl)

    def absent(self) -> _MapCell:
        cell = _MapCell()
        cell.complete = True
        return cell

    def get(self, key: Any, default: Any = None) -> Any:
        entry = self._entry(self._keyed.slot, self._keys.encode(key), key)
        return default if entry[1] is MISSING else self._seen(entry)

    def __getitem__(self, key: Any) -> Any:
        entry = self._entry(self._keyed.slot, self._keys.encode(key), key)
        if entry[1] is MISSING:
            raise KeyError(key)
        return self._seen(entry)

    def __contains__(self, key: Any) -> bool:
        return self._entry(self._keyed.slot, self._keys.encode(key), key)[1] is not MISSING

    def put(self, key: Any, value: Any) -> None:
        slot = self._keyed.slot
        try:
            encoded = self._keys.encode(key)
        except StateError as error:
            raise self._writes.bad_key(error, key, slot) from None
        if self._outer is not None and type(value) is not self._outer:
            value = self._admit(value, slot, key)
        if type(key) not in _AS_THEY_ARE:
            key = self._keys.decode(encoded)
        held = value if self._expiry is None else (self._expiry.stamp(slot), value)
        self._cell(slot).entries[encoded] = [key, held, True]
        slot.cells[self._flag] = CHANGED

    __setitem__ = put

    def amend(self, key: Any, value: Any) -> None:
        """Another value for an entry that is there; it does not live longer, or shorter, for that."""
        before = self._entry(self._keyed.slot, self._keys.encode(key), key)[1]
        if before is MISSING:
            raise KeyError(key)
        self.put(key, value)
        if self._expiry is not None:
            entry = self._entry(self._keyed.slot, self._keys.encode(key), key)
            entry[1] = (before[0], entry[1][1])

    def remove(self, key: Any) -> None:
        slot = self._keyed.slot
        self._cell(slot).entries[self._keys.encode(key)] = [key, MISSING, True]
        slot.cells[self._flag] = CHANGED

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self.remove(key)

    def clear(self) -> None:
        slot = self._keyed.slot
        for entry in self._load_all(slot).entries.values():
            entry[1:] = [MISSING, True]
        slot.cells[self._flag] = CHANGED

    def items(self) -> Iterator[tuple[Any, Any]]:
        live = [e for _, e in sorted(self._load_all(self._keyed.slot).entries.items()) if e[1] is not MISSING]
        return iter([(entry[0], self._seen(entry)) for entry in live])

    def keys(self) -> Iterator[Any]:
        return iter([e[0] for _, e in sorted(self._load_all(self._keyed.slot).entries.items()) if e[1] is not MISSING])

    __iter__ = keys

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def __len__(self) -> int:
        return sum(e[1] is not MISSING for e in self._load_all(self._keyed.slot).entries.values())

    def __bool__(self) -> bool:
        return len(self) > 0

    def _seen(self, entry: list[Any]) -> Any:
        """The value of an entry, marked if it may be changed in place or lives on by being read."""
        if self._expiry is not None:
            slot = self._keyed.slot
            if self._expiry.on_read:
                entry[1] = (self._expiry.stamp(slot), entry[1][1])
            if self._expiry.on_read or self._codec.mutable:
                entry[2] = True
                slot.cells[self._flag] = CHANGED
            return entry[1][1]
        if self._codec.mutable and not entry[2]:
            entry[2] = True
            self._keyed.slot.cells[self._flag] = CHANGED
        return entry[1]

    def _cell(self, slot: Slot) -> _MapCell:
        cell = slot.cells[self.cell]
        if cell is UNLOADED:
            cell = slot.cells[self.cell] = _MapCell()
        return cell  # type: ignore[no-any-return]

    def _entry(self, slot: Slot, encoded: bytes, key: Any) -> list[Any]:
        cell = self._cell(slot)
        entry = cell.entries.get(encoded)
        if entry is None:
            data = None if cell.complete else self._keyed.committed.get(store_key(slot, self._state_id) + encoded)
            entry = cell.entries[encoded] = [key, MISSING if data is None else self._read(data), False]
        self._expire(slot, entry)
        return entry

    def _load_all(self, slot: Slot) -> _MapCell:
        cell = self._cell(slot)
        if not cell.complete:
            prefix = store_key(slot, self._state_id)
            for full, data in self._keyed.committed.scan(prefix):
                encoded = full[len(prefix) :]
                if encoded not in cell.entries:
                    cell.entries[encoded] = [self._keys.decode(encoded), self._read(data), False]
            cell.complete = True
        for entry in cell.entries.values():
            self._expire(slot, entry)
        return cell

    def _expire(self, slot: Slot, entry: list[Any]) -> None:
        if self._expiry is not None and entry[1] is not MISSING and entry[1][0] <= self._expiry.now():
            entry[1:] = [MISSING, True]
            slot.cells[self._flag] = CHANGED

    def purge(self, slot: Slot) -> None:
        if self._expiry is not None:
            self._load_all(slot)

    def _read(self, data: bytes) -> Any:
        return self._decode(data) if self._expiry is None else _read_stamped(data, self._decode)

    def changes(self, slot: Slot, out: Changes) -> None:
        prefix = store_key(slot, self._state_id)
        for encoded, (sub, value, changed) in slot.cells[self.cell].entries.items():
            if not changed:
                continue
            if value is MISSING:
                self._remove(prefix + encoded, out)
            elif self._expiry is None:
                out.append((prefix + encoded, self._encode(value, slot, sub)))
            else:
                out.append((prefix + encoded, stamped(value[0], self._encode(value[1], slot, sub))))


class _ListCell:
    """What the task knows of one key's list: new elements, and the stored chunks once they were read."""

    __slots__ = ("added", "chunks", "first", "loaded", "rewritten")

    def __init__(self) -> None:
        self.added: list[Any] = []
        self.loaded: list[Any] | None = None
        self.chunks: list[bytes] = []
        self.rewritten = False


class ListHandle(Handle):
    """`ListState`. Elements of a list with a time to live are (expiry, element)."""

    def __init__(self, keyed: KeyedState, cell: int, state: ListState[Any], state_id: int, label: StateLabel) -> None:
        super().__init__(keyed, cell, state, state_id, label)
        self._expiry = None if state.ttl is None else Expiry(keyed, state.ttl)

    def absent(self) -> _ListCell:
        cell = _ListCell()
        cell.loaded = []
        return cell

    def add(self, value: Any) -> None:
        slot = self._keyed.slot
        if self._outer is not None and type(value) is not self._outer:
            value = self._admit(value, slot)
        self._cell(slot).added.append(self._stamp(slot, value))
        slot.cells[self._flag] = CHANGED

    append = add

    def extend(self, values: Iterable[Any]) -> None:
        slot = self._keyed.slot
        added = [self._stamp(slot, value) for value in self._admitted(values, slot)]
        self._cell(slot).added += added
        slot.cells[self._flag] = CHANGED

    def update(self, values: Iterable[Any]) -> None:
        fresh = self._admitted(values, self._keyed.slot)
        self.clear()
        self.extend(fresh)

    def _admitted(self, values: Iterable[Any], slot: Slot) -> list[Any]:
        """The elements to keep; all of them, or an error before any is kept."""
        outer, admit = self._outer, self._admit
        if outer is None:
            return list(values)
        return [value if type(value) is outer else admit(value, slot) for value in values]

    def clear(self) -> None:
        slot = self._keyed.slot
        cell = self._load(slot)
        cell.loaded, cell.added, cell.rewritten = [], [], True
        slot.cells[self._flag] = CHANGED

    def __iter__(self) -> Iterator[Any]:
        slot = self._keyed.slot
        elements = self.held()
        if self._codec.mutable and elements:
            slot.cells[self.cell].rewritten = True
            slot.cells[self._flag] = CHANGED
        return iter(elements)

    def held(self) -> list[Any]:
        """The elements, for a reader that changes none of them."""
        cell = self._load(self._keyed.slot)
        assert cell.loaded is not None
        elements = cell.loaded + cell.added
        return elements if self._expiry is None else [element for _, element in elements]

    def merge(self, held: list[Any]) -> None:
        """Take in the elements of another key or window."""
        self.extend(held)

    def __len__(self) -> int:
        cell = self._load(self._keyed.slot)
        assert cell.loaded is not None
        return len(cell.loaded) + len(cell.added)

    def __bool__(self) -> bool:
        return len(self) > 0

    def _stamp(self, slot: Slot, value: Any) -> Any:
        return value if self._expiry is None else (self._expiry.stamp(slot), value)

    def _cell(self, slot: Slot) -> _ListCell:
        cell = slot.cells[self.cell]
        if cell is UNLOADED:
            cell = slot.cells[self.cell] = _ListCell()
        return cell  # type: ignore[no-any-return]

    def _load(self, slot: Slot) -> _ListCell:
        cell = self._cell(slot)
        if cell.loaded is None:
            cell.loaded = []
            for full, data in self._keyed.committed.scan(store_key(slot, self._state_id)):
                cell.chunks.append(full)
                cell.loaded += self._read_chunk(data)
        self._expire(slot, cell)
        return cell

    def _expire(self, slot: Slot, cell: _ListCell) -> None:
        if self._expiry is None:
            return
        assert cell.loaded is not None
        now = self._expiry.now()
        if any(expires <= now for expires, _ in cell.loaded + cell.added):
            cell.loaded = [e for e in cell.loaded if e[0] > now]
            cell.added = [e for e in cell.added if e[0] > now]
            cell.rewritten = True
            slot.cells[self._flag] = CHANGED

    def purge(self, slot: Slot) -> None:
        if self._expiry is not None:
            self._load(slot)

    def _read_chunk(self, data: bytes) -> list[Any]:
        if self._expiry is None:
            return list(map(self._decode, unframed(data)))
        return [_read_stamped(element, self._decode) for element in unframed(data)]

    def _write_chunk(self, elements: list[Any], slot: Slot) -> bytes:
        encode = self._encode
        if self._expiry is None:
            return framed([encode(element, slot) for element in elements])
        return framed([stamped(expires, encode(element, slot)) for expires, element in elements])

    def changes(self, slot: Slot, out: Changes) -> None:
        cell: _ListCell = slot.cells[self.cell]
        prefix = store_key(slot, self._state_id)
        if not cell.rewritten:
            if cell.added:
                out.append((prefix + self._next_chunk(cell, prefix).to_bytes(8, "big"), self._write_chunk(cell.added, slot)))
            return
        assert cell.loaded is not None
        elements = cell.loaded + cell.added
        first = prefix + bytes(8)
        out += [(chunk, None) for chunk in cell.chunks if chunk != first or not elements]
        if elements:
            out.append((first, self._write_chunk(elements, slot)))

    def _next_chunk(self, cell: _ListCell, prefix: bytes) -> int:
        if cell.loaded is None:
            cell.chunks = [full for full, _ in self._keyed.committed.scan(prefix)]
        return int.from_bytes(cell.chunks[-1][len(prefix) :], "big") + 1 if cell.chunks else 0
