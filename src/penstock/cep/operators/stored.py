"""What is kept of a key: partial matches with shared prefixes in one value, their events once each, and events before their time.

Laws:
- What is loaded is what was saved: numbers of events and links stand for the objects they were.
- Of a key without partial matches and waiting events nothing is kept, nor a timer. There is one timer for each key: when the next
  thing happens to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.cep.atoms import Event
from penstock.cep.matching import Link, Matches, Partial
from penstock.cep.operators.lane import Lane
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.state.overlay.keyed import KeyedState
from penstock.state.overlay.timers import TimerQueue


class StoredLink(msgspec.Struct, frozen=True):
    """An event of a match: `before` is the number of the link before it, -1: none."""

    before: int
    stage: str
    event: int


class StoredPartial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partial match: the state it is in, its last link, when it is over. `rule`: whose it is."""

    state: str
    last: int
    expires: Milliseconds
    rule: str = ""
    complete: bool = False


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of a key. `wakes`: the time of its timer."""

    partial: list[StoredPartial]
    links: list[StoredLink]
    wakes: Milliseconds
    waits: bool = False
    versions: dict[str, int] = {}


@dataclass(slots=True)
class KeyMatches:
    """A key of which something is known in this epoch. `waiting`: events before their time, in order of arrival."""

    encoded: bytes
    matches: dict[str, Matches] = field(default_factory=dict)
    waiting: list[tuple[Milliseconds, Any]] = field(default_factory=list)
    next_id: int = 0
    stored: StoredKey | None = None
    stored_events: set[int] = field(default_factory=set)
    stored_times: set[Milliseconds] = field(default_factory=set)
    listed: Milliseconds = MAX_WATERMARK
    """When the operator looks at it again in this epoch."""

    @property
    def idle(self) -> bool:
        return not self.waiting and not any(self.matches.values())

    def partial_count(self) -> int:
        return sum(len(matches.partial) + len(matches.complete) for matches in self.matches.values())

    def of(self, lane: str) -> Matches:
        found = self.matches.get(lane)
        if found is None:
            found = self.matches[lane] = Matches()
        return found

    def wakes(self) -> Milliseconds:
        """When something happens to it without another event."""
        wakes = min((time for time, _ in self.waiting), default=MAX_WATERMARK)
        return min((wakes, *(matches.expires() for matches in self.matches.values())))


class KeyStore:
    """Loads and saves keys. `queue`: the timers of the pattern's time."""

    def __init__(self, keyed: KeyedState, handles: dict[str, Any], queue: TimerQueue) -> None:
        self._keyed = keyed
        self.matches = handles["matches"]
        self._events = handles["events"]
        self._waiting = handles["waiting"]
        self._queue = queue

    def find(self, keys: list[bytes]) -> Iterator[bytes]:
        """Those of these keys of which something is kept."""
        cell = self.matches.cell
        if len(keys) == 1:
            self._keyed.enter_one(keys[0])
            if self.matches.value is not None:
                yield keys[0]
            return
        for slot in self._keyed.enter(keys):
            if slot.cells[cell] is not None:
                yield slot.encoded

    def load(self, encoded: bytes, lanes: dict[str, Lane]) -> KeyMatches:
        """A key as it was saved, without the matches of rules that are not there any more, or of versions that are not valid."""
        self._keyed.enter_one(encoded)
        stored: StoredKey | None = self.matches.value
        key = KeyMatches(encoded)
        if stored is None:
            return key
        key.stored = stored
        if stored.waits:
            for time, records in self._waiting.items():
                key.stored_times.add(time)
                key.waiting += [(time, record) for record in records]
        events = {}
        if stored.links:
            for number, (time, value) in self._events.items():
                events[number] = Event(time, number, value)
        key.stored_events = set(events)
        key.next_id = max(events, default=-1) + 1
        links: list[Link] = []
        firsts: list[Event] = []
        for link in stored.links:
            before = None if link.before < 0 else links[link.before]
            firsts.append(events[link.event] if before is None else firsts[link.before])
            links.append(Link(before, link.stage, events[link.event]))
        numbers: dict[str, dict[str, int]] = {}
        for one in stored.partial:
            lane = lanes.get(one.rule)
            if lane is None or stored.versions.get(one.rule, 0) < lane.valid_from:
                continue
            known = numbers.get(one.rule)
            if known is None:
                known = numbers[one.rule] = {state.name: number for number, state in enumerate(lane.automaton.states)}
            if one.state not in known:
                continue
            partial = Partial(known[one.state], links[one.last], firsts[one.last], one.expires)
            matches = key.of(one.rule)
            (matches.complete if one.complete else matches.partial).append(partial)
        return key

    def save(self, key: KeyMatches, lanes: dict[str, Lane]) -> None:
        """Keep what there is of a key, and no more."""
        slot = self._keyed.enter_one(key.encoded)
        before = key.stored
        if key.idle:
            if before is not None:
                self.matches.clear()
                for number in key.stored_events:
                    self._events.remove(number)
                for time in key.stored_times:
                    self._waiting.remove(time)
                self._queue.delete(before.wakes, slot)
            key.stored, key.stored_events, key.stored_times = None, set(), set()
            return
        stored, events = _stored(key, lanes)
        if before is None or stored != before:
            self.matches.update(stored)
        if before is None or before.wakes != stored.wakes:
            if before is not None:
                self._queue.delete(before.wakes, slot)
            if stored.wakes < MAX_WATERMARK:
                self._queue.register(stored.wakes, slot)
        for number in key.stored_events - events.keys():
            self._events.remove(number)
        for number in events.keys() - key.stored_events:
            self._events.put(number, (events[number].time, events[number].value))
        self._save_waiting(key)
        key.stored, key.stored_events = stored, set(events)

    def _save_waiting(self, key: KeyMatches) -> None:
        waiting: dict[Milliseconds, list[Any]] = {}
        for time, record in key.waiting:
            waiting.setdefault(time, []).append(record)
        for time in key.stored_times - waiting.keys():
            self._waiting.remove(time)
        for time, records in waiting.items():
            if time not in key.stored_times or len(self._waiting.get(time)) != len(records):
                self._waiting.put(time, records)
        key.stored_times = set(waiting)


def _stored(key: KeyMatches, lanes: dict[str, Lane]) -> tuple[StoredKey, dict[int, Event]]:
    numbers: dict[int, int] = {}
    links: list[StoredLink] = []
    events: dict[int, Event] = {}
    partial: list[StoredPartial] = []
    for rule, matches in key.matches.items():
        states = lanes[rule].automaton.states
        for complete, ones in ((False, matches.partial), (True, matches.complete)):
            partial += [
                StoredPartial(states[one.state].name, _number(one.last, numbers, links, events), one.expires, rule, complete)
                for one in ones
            ]
    versions = {rule: lanes[rule].version for rule, matches in key.matches.items() if rule and matches}
    return StoredKey(partial, links, key.wakes(), bool(key.waiting), versions), events


def _number(last: Link, numbers: dict[int, int], links: list[StoredLink], events: dict[int, Event]) -> int:
    """The number of a link; it and those before it get theirs if they have none."""
    new = []
    link: Link | None = last
    while link is not None and id(link) not in numbers:
        new.append(link)
        link = link.before
    for link in reversed(new):
        before = -1 if link.before is None else numbers[id(link.before)]
        numbers[id(link)] = len(links)
        events[link.event.id] = link.event
        links.append(StoredLink(before, link.stage, link.event.id))
    return numbers[id(last)]
