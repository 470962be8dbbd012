"""State of a step as a list of items that a person can read and change: state, key, window, value; and back into entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StateError
from penstock.snapshots.replay.entries import CHUNK_NUMBER, StateForm, StateForms, elements_of, window_of
from penstock.snapshots.replay.plain_values import from_plain, to_plain
from penstock.snapshots.replay.result import NO_KEY, Window
from penstock.state.entries.layout import timer_key, value_prefix
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
    lists: dict[bytes, list[bytes]] = {}
    for store_key, data in sorted(entries):
        form = forms.of_entry(store_key)
        if form is None or form.chunked:
            continue
        if form.kind == "list":
            lists.setdefault(store_key[:-CHUNK_NUMBER], []).extend(elements_of(data))
            continue
        place = form.place(store_key)
        found.append(
            StateItem(
                state=form.name,
                key=form.keys.decode(place.key),
                window=window_of(place.window),
                map_key=NO_KEY if form.sub_keys is None else form.sub_keys.decode(place.sub),
                value=place.time if form.kind == "timers" else form.value(data),
                expires=None if form.kind == "timers" else form.expiry(data),
            )
        )
    for prefix, elements in lists.items():
        form = forms.of_entry(prefix)
        assert form is not None
        place = form.place(prefix + bytes(CHUNK_NUMBER))
        chunk = b"".join(len(element).to_bytes(4, "big") + element for element in elements)
        found.append(
            StateItem(
                state=form.name,
                key=form.keys.decode(place.key),
                window=window_of(place.window),
                value=form.value(chunk),
                expires=[form.expiry(element) for element in elements] if form.ttl else None,
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
                detail=f"its states: {', '.join(name for name in by_name if not name.startswith('timers:')) or 'none'}",
                hint="was it renamed? Change its name in the file too",
            )
        number, form = by_name[item.state]
        found.update([_entry(number, form, item, key_groups)])
    return sorted(found.items())


def _entry(number: int, form: StateForm, item: StateItem, key_groups: KeyGroups) -> tuple[bytes, bytes]:
    key = form.keys.encode(item.key)
    group = key_groups.of(key)
    if item.window is not None:
        key += encode_window(TimeWindow(*item.window))
    if form.kind == "timers":
        return timer_key(group, number, item.value, key), b""
    prefix = value_prefix(group, number) + key
    if form.kind == "list":
        expiries = item.expires or [None] * len(item.value)
        elements = [form.encode(value, expires) for value, expires in zip(item.value, expiries, strict=True)]
        return prefix + bytes(CHUNK_NUMBER), b"".join(len(one).to_bytes(4, "big") + one for one in elements)
    if form.sub_keys is not None:
        prefix += form.sub_keys.encode(item.map_key)
    return prefix, form.encode(item.value, item.expires)
