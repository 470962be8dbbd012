"""What a program means, said as plainly as possible: one process, one dict for each state, no epochs.

The property tests compare the engine with these. They are slow and short on purpose.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.functions import OutputTag
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.state.descriptors import AggregatingState, ListState, MapState, ReducingState, State, ValueState, declared_states
from penstock.state.encoding.keys import encode_key
from penstock.testing.markers import End, ProcessingTime, Record, Watermark, as_items

Emission = tuple[Any, Any]
"""(key, value) of what a function emitted."""


def running_counts(values: Iterable[Any], key: Callable[[Any], Any]) -> list[tuple[Any, int]]:
    """(key, how many so far) for each value."""
    counts: dict[Any, int] = defaultdict(int)
    out = []
    for value in values:
        counts[key(value)] += 1
        out.append((key(value), counts[key(value)]))
    return out


def running_sums(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """(key, sum so far) for each (key, number)."""
    sums: dict[Any, Any] = {}
    out = []
    for key, number in pairs:
        sums[key] = sums[key] + number if key in sums else number
        out.append((key, sums[key]))
    return out


def run_reference(function: Any, script: Iterable[Any], key: Callable[[Any], Any], *, now: Milliseconds = 0) -> list[Emission]:
    """Everything a `KeyedProcessFunction` emits on the script of one partition, in order."""
    return Reference(function, key, now=now).run(script)


class Reference:
    """A keyed process function on dicts. It is its own context: `key`, `timestamp`, `timers`, `output`."""

    def __init__(self, function: Any, key: Callable[[Any], Any], *, now: Milliseconds = 0) -> None:
        self._function = copy.copy(function)
        self._key_of = key
        self.current_processing_time = now
        self.current_watermark: Milliseconds = MIN_WATERMARK
        self.timestamp: Milliseconds | None = None
        self.time_domain = "event"
        self.key: Any = None
        self.timers = self
        self.emitted: list[Emission] = []
        self.side: dict[str, list[Emission]] = defaultdict(list)
        self._timers: dict[str, set[tuple[Milliseconds, Any]]] = {"event": set(), "processing": set()}
        for name, state in declared_states(function).items():
            setattr(self._function, name, _PLAIN[type(state)](self, state))

    def run(self, script: Iterable[Any]) -> list[Emission]:
        for item in as_items(script):
            if isinstance(item, Record):
                self.key, self.timestamp = self._key_of(item.value), item.timestamp
                self._emit(self._function.process(copy.deepcopy(item.value), self))
            elif isinstance(item, Watermark) and item.time > self.current_watermark:
                self._pass_event_time(item.time)
            elif isinstance(item, ProcessingTime):
                self._pass_processing_time(item.time)
            elif isinstance(item, End):
                self._pass_event_time(MAX_WATERMARK)
                self._fire("processing", sorted(self._timers["processing"], key=_order))
                self._pass_event_time(MAX_WATERMARK)
        return self.emitted

    def _pass_event_time(self, until: Milliseconds) -> None:
        while due := sorted((t for t in self._timers["event"] if t[0] <= until), key=_order):
            self.current_watermark = max(self.current_watermark, due[0][0])
            self._fire("event", due[:1])
        self.current_watermark = until

    def _pass_processing_time(self, until: Milliseconds) -> None:
        while due := sorted((t for t in self._timers["processing"] if t[0] <= until), key=_order):
            self.current_processing_time = max(self.current_processing_time, due[0][0])
            self._fire("processing", due[:1])
        self.current_processing_time = max(self.current_processing_time, until)

    def _fire(self, domain: str, timers: list[tuple[Milliseconds, Any]]) -> None:
        for timer in timers:
            if timer in self._timers[domain]:
                self._timers[domain].discard(timer)
                time, self.key = timer
                self.time_domain = domain
                self.timestamp = time if domain == "event" else None
                self.firing = True
                self._emit(self._function.on_timer(time, self))
                self.firing = False

    firing = False

    def _emit(self, result: Iterable[Any] | None) -> None:
        self.emitted += [(self.key, copy.deepcopy(value)) for value in result or ()]

    # --- the context -------------------------------------------------------------------------------------------------------

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        self.side[tag.name].append((self.key, value))

    def register_event_time(self, time: Milliseconds) -> None:
        self._timers["event"].add((time, self.key))

    def delete_event_time(self, time: Milliseconds) -> None:
        self._timers["event"].discard((time, self.key))

    def register_processing_time(self, time: Milliseconds) -> None:
        self._timers["processing"].add((time, self.key))

    def delete_processing_time(self, time: Milliseconds) -> None:
        self._timers["processing"].discard((time, self.key))


def _order(timer: tuple[Milliseconds, Any]) -> tuple[Milliseconds, bytes]:
    return timer[0], encode_key(timer[1])


class _Plain:
    """Entries of one state by key, each with the time it expires."""

    def __init__(self, reference: Reference, state: Any) -> None:
        self._reference = reference
        self._state: State = state
        self._entries: dict[Any, Any] = {}

    def clear(self) -> None:
        self._entries.pop(self._reference.key, None)

    def _now(self) -> Milliseconds:
        assert self._state.ttl is not None
        reference = self._reference
        return reference.current_watermark if self._state.ttl.time == "event" else reference.current_processing_time

    def _stamped(self, value: Any) -> tuple[Milliseconds, Any]:
        ttl, reference = self._state.ttl, self._reference
        if ttl is None:
            return MAX_WATERMARK + 1, value
        now = self._now()
        if ttl.time == "event" and reference.timestamp is not None and not reference.firing:
            now = max(now, reference.timestamp)
        return now + ttl.ms, value

    def _live(self, entry: tuple[Milliseconds, Any] | None) -> bool:
        return entry is not None and (self._state.ttl is None or entry[0] > self._now())

    def _seen(self, entry: tuple[Milliseconds, Any]) -> tuple[Milliseconds, Any]:
        return self._stamped(entry[1]) if self._state.ttl is not None and self._state.ttl.refresh == "read" else entry


class _PlainValue(_Plain):
    @property
    def value(self) -> Any:
        key = self._reference.key
        entry = self._entries.get(key)
        if not self._live(entry):
            default = copy.deepcopy(getattr(self._state, "default", None))
            if default is not None and self._state.ttl is None:
                self._entries[key] = self._stamped(default)
            return default
        assert entry is not None
        self._entries[key] = self._seen(entry)
        return self._entries[key][1]

    def update(self, value: Any) -> None:
        self._entries[self._reference.key] = self._stamped(value)


class _PlainReducing(_PlainValue):
    def add(self, value: Any) -> None:
        before = self.value
        self.update(value if before is None else self._state.function(before, value))  # type: ignore[attr-defined]


class _PlainAggregating(_PlainValue):
    @property
    def value(self) -> Any:
        before = super().value
        return None if before is None else self._state.aggregate.result(before)  # type: ignore[attr-defined]

    def add(self, value: Any) -> None:
        aggregate = self._state.aggregate  # type: ignore[attr-defined]
        before = super().value
        self.update(aggregate.add(value, aggregate.create_accumulator() if before is None else before))


class _PlainList(_Plain):
    def _list(self) -> list[tuple[Milliseconds, Any]]:
        live = [entry for entry in self._entries.get(self._reference.key, []) if self._live(entry)]
        self._entries[self._reference.key] = live
        return live

    def add(self, value: Any) -> None:
        self._list().append(self._stamped(value))

    append = add

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        values = list(values)
        self.clear()
        self.extend(values)

    def __iter__(self) -> Iterator[Any]:
        return iter([value for _, value in self._list()])

    def __len__(self) -> int:
        return len(self._list())


class _PlainMap(_Plain):
    def _map(self) -> dict[Any, tuple[Milliseconds, Any]]:
        live = {k: entry for k, entry in self._entries.get(self._reference.key, {}).items() if self._live(entry)}
        self._entries[self._reference.key] = dict(sorted(live.items(), key=lambda item: encode_key(item[0])))
        return self._entries[self._reference.key]  # type: ignore[no-any-return]

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def __getitem__(self, key: Any) -> Any:
        entries = self._map()
        entries[key] = self._seen(entries[key])
        return entries[key][1]

    def put(self, key: Any, value: Any) -> None:
        self._map()[key] = self._stamped(value)

    __setitem__ = put

    def remove(self, key: Any) -> None:
        self._map().pop(key, None)

    def __delitem__(self, key: Any) -> None:
        del self._map()[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._map()

    def __len__(self) -> int:
        return len(self._map())

    def keys(self) -> Iterator[Any]:
        return iter(list(self._map()))

    __iter__ = keys

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter([(key, self[key]) for key in self.keys()])

    def values(self) -> Iterator[Any]:
        return iter([value for _, value in self.items()])


_PLAIN: dict[type, Any] = {
    ValueState: _PlainValue,
    ReducingState: _PlainReducing,
    AggregatingState: _PlainAggregating,
    ListState: _PlainList,
    MapState: _PlainMap,
}
