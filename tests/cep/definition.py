"""What a pattern matches, by its definition: all ways to choose events for its stages are tried. Knows no automaton.

A way through a pattern takes the stages in turn. For each it chooses events by what the stage says of them, and of the events
left out between them. What is forbidden, and what a greedy loop could have taken, is looked for among those too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.cep.pattern import Pattern
from penstock.cep.stages import Group, Link, Stage

Event = tuple[str, int]
"""A name and a time."""
Chosen = tuple[tuple[str, int], ...]
"""Stage and number of the event, in order."""
Accepts = Callable[[Event], bool]


@dataclass(frozen=True)
class Way:
    """How far a match is: what was chosen, and what must not come before the next event that is."""

    chosen: Chosen = ()
    forbidden: tuple[tuple[Accepts, int], ...] = ()
    """No such event after the one of this number, until the next is taken."""
    not_next: tuple[Accepts, ...] = ()
    """The very next event is none of these."""

    @property
    def last(self) -> int:
        return self.chosen[-1][1] if self.chosen else -1


class Definition:
    def __init__(self, pattern: Pattern, events: Sequence[Event]) -> None:
        self.pattern = pattern
        self.events = events
        self.begin = 0

    def matches(self) -> list[Chosen]:
        """All of them, whatever the skip strategy."""
        found: list[Chosen] = []
        for begin in range(len(self.events)):
            self.begin = begin
            ways = self._stages(self.pattern.stages, Way(), None)
            found += [way.chosen for way in ways if way.chosen and self._ends(way)]
        return found

    def _ends(self, way: Way) -> bool:
        """What is forbidden at the end of a pattern."""
        within = self.pattern.within_ms
        for accepts in way.not_next:
            follows = way.last + 1
            if follows >= len(self.events) or accepts(self.events[follows]) or not self._in_time(follows, way):
                return False
        last = self.pattern.stages[-1]
        if last.link is not Link.NOT_FOLLOWED_BY:
            return True
        assert within is not None
        end = self.events[self.begin][1] + within
        return not any(
            accepts(self.events[n])
            for accepts, since in way.forbidden
            for n in range(since + 1, len(self.events))
            if self.events[n][1] < end
        )

    def _stages(self, stages: Sequence[Stage], way: Way, head: Link | None) -> Iterator[Way]:
        """All ways through some stages. `head`: how the first of them follows, if not as it says itself."""
        if not stages:
            yield way
            return
        stage, rest = stages[0], stages[1:]
        if stage.link.negative:
            yield from self._stages(rest, self._forbid(stage, way), None)
            return
        link = stage.link if head is None else head
        if stage.optional:
            skipped = replace(way, forbidden=(*way.forbidden, (_accepts(stage), way.last))) if stage.greedy and rest else way
            yield from self._stages(rest, skipped, None)
        ends_before = _accepts(rest[0]) if rest and rest[0].link is Link.NOT_NEXT else None
        for taken, first in self._occurrences(stage, way, link, ends_before):
            after = taken
            if rest and rest[0].link is Link.NOT_FOLLOWED_BY and stage.repeated:
                after = replace(after, forbidden=(*after.forbidden, (_accepts(rest[0]), first)))
            if stage.greedy and rest:
                after = replace(after, forbidden=(*after.forbidden, (_accepts(stage), after.last)))
            yield from self._stages(rest, after, None)

    def _forbid(self, stage: Stage, way: Way) -> Way:
        if stage.link is Link.NOT_NEXT:
            return replace(way, not_next=(*way.not_next, _accepts(stage)))
        return replace(way, forbidden=(*way.forbidden, (_accepts(stage), way.last)))

    def _occurrences(self, stage: Stage, way: Way, link: Link, ends_before: Accepts | None) -> Iterator[tuple[Way, int]]:
        """All ways to choose the events of a stage, with the number of the first one. `ends_before`: what may not come right
        after an event that could be the last one; it ends the match, even if the loop could go on."""
        most = len(self.events) if stage.maximum is None else stage.maximum
        ways = [(taken, self._first(way, taken)) for taken in self._once(stage, way, link, 1)]
        for count in range(1, most + 1):
            if count >= stage.minimum:
                yield from ways
                ways = [(taken, first) for taken, first in ways if not self._follows(taken, ends_before)]
            if count == most or not ways:
                return
            ways = [(more, first) for taken, first in ways for more in self._once(stage, taken, stage.inner, count + 1)]

    def _follows(self, way: Way, accepts: Accepts | None) -> bool:
        return accepts is not None and way.last + 1 < len(self.events) and accepts(self.events[way.last + 1])

    def _first(self, before: Way, after: Way) -> int:
        return after.chosen[len(before.chosen)][1]

    def _once(self, stage: Stage, way: Way, link: Link, count: int) -> Iterator[Way]:
        if isinstance(stage, Group):
            yield from (taken for taken in self._stages(stage.stages, way, link) if len(taken.chosen) > len(way.chosen))
            return
        accepts = _accepts(stage)
        for number in self._candidates(accepts, way, link):
            event = self.events[number]
            if stage.until is not None:
                until = _letters(stage.until)
                since = number if count == 1 else way.last + 1
                if any(self.events[n][0] in until for n in range(since, number + 1)):
                    continue
            limits = [stage.within_ms] if count == 1 else []
            if count <= stage.minimum and (count > 1 or not stage.optional):
                limits.append(stage.loop_within_ms)
            late = way.chosen and any(ms is not None and event[1] - self.events[way.last][1] >= ms for ms in limits)
            if late or not self._in_time(number, way) or self._broken(number, way):
                continue
            yield Way((*way.chosen, (stage.name, number)))

    def _candidates(self, accepts: Accepts, way: Way, link: Link) -> list[int]:
        if not way.chosen:
            return [self.begin] if accepts(self.events[self.begin]) else []
        after = range(way.last + 1, len(self.events))
        if link is Link.NEXT:
            after = after[:1]
        fitting = [n for n in after if accepts(self.events[n])]
        return fitting[:1] if link is Link.FOLLOWED_BY else fitting

    def _in_time(self, number: int, way: Way) -> bool:
        within = self.pattern.within_ms
        return within is None or not way.chosen or self.events[number][1] - self.events[self.begin][1] < within

    def _broken(self, number: int, way: Way) -> bool:
        """Does something forbidden happen before, or with, this event?"""
        begin = way.last + 1 if way.chosen else self.begin
        if any(accepts(self.events[begin]) for accepts in way.not_next):
            return True
        return any(
            accepts(self.events[n])
            for accepts, since in way.forbidden
            for n in range(since + 1 if way.chosen else self.begin, number + 1)
        )


def after_skipping(pattern: Pattern, events: Sequence[Event], found: Sequence[Chosen]) -> list[tuple[int, int]]:
    """First and last event of the matches that a strategy leaves: those that begin first come first, and of these those that end
    first; each drops others that begin too early."""
    left = []
    bound = 0
    for match in sorted(found, key=lambda match: (match[0][1], match[-1][1])):
        first, last = match[0][1], match[-1][1]
        if first >= bound:
            left.append((first, last))
            bound = max(bound, first + 1 if pattern.skip.kind == "to_next" else last + 1)
    return left


def _accepts(stage: Stage) -> Accepts:
    letters = None if stage.where is None else _letters(stage.where)
    return lambda event: letters is None or event[0] in letters


def _letters(condition: object) -> frozenset[str]:
    """Of the conditions that the tests make: they are functions that carry what they accept."""
    letters = getattr(getattr(condition, "function", None), "letters", None)
    assert letters is not None
    return frozenset(letters)
