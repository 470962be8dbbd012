"""Operator state: a list of each partition of a step.

An element is an entry of its own, under the key (epoch, number, position): when it was added, and a position that says which
group it was dealt to (`DealtGroups`). So other partitions take over elements with their groups, in the order they were added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.ids import Epoch, Milliseconds
from penstock.state.descriptors import OperatorListState
from penstock.state.encoding.keys import decode_key, encode_key
from penstock.state.entries.store_keys import HEAD_SIZE, value_prefix
from penstock.state.key_groups import DealtGroups
from penstock.state.overlay.handles import Changes, state_codec
from penstock.state.overlay.keyed import Committed, Slot
from penstock.state.overlay.writes import StateLabel, Writes

ElementKey = tuple[int, int, int]
"""Epoch, number in the epoch, position."""


def element_keys(epoch: Epoch, state_id: int, groups: range, key_groups: DealtGroups) -> Iterator[bytes]:
    """The store keys of elements that are added in an epoch by the partition that owns these groups: dealt out in turn."""
    number = 0
    while True:
        group = groups[(epoch + number) % len(groups)]
        yield value_prefix(group, state_id) + encode_key((epoch, number, key_groups.position(group)))
        number += 1


def element_key(store_key: bytes) -> ElementKey:
    key: ElementKey = decode_key(store_key[HEAD_SIZE:])
    return key


class OperatorList:
    """`OperatorListState`, for one epoch."""

    def __init__(
        self,
        committed: Committed,
        state: OperatorListState[Any],
        *,
        epoch: Epoch,
        state_id: int,
        groups: range,
        key_groups: DealtGroups,
        label: StateLabel,
    ) -> None:
        self._committed = committed
        self._epoch = epoch
        self._state_id = state_id
        self._groups = groups
        self._key_groups = key_groups
        self._label = label
        self._codec = state_codec(state)
        self._writes = Writes(self._codec, label, lambda slot: None)
        self._slot = Slot(None, b"", 0, [])
        self._loaded: dict[bytes, Any] | None = None
        """What is committed, by store key, in order; None as long as nobody has asked."""
        self._added: list[Any] = []
        self._removed: list[bytes] = []

    def add(self, value: Any) -> None:
        self._added.append(self._admitted(value))

    append = add

    def extend(self, values: Iterable[Any]) -> None:
        self._added += [self._admitted(value) for value in values]

    def update(self, values: Iterable[Any]) -> None:
        fresh = [self._admitted(value) for value in values]
        self.clear()
        self._added = fresh

    def clear(self) -> None:
        self._removed += self._load()
        self._loaded, self._added = {}, []

    def __iter__(self) -> Iterator[Any]:
        return iter([*self._load().values(), *self._added])

    def __len__(self) -> int:
        return len(self._load()) + len(self._added)

    def _admitted(self, value: Any) -> Any:
        outer = self._writes.outer
        return value if outer is None or type(value) is outer else self._writes.admit(value, self._slot)

    def _load(self) -> dict[bytes, Any]:
        if self._loaded is None:
            found = [entry for group in self._groups for entry in self._committed.scan(value_prefix(group, self._state_id))]
            found.sort(key=lambda entry: element_key(entry[0]))
            try:
                self._loaded = {key: self._codec.decode(data) for key, data in found}
            except Exception as error:
                raise self._codec.failure(error, where=str(self._label)) from error
        return self._loaded

    def changes(self) -> Changes:
        """New elements, removed ones, and those that were changed in label."""
        out: Changes = [(key, None) for key in self._removed]
        keys = element_keys(self._epoch, self._state_id, self._groups, self._key_groups)
        out += ((next(keys), self._writes.encode(value, self._slot)) for value in self._added)
        if self._loaded and self._codec.mutable:
            stored = self._committed.get_many([*self._loaded])
            written = ((key, self._writes.encode(value, self._slot)) for key, value in self._loaded.items())
            out += ((key, data) for key, data in written if data != stored[key])
        out.sort()
        return out

    def next_due(self) -> dict[int, Milliseconds]:
        return {}

    def close(self) -> None:
        """Let go of everything."""
        self._loaded, self._added = {}, []
