"""Pattern steps: a frozen definition that the plan can inspect, and makes the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.cep.automaton import Automaton
from penstock.cep.conditions import OfColumns, OfEvent, OfMatch, in_bulk, leaves, why_not_in_bulk
from penstock.cep.functions import PatternBody
from penstock.cep.pattern import Pattern
from penstock.errors import PlanError
from penstock.functions import Call, call_of
from penstock.ids import StepId
from penstock.plan.definition import Definition, KeyFields, StateDeclaration, Takes
from penstock.plan.expressions.checking import check
from penstock.plan.schema import Schema
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import TIMER_STATES, Services
from penstock.state.descriptors import MapState, State, ValueState
from penstock.state.entries.kinds import TIMERS

if TYPE_CHECKING:
    from penstock.cep.operators.lane import Lane

TimeDomain = Literal["event", "processing"]
WhenFull = Literal["fail", "drop_oldest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPatterns(Definition):
    """Patterns on a keyed stream. `event_type`: of the events that are kept; `ties`: gives the order of events of one time."""

    body: PatternBody
    key_type: Any = None
    key_fields: KeyFields | None = None
    event_type: Any = None
    late: str | None = None
    time: TimeDomain = "event"
    ties: Callable[[Any], Any] | None = None
    max_partial_matches: int = 10_000
    when_full: WhenFull = "fail"
    sees_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.time not in ("event", "processing"):
            raise PlanError(f"time={self.time!r}", hint='choose "event" or "processing"')
        if self.when_full not in ("fail", "drop_oldest"):
            raise PlanError(f"when_full={self.when_full!r}", hint='choose "fail" or "drop_oldest"')
        if type(self.max_partial_matches) is not int or self.max_partial_matches < 1:
            raise PlanError(f"max_partial_matches={self.max_partial_matches!r}", hint="give a number from 1 on")
        if self.late is not None and self.time == "processing":
            raise PlanError("nothing is late in processing time", hint="leave late= out")

    def function(self) -> Any:
        return self.body.function

    def calls(self) -> tuple[Call, ...]:
        return self.body.calls() if self.ties is None else (*self.body.calls(), call_of(self.ties, "ties", "event"))

    def kept(self) -> str:
        """What partial matches depend on, as text."""
        raise NotImplementedError

    def lanes(self) -> Iterator[Lane]:
        """The patterns that are known when the job is built."""
        raise NotImplementedError

    def describe(self) -> dict[str, str]:
        """For explain."""
        raise NotImplementedError

    def key_states(self) -> dict[str, State]:
        """State per key, by name."""
        from penstock.cep.operators.stored import StoredKey

        event: Any = self.event_type
        typed: Any = None if event is None else tuple[int, event]
        several: Any = None if event is None else list[event]
        return {"matches": ValueState(StoredKey), "events": MapState(int, typed), "waiting": MapState(int, several)}

    def keyed_declarations(self, step: StepId) -> tuple[StateDeclaration, ...]:
        keys: dict[str, Any] = {"key_type": self.key_type, "key_fields": self.key_fields}
        return tuple(
            StateDeclaration(
                step=step, name=name, state=state, kind=state.kind, what=self.kept() if name == "matches" else "", **keys
            )
            for name, state in self.key_states().items()
        ) + tuple(StateDeclaration(step=step, name=name, state=None, kind=TIMERS.name, **keys) for name in TIMER_STATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternStep(KeyedPatterns):
    """One pattern, of the program."""

    pattern: Pattern
    automaton: Automaton

    @property
    def kind(self) -> str:
        return "pattern"

    def calls(self) -> tuple[Call, ...]:
        found = list(super(PatternStep, self).calls())
        for condition in self.automaton.conditions:
            for leaf in leaves(condition):
                if isinstance(leaf, OfMatch):
                    found.append(call_of(leaf.function, "condition", "event", "match"))
                elif isinstance(leaf, OfEvent):
                    found.append(call_of(leaf.function, "condition", "event"))
        return tuple(found)

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=True, key_type=self.key_type),)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        for condition in self.automaton.conditions:
            for leaf in leaves(condition):
                if isinstance(leaf, OfColumns):
                    check(leaf.node, inputs[0])
        return None

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return self.keyed_declarations(step)

    def kept(self) -> str:
        """What partial matches depend on: stages, how they follow and how often they occur; not conditions and times."""
        return f"partial matches of {self.automaton.shape}, in {self.time} time"

    def lanes(self) -> Iterator[Lane]:
        from penstock.cep.operators.lane import Lane

        yield Lane("", self.automaton, limit=self.max_partial_matches, drops=self.when_full == "drop_oldest")

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        from penstock.cep.operators.operator import PatternOperator

        return PatternOperator(step, services, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        bulk, rest = [], []
        for condition in self.automaton.conditions:
            if in_bulk(condition):
                bulk.append(condition.describe())
            else:
                rest.append(f"{condition.describe()}: {why_not_in_bulk(condition)}")
        shown = {"pattern": self.pattern.describe(), "time": f"{self.time} time"}
        shown["in bulk"] = "; ".join(bulk) or "nothing"
        if rest:
            shown["event by event"] = "; ".join(rest)
        return shown
