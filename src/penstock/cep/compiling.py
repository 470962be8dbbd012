"""From a pattern to its automaton. States are made from the last stage to the first: each is given the state that follows it.

Laws (those of Flink's patterns):
- `next` has no way to ignore an event; `followed_by` ignores what it would not take; `followed_by_any` ignores anything.
- A loop is a state that takes into itself and proceeds to what follows; `times(n, m)` is a chain. An optional stage proceeds to
  what follows from its first state; once it has ignored an event, it waits in a state that no longer does.
- A greedy loop forbids what follows every event that the loop could take.
- What is forbidden leads to a stop state: `not_next` for one event, `not_followed_by` wherever what is next is waited for.
- The time between events counts where a required event is waited for; for an optional stage it is asked of the event itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.cep.automaton import ALWAYS, Action, All, Atom, Automaton, AutomatonState, Edge, Not, StateKind, Test
from penstock.cep.conditions import Both, Condition, Soon
from penstock.cep.pattern import Pattern
from penstock.cep.stages import Group, Link, Stage, simple_stages
from penstock.ids import Milliseconds


def compile_pattern(pattern: Pattern) -> Automaton:
    """The automaton of a pattern. `PatternError` if the pattern is illegal."""
    pattern.check()
    return _Compiler(pattern).automaton()


@dataclass(eq=False, slots=True)
class _State:
    """A state while it is being made."""

    number: int
    name: str
    plain_name: str
    stage: str
    kind: StateKind
    within_ms: Milliseconds | None = None
    edges: list[tuple[Action, _State, Test]] = field(default_factory=list)

    def add(self, action: Action, target: _State, test: Test) -> None:
        self.edges.append((action, target, test))


@dataclass(frozen=True, slots=True)
class _Place:
    """A stage among its neighbours. `group`: the group around them, `around`: its place; `first`: its first round?"""

    stages: tuple[Stage, ...]
    index: int
    group: Group | None = None
    around: _Place | None = None
    first: bool = True

    @property
    def stage(self) -> Stage:
        return self.stages[self.index]

    def at(self, index: int) -> _Place:
        return _Place(self.stages, index, self.group, self.around, self.first)

    @property
    def following(self) -> Stage | None:
        if self.index + 1 < len(self.stages):
            return self.stages[self.index + 1]
        return None if self.around is None else self.around.following

    @property
    def heads_group(self) -> bool:
        return self.group is not None and self.index == 0

    @property
    def waits_alone(self) -> bool:
        """Is a match that waits for this stage in a state of its own, in which its time can run out?"""
        if self.stage.optional or isinstance(self.stage, Group) or self.index == 0:
            return self.index == 0 and self.group is None
        before = self.index - 1
        while before > 0 and self.stages[before].link is Link.NOT_FOLLOWED_BY:
            before -= 1
        stage = self.stages[before]
        return not (stage.optional or stage.repeated or stage.link is Link.NOT_NEXT or isinstance(stage, Group))

    def link(self) -> Link:
        """How the stage follows: of the first in a group, as the group does."""
        if not self.heads_group:
            return self.stage.link
        assert self.group is not None
        assert self.around is not None
        return self.around.link() if self.first else self.group.inner


class _Compiler:
    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._states: list[_State] = []
        self._names: set[str] = set()
        self._conditions: dict[Condition, int] = {}
        self._stops: dict[str, _State] = {}
        self._copies: dict[int, _State] = {}

    def automaton(self) -> Automaton:
        end = self._state("end", "", StateKind.FINAL)
        start = self._chain(_Place(self._pattern.stages, len(self._pattern.stages) - 1), end)
        start.kind = StateKind.START
        states = tuple(
            AutomatonState(
                state.name,
                state.stage,
                state.kind,
                tuple(Edge(action, target.number, test) for action, target, test in state.edges),
                state.within_ms,
            )
            for state in self._states
        )
        return Automaton(
            states=states,
            start=start.number,
            conditions=tuple(self._conditions),
            stages=tuple(stage.name for stage in simple_stages(self._pattern.stages) if not stage.link.negative),
            within_ms=self._pattern.within_ms,
            skip=self._pattern.skip,
            shape=shape_of(self._pattern),
        )

    # --- states ------------------------------------------------------------------------------------------------------------

    def _state(self, name: str, stage: str, kind: StateKind = StateKind.NORMAL, within_ms: Milliseconds | None = None) -> _State:
        number, unique = 1, name
        while unique in self._names:
            number += 1
            unique = f"{name}:{number}"
        self._names.add(unique)
        state = _State(len(self._states), unique, name, stage, kind, within_ms)
        self._states.append(state)
        return state

    def _stop(self, place: _Place) -> _State:
        """One for each forbidden stage."""
        name = place.stage.name
        found = self._stops.get(name)
        if found is None:
            found = self._stops[name] = self._state(name, name, StateKind.STOP)
        return found

    def _copy(self, state: _State) -> _State:
        copy = self._state(state.plain_name, state.stage, state.kind, state.within_ms)
        for action, target, test in state.edges:
            copy.add(action, copy if target is state else target, test)
        return copy

    # --- conditions --------------------------------------------------------------------------------------------------------

    def _atom(self, condition: Condition | None) -> Test:
        return ALWAYS if condition is None else Atom(self._conditions.setdefault(condition, len(self._conditions)))

    def _group_goes_on(self, place: _Place) -> tuple[Test, ...]:
        until = None if place.group is None else place.group.until
        return () if until is None else (Not(self._atom(until)),)

    def _loop_goes_on(self, place: _Place) -> tuple[Test, ...]:
        until = place.stage.until
        return () if until is None else (Not(self._atom(until)),)

    def _taking(self, place: _Place, *, first: bool = False) -> Test:
        where = place.stage.where
        within = self._since_before(place) if first and not place.waits_alone else None
        if within is not None:
            where = Soon(within) if where is None else Both(where, Soon(within))
        return _all(*self._group_goes_on(place), self._atom(where))

    def _since_before(self, place: _Place) -> Milliseconds | None:
        """In what time the first event of a stage has to come after the one before it."""
        stage = place.stage
        given = [stage.within_ms, None if stage.optional else stage.loop_within_ms]
        return min((ms for ms in given if ms is not None), default=None)

    def _ignoring(self, place: _Place, link: Link) -> Test | None:
        if link is Link.NEXT:
            return None
        ignored = ALWAYS if link is Link.FOLLOWED_BY_ANY else Not(self._atom(place.stage.where))
        return _all(*self._group_goes_on(place), ignored)

    # --- stages ------------------------------------------------------------------------------------------------------------

    def _chain(self, last: _Place, sink: _State) -> _State:
        for index in range(last.index, 0, -1):
            place = last.at(index)
            if place.stage.link is Link.NOT_FOLLOWED_BY:
                timed = place.stage.within_ms is not None or self._pattern.within_ms is not None
                if sink.kind is StateKind.FINAL and timed:
                    sink = self._pending(place)
            elif place.stage.link is Link.NOT_NEXT:
                sink = self._not_next(place, sink)
            else:
                sink = self._stage(place, sink)
        return self._stage(last.at(0), sink)

    def _pending(self, place: _Place) -> _State:
        state = self._state(place.stage.name, place.stage.name, StateKind.PENDING, place.stage.within_ms)
        forbidden = self._taking(place)
        state.add(Action.PROCEED, self._stop(place), forbidden)
        state.add(Action.IGNORE, state, Not(forbidden))
        return state

    def _not_next(self, place: _Place, sink: _State) -> _State:
        state = self._state(place.stage.name, place.stage.name, within_ms=place.stage.within_ms)
        forbidden = self._taking(place)
        state.add(Action.IGNORE if sink.kind is StateKind.FINAL else Action.PROCEED, sink, Not(forbidden))
        state.add(Action.PROCEED, self._stop(place), forbidden)
        return state

    def _stage(self, place: _Place, sink: _State) -> _State:
        stage = place.stage
        if stage.repeated and stage.maximum is None:
            looping = self._looping(place, self._without_nots(place, sink))
            first = self._occurrences(place, looping, sink, stage.minimum)
        elif stage.repeated:
            assert stage.maximum is not None
            first = self._occurrences(place, sink, sink, stage.maximum)
        else:
            first = self._first(place, sink, sink)
        self._add_stops(place, first)
        return first

    def _occurrences(self, place: _Place, sink: _State, proceed: _State, most: int) -> _State:
        """So many occurrences one after another, those beyond the required ones being optional."""
        stage = place.stage
        take = _all(*self._loop_goes_on(place), self._taking(place))
        inner = self._ignoring(place, place.stage.inner)
        ignore = None if inner is None else _all(*self._loop_goes_on(place), inner)
        if stage.greedy and stage.minimum != most:
            if stage.until is not None:
                self._copies[sink.number] = self._copy(sink)
            _forbid(sink, take)
        last = sink
        for number in range(most, 1, -1):
            required = number <= stage.minimum
            last = self._one(
                place, last, proceed, take, ignore,
                optional=not required, first=False, within_ms=stage.loop_within_ms if required else None,
            )  # fmt: skip
            self._add_loop_stop(place, last)
        return self._first(place, last, proceed)

    def _first(self, place: _Place, sink: _State, proceed: _State) -> _State:
        """The first occurrence of a stage, or the only one."""
        stage = place.stage
        within = self._since_before(place) if place.waits_alone else None
        goes_on = self._loop_goes_on(place) if stage.repeated else ()
        take = _all(*goes_on, self._taking(place, first=True))
        ignore = self._ignoring(place, place.link())
        return self._one(place, sink, proceed, take, ignore, optional=stage.optional, first=True, within_ms=within)

    def _one(
        self, place: _Place, sink: _State, proceed: _State, take: Test, ignore: Test | None,
        *, optional: bool, first: bool, within_ms: Milliseconds | None,
    ) -> _State:  # fmt: skip
        """One occurrence."""
        stage = place.stage
        if isinstance(stage, Group):
            inside = _Place(stage.stages, len(stage.stages) - 1, stage, place, first)
            state = self._chain(inside, sink)
            if optional:
                state.add(Action.PROCEED, proceed, _all(*self._group_goes_on(place)))
            return state
        state = self._state(stage.name, stage.name, within_ms=within_ms)
        sink = self._without_nots(place, sink)
        state.add(Action.TAKE, sink, take)
        if optional:
            goes_on = self._group_goes_on(place)
            if stage.greedy and stage.until is not None:
                until = self._atom(stage.until)
                state.add(Action.PROCEED, self._copies.get(proceed.number, proceed), _all(*goes_on, until))
                state.add(Action.PROCEED, proceed, _all(*goes_on, Not(until)))
            else:
                state.add(Action.PROCEED, proceed, _all(*goes_on))
        if ignore is not None:
            waiting = state
            if optional or self._heads_optional_group(place):
                waiting = self._state(stage.name, stage.name)
                waiting.add(Action.TAKE, sink, take)
                waiting.add(Action.IGNORE, waiting, ignore)
                self._add_stops(place, waiting)
            state.add(Action.IGNORE, waiting, ignore)
        return state

    def _heads_optional_group(self, place: _Place) -> bool:
        return place.heads_group and place.first and place.group is not None and place.group.optional

    def _looping(self, place: _Place, sink: _State) -> _State:
        """Any number of further occurrences."""
        stage = place.stage
        if isinstance(stage, Group):
            again = self._state(stage.name, stage.name)
            inside = _Place(stage.stages, len(stage.stages) - 1, stage, place, first=False)
            state = self._chain(inside, again)
            again_or_on = _all(*self._group_goes_on(place))
            state.add(Action.PROCEED, sink, again_or_on)
            again.add(Action.PROCEED, state, again_or_on)
            return state
        goes_on = self._loop_goes_on(place)
        inner = self._ignoring(place, place.stage.inner)
        ignore = None if inner is None else _all(*goes_on, inner)
        taking = self._taking(place)
        take = _all(*goes_on, taking)
        always = self._group_goes_on(place)
        state = self._state(stage.name, stage.name)
        if stage.greedy:
            if stage.until is not None:
                until = self._atom(stage.until)
                copy = self._copies[sink.number] = self._copy(sink)
                state.add(Action.PROCEED, copy, _all(*always, until))
                state.add(Action.PROCEED, sink, _all(*always, Not(until)))
            else:
                state.add(Action.PROCEED, sink, _all(*always))
            _forbid(sink, taking)
        else:
            state.add(Action.PROCEED, sink, _all(*always))
        state.add(Action.TAKE, state, take)
        self._add_loop_stop(place, state)
        if ignore is not None:
            waiting = self._state(stage.name, stage.name)
            waiting.add(Action.TAKE, state, take)
            waiting.add(Action.IGNORE, waiting, ignore)
            state.add(Action.IGNORE, waiting, ignore)
            self._add_loop_stop(place, waiting)
        return state

    # --- what is forbidden -------------------------------------------------------------------------------------------------

    def _forbidden_before(self, place: _Place) -> list[_Place]:
        """The `not_followed_by` stages before a stage, with nothing but optional stages between."""
        found = []
        index = place.index - 1
        while index >= 0 and (place.stages[index].optional or place.stages[index].link is Link.NOT_FOLLOWED_BY):
            if place.stages[index].link is Link.NOT_FOLLOWED_BY:
                found.append(place.at(index))
            index -= 1
        return found

    def _add_stops(self, place: _Place, state: _State) -> None:
        for forbidden in self._forbidden_before(place):
            state.add(Action.PROCEED, self._stop(forbidden), self._taking(forbidden))

    def _add_loop_stop(self, place: _Place, state: _State) -> None:
        following = place.following
        if following is not None and following.link is Link.NOT_FOLLOWED_BY:
            forbidden = place.at(place.index + 1) if place.index + 1 < len(place.stages) else place
            if forbidden.stage is following:
                state.add(Action.PROCEED, self._stop(forbidden), self._taking(forbidden))
            else:
                around = place.around
                while around is not None and around.index + 1 >= len(around.stages):
                    around = around.around
                assert around is not None
                forbidden = around.at(around.index + 1)
                state.add(Action.PROCEED, self._stop(forbidden), self._taking(forbidden))

    def _without_nots(self, place: _Place, sink: _State) -> _State:
        """What follows an event that is taken by an optional stage: nothing before it is forbidden any more."""
        forbidden = self._forbidden_before(place)
        if not forbidden or not place.stage.optional:
            return sink
        return self._stripped(sink, [self._stop(one) for one in forbidden], {})

    def _stripped(self, sink: _State, stops: list[_State], done: dict[int, _State]) -> _State:
        if sink.number in done:
            return done[sink.number]
        copy = done[sink.number] = self._state(sink.plain_name, sink.stage, sink.kind, sink.within_ms)
        for action, target, test in sink.edges:
            if action is not Action.PROCEED:
                copy.add(action, copy if target is sink else target, test)
            elif target.kind is not StateKind.STOP:
                copy.add(action, self._stripped(target, stops, done), test)
            elif target not in stops:
                copy.add(action, target, test)
        return copy


def _all(*tests: Test) -> Test:
    flat: list[Test] = []
    for test in tests:
        flat += test.tests if isinstance(test, All) else [test]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def _forbid(state: _State, test: Test) -> None:
    """Nothing goes on from the state with an event that fulfils the test."""
    state.edges[:] = [(action, target, _all(known, Not(test))) for action, target, known in state.edges]


def shape_of(pattern: Pattern) -> str:
    """The stages with how they follow and how often they occur; conditions, times and the skip strategy may change."""

    def shown(stages: tuple[Stage, ...]) -> str:
        return " ".join(
            f"{stage.link.value}:{'(' + shown(stage.stages) + ')' if isinstance(stage, Group) else repr(stage.name)}"
            f"{{{stage.minimum},{stage.maximum}}}"
            + ("r" if stage.repeated else "")
            + (f"/{stage.inner.value}" if stage.repeated else "")
            + ("?" if stage.optional else "")
            + ("g" if stage.greedy else "")
            + ("u" if stage.until is not None else "")
            for stage in stages
        )

    return shown(pattern.stages)
