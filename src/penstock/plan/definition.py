"""What a step is in a plan: a frozen, picklable definition with the states that it declares. In a worker it makes an operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.changes import APPENDS, Changes
from penstock.errors import PlanError
from penstock.functions import Call
from penstock.ids import StepId
from penstock.state.descriptors import MapState, OperatorListState, State

if TYPE_CHECKING:
    from penstock.plan.schema import Schema
    from penstock.runtime.operators.operator import Operator
    from penstock.runtime.services import Services

ErrorPolicy = Literal["fail", "skip", "dead_letter"]
ERROR_POLICIES: tuple[ErrorPolicy, ...] = ("fail", "skip", "dead_letter")

DEAD_LETTERS = "dead-letters"
"""The side output that gets the records a step with `errors="dead_letter"` could not process."""

KeyFields = tuple[str | int, ...]

Scope = Literal["keyed", "broadcast", "operator"]
"""Whose a state is: of each key; of the step, the same in all its partitions; of each partition of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What an input of a step must be. `keyed`: behind a `key_by` with this key type; None: keyed or not."""

    keyed: bool | None = None
    key_type: Any = None
    broadcast: bool = False


ANYTHING = Takes()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDeclaration:
    """A state of a step, as plan and manifest know it."""

    step: StepId
    name: str
    state: State | None
    kind: str
    key_type: Any = None
    what: str = ""
    """Of what it is, if that may not change while the state is kept."""
    namespace: int = 0
    """So many bytes (a window) follow the key."""
    key_fields: KeyFields | None = None
    """The fields that the key is made of; None if a function makes it."""
    scope: Scope = "keyed"

    def __post_init__(self) -> None:
        kinds = {"broadcast": MapState.kind, "operator": OperatorListState.kind}
        where = f"state {self.name!r} of step {self.step!r}"
        if self.kind != kinds.get(self.scope, self.kind) or (self.scope == "keyed" and self.kind == OperatorListState.kind):
            raise PlanError(
                f"{where}: {self.scope} state of kind {self.kind!r}",
                hint="broadcast state is a MapState, operator state an OperatorListState; all others are kept by key",
            )
        if self.scope != "keyed" and self.state is not None and self.state.ttl is not None:
            raise PlanError(
                f"{where}: {self.scope} state has no time to live", hint="leave ttl= out; remove what has had its time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A step of the plan: makes the operator."""

    errors: ErrorPolicy = field(default="fail")
    sees_order: ClassVar[bool] = False
    """What it does with a record may depend on the records and timers before it."""
    names_columns: ClassVar[bool] = False
    """It names columns, which are looked for when the step is built; a record without one is an error, not a null."""

    asks_outside: ClassVar[bool] = False
    """It asks another system: run again, it may be answered otherwise."""

    changes_hint: ClassVar[str] = (
        "put .changes_as_rows() before it: that makes an ordinary row of each change, with its kind in a field"
    )
    """What to do about a stream that updates, if it does not take it."""

    @property
    def kind(self) -> str:
        raise NotImplementedError

    def takes(self, given: int) -> tuple[Takes, ...]:
        """What its inputs must be, one for each; of a step that takes any number, for the number that was given."""
        return (ANYTHING,)

    @property
    def accepts(self) -> Changes:
        """The kinds of change that it takes: checked when the step is built."""
        return APPENDS

    def accepts_from(self, port: int) -> Changes:
        """The same of one of its inputs, for steps that do not take the same of all."""
        return self.accepts

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        """The kinds of change that it emits, side outputs included, if its inputs have these. Dead letters are always added."""
        return APPENDS.union(*inputs)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        raise NotImplementedError

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return ()

    def function(self) -> Any:
        """The user's function, for explain and errors."""
        return None

    def calls(self) -> tuple[Call, ...]:
        """How the user's functions will be called: checked when the step is built."""
        return ()

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        """What is known of the records it emits, from what is known of those it gets. `PlanError` if it cannot work on these."""
        return None

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        """The columns of its input that it uses, if of its output these are used; None: whole records."""
        return None
