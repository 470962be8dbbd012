"""The matches of one key: what an event, or time, makes of them. Pure of state and streams.

Laws:
- Partial matches are kept by (time, number) of their first event; those that begin alike, in the order in which they came to be.
- An event is given to every partial match, and to the start. What one makes of it does not depend on the others.
- A match that is complete is emitted at once, unless the strategy skips: then those that began before it have to be over first.
- A partial match is over when its time is, before an event of that very time is taken.
- Prefixes are shared: a match is a chain of links, each with a stage, an event and the link before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.cep.atoms import Atoms, Event
from penstock.cep.automaton import Action, Automaton, StateKind, Test, Truth
from penstock.errors import PlanError
from penstock.ids import MAX_WATERMARK, Milliseconds


class Link(NamedTuple):
    """An event in a match, and what was before it."""

    before: Link | None
    stage: str
    event: Event


class Partial(NamedTuple):
    """A partial match: its state, its last link, its first event. `expires`: when it is over."""

    state: int
    last: Link
    first: Event
    expires: Milliseconds

    @property
    def begun(self) -> tuple[Milliseconds, int]:
        return self.first.time, self.first.id


class Found(NamedTuple):
    """A match, or one that has timed out, and when."""

    last: Link
    time: Milliseconds
    timed_out: bool = False


@dataclass(slots=True)
class Matches:
    """All of one key: partial ones, and complete ones that wait for partial ones which began before them."""

    partial: list[Partial] = field(default_factory=list)
    complete: list[Partial] = field(default_factory=list)
    next_id: int = 0

    def __bool__(self) -> bool:
        return bool(self.partial or self.complete)

    def expires(self) -> Milliseconds:
        """When the next one is over."""
        return min((one.expires for one in self.partial), default=MAX_WATERMARK)


class MatchSoFar:
    """What a condition of two arguments sees: `events("stage")`, the time of the event, and of the one before it."""

    __slots__ = ("_found", "_last", "processing_time", "timestamp")

    def __init__(self, last: Link | None, timestamp: Milliseconds, processing_time: Milliseconds) -> None:
        self._last = last
        self._found: dict[str, list[Any]] | None = None
        self.timestamp = timestamp
        self.processing_time = processing_time

    def events(self, stage: str) -> Sequence[Any]:
        """The events of a stage so far, in order."""
        if self._found is None:
            self._found = {name: [event.value for event in events] for name, events in events_of(self._last).items()}
        return self._found.get(stage, [])

    @property
    def last_time(self) -> Milliseconds:
        return self.timestamp if self._last is None else self._last.event.time


class TooManyError(Exception):
    """A key has more partial matches than are allowed."""


class SkipError(PlanError):
    """A match that cannot be skipped from as the strategy says."""


class _Step(NamedTuple):
    """What one event makes of a partial match in a state: the states that go on, whether the event is in the match, and whether
    the match is complete with it."""

    target: int
    stage: str | None
    also_final: bool


class Matcher:
    """Runs an automaton. `limit`: of partial matches of a key, 0: none; `drops`: beyond it, the oldest are dropped."""

    def __init__(self, automaton: Automaton, *, limit: int = 0, drops: bool = False) -> None:
        self.automaton = automaton
        self.atoms = Atoms(automaton.conditions)
        self.limit = limit
        self.drops = drops
        self.dropped = 0
        self.processing_time: Milliseconds = 0
        self._states = automaton.states
        self._kinds = [state.kind for state in automaton.states]
        self._within = automaton.within_ms
        self._needs = [self._needed(number) for number in range(len(automaton.states))]
        self._dynamic = [bool(needed & self.atoms.iterative_bits) for needed in self._needs]
        self._asked = [[n for n in range(needed.bit_length()) if needed >> n & 1] for needed in self._needs]
        self._known: list[dict[int, tuple[_Step, ...]]] = [{} for _ in automaton.states]

    # --- what happens ------------------------------------------------------------------------------------------------------

    def take(self, matches: Matches, event: Event) -> list[Found]:
        """An event, not before any other. `expire` has been called for its time. If this raises, nothing has changed."""
        partial: list[Partial] = []
        complete: list[Partial] = []
        for one in matches.partial:
            self._advance(one.state, one.last, one.first, one, event, partial, complete)
        self._advance(self.automaton.start, None, event, None, event, partial, complete)
        if self.limit and len(partial) > self.limit:
            if not self.drops:
                raise TooManyError
            self.dropped += len(partial) - self.limit
            partial = partial[len(partial) - self.limit :]
        if not complete and not matches.complete:
            matches.partial = partial
            return []
        return self._settle(matches, partial, complete, event.time)

    def expire(self, matches: Matches, until: Milliseconds) -> list[Found]:
        """Time is `until`: what is over by then, in order of time."""
        found: list[Found] = []
        while (now := matches.expires()) <= until and now < MAX_WATERMARK:
            partial = [one for one in matches.partial if one.expires > now]
            over = [one for one in matches.partial if one.expires <= now]
            complete = [one for one in over if self._kinds[one.state] is StateKind.PENDING]
            found += [Found(one.last, now, timed_out=True) for one in over if self._kinds[one.state] is not StateKind.PENDING]
            found += self._settle(matches, partial, complete, now)
        return found

    def needs(self, state: int) -> int:
        """The conditions that may be asked in a state, as bits."""
        return self._needs[state]

    @property
    def begins_always(self) -> bool:
        """May an event that fulfils no condition begin a match?"""
        start = self.automaton.start
        return any(step.stage is not None for step in self._decide(start, lambda number: False))

    # --- how ---------------------------------------------------------------------------------------------------------------

    def _advance(
        self, state: int, last: Link | None, first: Event, one: Partial | None, event: Event,
        partial: list[Partial], complete: list[Partial],
    ) -> None:  # fmt: skip
        steps = self._steps(state, event, last)
        for target, stage, also_final in steps:
            if stage is None:
                if one is None:
                    continue
                if target == state:
                    partial.append(one)
                    continue
                link = one.last
            else:
                link = Link(last, stage, event)
                event.taken = True
            kind = self._kinds[target]
            made = Partial(target, link, first, self._expires(target, link, first))
            if kind is StateKind.FINAL:
                complete.append(made)
            else:
                partial.append(made)
            if also_final:
                complete.append(made)

    def _expires(self, state: int, last: Link, first: Event) -> Milliseconds:
        expires = MAX_WATERMARK if self._within is None else first.time + self._within
        within = self._states[state].within_ms
        if within is not None:
            expires = min(expires, last.event.time + within)
        return expires

    def _settle(self, matches: Matches, partial: list[Partial], complete: list[Partial], now: Milliseconds) -> list[Found]:
        """Emit what is complete, and skip."""
        skip = self.automaton.skip
        if not skip.skips:
            matches.partial = partial
            return [Found(one.last, now) for one in complete]
        waiting = matches.complete + complete
        waiting.sort(key=_begun)
        found: list[Found] = []
        while waiting:
            one = waiting[0]
            if partial and one.begun > min(map(_begun, partial)):
                break
            waiting.pop(0)
            found.append(Found(one.last, now))
            bound = self._skip_to(one.last)
            if bound is not None:
                partial = [other for other in partial if other.begun >= bound]
                waiting = [other for other in waiting if other.begun >= bound]
        matches.partial, matches.complete = partial, waiting
        return found

    def _skip_to(self, last: Link) -> tuple[Milliseconds, int] | None:
        """What begins before this is dropped."""
        skip = self.automaton.skip
        links = list(chain(last))
        first, newest = links[0].event, links[-1].event
        if skip.kind == "to_next":
            return first.time, first.id + 1
        if skip.kind == "past_last_event":
            return newest.time, newest.id + 1
        events = [link.event for link in links if link.stage == skip.stage]
        if not events:
            if skip.fails_on_miss:
                raise SkipError(f"a match has no event of stage {skip.stage!r} to skip to", hint="leave fail_on_miss() out")
            return None
        to = events[0] if skip.kind == "to_first" else events[-1]
        if skip.fails_on_miss and to is first:
            raise SkipError(f"skip {skip.describe()}: this is the first event of the match", hint="leave fail_on_miss() out")
        return to.time, to.id

    # --- the automaton -----------------------------------------------------------------------------------------------------

    def _steps(self, state: int, event: Event, last: Link | None) -> tuple[_Step, ...]:
        """What the event makes of a partial match in this state: nothing, if it is dropped."""
        atoms = self.atoms
        if self._dynamic[state]:
            so_far = MatchSoFar(last, event.time, self.processing_time)
            asked: dict[int, bool] = {}

            def truth(number: int) -> bool:
                holds = asked.get(number)
                if holds is None:
                    holds = asked[number] = atoms.ask(number, event, so_far)
                return holds

            return self._decide(state, truth)
        needed = self._needs[state]
        if needed & ~event.known:
            for number in self._asked[state]:
                if not event.known >> number & 1:
                    atoms.ask(number, event, None)  # type: ignore[arg-type]
        bits = event.bits & needed
        known = self._known[state]
        if bits not in known:
            known[bits] = self._decide(state, lambda number: bool(bits >> number & 1))
        return known[bits]

    def _decide(self, state: int, truth: Truth) -> tuple[_Step, ...]:
        steps: list[_Step] = []
        todo = [state]
        while todo:
            current = self._states[todo.pop()]
            if current.kind is StateKind.STOP:
                return ()
            for edge in current.edges:
                if edge.test.holds(truth):
                    if edge.action is Action.PROCEED:
                        todo.append(edge.target)
                    elif edge.action is Action.IGNORE:
                        steps.append(_Step(edge.target, None, also_final=False))
                    else:
                        steps.append(_Step(edge.target, current.stage, self._gets_to_final(edge.target, truth)))
        return tuple(steps)

    def _gets_to_final(self, state: int, truth: Truth) -> bool:
        """Does the match that an event has just been taken into proceed to the end without a further one?"""
        todo, seen = [state], {state}
        while todo:
            for edge in self._states[todo.pop()].edges:
                if edge.action is Action.PROCEED and edge.test.holds(truth):
                    if self._kinds[edge.target] is StateKind.FINAL:
                        return True
                    if edge.target not in seen:
                        seen.add(edge.target)
                        todo.append(edge.target)
        return False

    def _needed(self, state: int) -> int:
        """The atoms that may be asked in a state, as bits."""
        needed = 0
        todo, seen = [state], {state}
        while todo:
            for edge in self._states[todo.pop()].edges:
                needed |= _bits(edge.test)
                follow = edge.action in (Action.PROCEED, Action.TAKE)
                if follow and edge.target not in seen and (edge.action is Action.PROCEED or self._may_end(edge.target)):
                    seen.add(edge.target)
                    todo.append(edge.target)
        return needed

    def _may_end(self, state: int) -> bool:
        """Might a match proceed from here to the end without a further event?"""
        return self._gets_to_final(state, lambda number: True) or any(
            edge.action is Action.PROCEED for edge in self._states[state].edges
        )


def _begun(one: Partial) -> tuple[Milliseconds, int]:
    return one.begun


def _bits(test: Test) -> int:
    bits = 0
    for number in test.atoms():
        bits |= 1 << number
    return bits


def chain(last: Link | None) -> Iterator[Link]:
    """The links of a match, from its first event on."""
    links = []
    while last is not None:
        links.append(last)
        last = last.before
    return reversed(links)


def events_of(last: Link | None) -> dict[str, list[Event]]:
    """By stage, its events, in order."""
    found: dict[str, list[Event]] = {}
    for link in chain(last):
        found.setdefault(link.stage, []).append(link.event)
    return found


def match_of(last: Link | None) -> dict[str, list[Any]]:
    """By stage, its records, in order."""
    return {stage: [event.value for event in events] for stage, events in events_of(last).items()}


def run(matcher: Matcher, events: Iterable[tuple[Milliseconds, Any]]) -> Iterator[Found]:
    """All that a sequence of events of one key gives, without a stream: for tests, docs and a first look at a pattern."""
    matches = Matches()
    for time, value in events:
        yield from matcher.expire(matches, time)
        event = Event(time, matches.next_id, value)
        matches.next_id += 1
        yield from matcher.take(matches, event)
