"""Steps that take the records of two streams, each by a function of its own: map, flat_map and process of connected streams."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.contexts import RuntimeContext
from penstock.errors import PlanError
from penstock.functions import Call, Function, call_of, function_location, life_cycle, method_call
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy, Scope, StateDeclaration, Takes
from penstock.runtime.frames import Payload
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.scopes import bind_operator_states, check_scopes, declarations
from penstock.runtime.operators.stateless import FlatMapOperator, MapOperator, PerRecord, ProcessOperator
from penstock.runtime.services import Services
from penstock.state.descriptors import state_calls


class BothSides(Function):
    """The functions of two sides, opened and closed together."""

    def __init__(self, first: Any, second: Any) -> None:
        self.sides = [first, second]

    def open(self, context: RuntimeContext) -> None:
        self.sides = [copy.copy(side) if isinstance(side, Function) else side for side in self.sides]
        for side in self.sides:
            if isinstance(side, Function):
                side.open(context)

    def close(self) -> None:
        for side in self.sides:
            if isinstance(side, Function):
                side.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoStateless(Definition):
    """map or flat_map of connected streams: a function for each side."""

    what: Literal["map", "flat_map"]
    first: Any
    second: Any
    keyed: bool = False
    key_type: Any = None

    @property
    def kind(self) -> str:
        return f"co-{self.what}"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=self.keyed, key_type=self.key_type if self.keyed else None),) * 2

    def function(self) -> Any:
        return self.first

    def calls(self) -> tuple[Call, ...]:
        several = self.what == "flat_map"
        return tuple(
            call
            for side in (self.first, self.second)
            for call in (call_of(side, self.what, "value", several=several), *life_cycle(side))
        )

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        opened = services.opened(step, BothSides(self.first, self.second))
        operator = CoMapOperator if self.what == "map" else CoFlatMapOperator
        return operator(step, services, [(side, method_of(side, self.what)) for side in opened.sides], self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoProcess(Definition):
    """A `CoProcessFunction` on streams that are not keyed."""

    body: Any
    sees_order: ClassVar[bool] = True
    made_for: ClassVar[str] = "CoProcessFunction"
    methods: ClassVar[tuple[str, ...]] = ("process1", "process2")
    """What is called for a record, by the input that it comes in at."""
    scopes: ClassVar[tuple[Scope, ...]] = ("operator",)
    """Whose state its function may have."""

    def __post_init__(self) -> None:
        if not all(callable(getattr(self.body, name, None)) for name in self.methods):
            expected = " and ".join(f"{name}(self, value, ctx)" for name in self.methods)
            raise PlanError(f"{self.body!r} is not a {self.made_for}", hint=f"give an instance of a class with {expected}")
        check_scopes(self.body, self.scopes, f"{self.made_for} on streams that are not keyed")
        if callable(getattr(self.body, "on_timer", None)):
            raise PlanError(
                f"{function_location(self.body)} has on_timer, but its streams are not keyed",
                hint="timers are of a key: bring the records of each key together with key_by(...)",
            )

    @property
    def kind(self) -> str:
        return "co-process"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=False),) * len(self.methods)

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        methods = (method_call(self.body, name, "value", "ctx", several=True) for name in self.methods)
        return *methods, *life_cycle(self.body), *state_calls(self.body)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return tuple(declarations(step, self.body))

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return CoProcessOperator(step, services, self)


class Sided(PerRecord):
    """A step that calls a function, or a method of its function, for the input that a record comes in at."""

    def __init__(self, step: StepId, services: Services, sides: list[tuple[Any, Any]], errors: ErrorPolicy) -> None:
        super().__init__(step, services, sides[0][0], errors, inputs=len(sides))
        self._sides = sides

    def on_input(self, port: int, batch: Payload) -> None:
        self.function, self.call = self._sides[port]
        self.on_batch(batch)


class CoMapOperator(Sided, MapOperator):
    """map of connected streams."""


class CoFlatMapOperator(Sided, FlatMapOperator):
    """flat_map of connected streams."""


class CoProcessOperator(Sided, ProcessOperator):
    """The methods of one function."""

    def __init__(self, step: StepId, services: Services, definition: CoProcess) -> None:
        function = services.opened(step, definition.body)
        sides = [(function, getattr(function, name)) for name in definition.methods]
        super().__init__(step, services, sides, definition.errors)
        self._methods = definition.methods
        bind_operator_states(services, step, function, definition.body)

    def on_input(self, port: int, batch: Payload) -> None:
        self.method = self._methods[port]
        super().on_input(port, batch)
