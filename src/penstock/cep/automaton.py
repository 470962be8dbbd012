"""The automaton of a pattern, as data: states, and edges with tests.

A partial match is in a state. For an event, edges whose test holds are followed: `PROCEED` to another state with the same event,
`TAKE` puts the event into the match, `IGNORE` leaves it out. A match that reaches a `stop` state is dropped, with all that the
event would have made of it; one that reaches the `final` state is complete; one in a `pending` state is complete when its time is
over. Tests are made of atoms: conditions, by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from penstock.cep.conditions import Condition
from penstock.cep.skipping import SkipStrategy
from penstock.ids import Milliseconds

Truth = Callable[[int], bool]
"""Says of an atom whether it holds."""


@dataclass(frozen=True, slots=True)
class Atom:
    number: int

    def holds(self, truth: Truth) -> bool:
        return truth(self.number)

    def atoms(self) -> Iterator[int]:
        yield self.number

    def describe(self) -> str:
        return f"c{self.number}"


@dataclass(frozen=True, slots=True)
class Not:
    test: Test

    def holds(self, truth: Truth) -> bool:
        return not self.test.holds(truth)

    def atoms(self) -> Iterator[int]:
        yield from self.test.atoms()

    def describe(self) -> str:
        return f"not {self.test.describe()}"


@dataclass(frozen=True, slots=True)
class All:
    tests: tuple[Test, ...] = ()

    def holds(self, truth: Truth) -> bool:
        return all(test.holds(truth) for test in self.tests)

    def atoms(self) -> Iterator[int]:
        for test in self.tests:
            yield from test.atoms()

    def describe(self) -> str:
        return "(" + " and ".join(test.describe() for test in self.tests) + ")" if self.tests else "always"


Test: TypeAlias = Atom | Not | All
ALWAYS = All()


class Action(Enum):
    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"


class StateKind(Enum):
    START = "start"
    NORMAL = "normal"
    PENDING = "pending"
    STOP = "stop"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Edge:
    action: Action
    target: int
    test: Test


@dataclass(frozen=True, slots=True)
class AutomatonState:
    """`stage`: what a taken event is an event of. `within_ms`: less time than this since the last event of the match."""

    name: str
    stage: str
    kind: StateKind
    edges: tuple[Edge, ...]
    within_ms: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Automaton:
    """`shape`: what a partial match depends on; a pattern of another shape cannot go on with it."""

    states: tuple[AutomatonState, ...]
    start: int
    conditions: tuple[Condition, ...]
    stages: tuple[str, ...]
    """The stages that take events, in order."""
    within_ms: Milliseconds | None
    skip: SkipStrategy
    shape: str

    def describe(self) -> str:
        lines = []
        for number, state in enumerate(self.states):
            within = "" if state.within_ms is None else f", within {state.within_ms} ms"
            lines.append(f"{number} {state.name} ({state.kind.value}{within})")
            lines += [f"    {edge.action.value} -> {edge.target} if {edge.test.describe()}" for edge in state.edges]
        lines += [f"c{number}: {condition.describe()}" for number, condition in enumerate(self.conditions)]
        return "\n".join(lines)

    @property
    def times_out(self) -> bool:
        return self.within_ms is not None or any(state.within_ms is not None for state in self.states)
