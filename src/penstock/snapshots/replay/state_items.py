"""State of a step as a list of items that a person can read and change: state, key, window, value; and back into entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from penstock.errors import StateError
from penstock.snapshots.replay.entries import StateForm, StateForms, window_of
from penstock.snapshots.replay.result import NO_KEY, Window
from penstock.state.encoding.json_values import from_plain, to_plain
from penstock.state.entries.kinds import EntryPlace
from penstock.state.entries.store_keys import value_prefix
from penstock.state.key_groups import KeyGroups
from penstock.windows.window import TimeWindow, encode_window


@dataclass(frozen=True, slots=True, kw_only=True)
class StateItem:
    """What a state holds for a key. Of a list: all elements; of timers: the time of one."""

    state: str
    key: Any
    value: Any
    window: Window | None = None
    map_key: Any = NO_KEY
    expires: Any = None

    def to_plain(self) -> dict[str, Any]:
        data = {"state": self.state, "key": to_plain(self.key)}
        if self.window is not None:
            data["window"] = list(self.window)
        if self.map_key is not NO_KEY:
            data["map_key"] = to_plain(self.map_key)
        data["value"] = to_plain(self.value)
        if self.expires is not None:
            data["expires"] = self.expires
        return data

    @classmethod
    def from_plain(cls, data: dict[str, Any], find: Callable[[str], type]) -> StateItem:
        return cls(
            state=data["state"],
            key=from_plain(data["key"], find),
            value=from_plain(data["value"], find),
            window=None if "window" not in data else (data["window"][0], data["window"][1]),
            map_key=from_plain(data["map_key"], find) if "map_key" in data else NO_KEY,
            expires=data.get("expires"),
        )

    def place(self) -> tuple[Any, ...]:
        """What it is the value of."""
        at = repr(self.value) if self.state.startswith("timers:") else ""
        return self.state, repr(self.key), self.window, repr(self.map_key), at


def items_of(forms: StateForms, entries: Iterable[tuple[bytes, bytes]]) -> list[StateItem]:
    """Entries, in order of their store keys, as items. Chunks of windows over columns are left out."""
    found: list[StateItem] = []
    for store_key, mine in groupby(sorted(entries), key=lambda entry: forms.shared_prefix(entry[0])):
        form = forms.of_entry(store_key)
        if form is None or form.kind.many_keys:
            continue
        stored = list(mine)
        place, data = form.place(stored[0][0]), [data for _, data in stored]
        expiries: Any = form.expiries(data) or None
        found.append(
            StateItem(
                state=form.name,
                key=form.keys.decode(place.key),
                window=window_of(place.window),
                map_key=NO_KEY if form.sub_keys is None else form.sub_keys.decode(place.tail),
                value=form.value(place, data),
                expires=expiries if form.kind.spread or expiries is None else expiries[0],
            )
        )
    return found


def entries_of(forms: StateForms, items: Iterable[StateItem], key_groups: KeyGroups) -> list[tuple[bytes, bytes]]:
    """The inverse of `items_of`, sorted."""
    by_name = {form.name: (number, form) for number, form in forms.items()}
    found: dict[bytes, bytes] = {}
    for item in items:
        if item.state not in by_name:
            raise StateError(
                f"the step has no state {item.state!r}, and the recorded case has some",
                detail=f"its states: {', '.join(form.name for form in forms.values() if not form.kind.internal) or 'none'}",
                hint="was it renamed? Change its name in the file too",
            )
        number, form = by_name[item.state]
        found.update([_entry(number, form, item, key_groups)])
    return sorted(found.items())


def _entry(number: int, form: StateForm, item: StateItem, key_groups: KeyGroups) -> tuple[bytes, bytes]:
    key = form.keys.encode(item.key)
    group = form.grouping(key_groups).of(key)
    window = b"" if item.window is None else encode_window(TimeWindow(*item.window))
    tail = b"" if form.sub_keys is None else form.sub_keys.encode(item.map_key)
    place = EntryPlace(key, window, tail, item.value if form.kind.by_time else None)
    values = form.kind.values(item.value)
    expiries = item.expires if isinstance(item.expires, list) else [item.expires] * len(values)
    items = [form.encode(value, expires) for value, expires in zip(values, expiries, strict=True)]
    return value_prefix(group, number) + form.kind.join(place), form.kind.entry(items)
