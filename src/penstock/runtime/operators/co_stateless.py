"""Steps that take the records of two streams, each by a function of its own: map, flat_map and process of connected streams."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.contexts import RuntimeContext
from penstock.errors import PlanError
from penstock.functions import Call, Function, call_of, function_location, life_cycle, method_call
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy, Takes
from penstock.runtime.frames import Payload
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.stateless import FlatMapOperator, MapOperator, PerRecord, ProcessOperator
from penstock.runtime.services import Services
from penstock.state.descriptors import declared_states

SIDES = ("process1", "process2")


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

    def __post_init__(self) -> None:
        if not all(callable(getattr(self.body, name, None)) for name in SIDES):
            raise PlanError(
                f"{self.body!r} is not a CoProcessFunction",
                hint="give an instance of a class with process1(self, value, ctx) and process2(self, value, ctx)",
            )
        keyed = next((name for name in declared_states(self.body)), None)
        if keyed is not None or callable(getattr(self.body, "on_timer", None)):
            has = "on_timer" if keyed is None else f"the state {keyed!r}"
            raise PlanError(
                f"{function_location(self.body)} has {has}, but its streams are not keyed",
                hint="state and timers are of a key: connect a.key_by(...) with b.key_by(...)",
            )

    @property
    def kind(self) -> str:
        return "co-process"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=False),) * len(SIDES)

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        methods = (method_call(self.body, name, "value", "ctx", several=True) for name in SIDES)
        return *methods, *life_cycle(self.body)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        function = services.opened(step, self.body)
        return CoProcessOperator(step, services, [(function, getattr(function, name)) for name in SIDES], self.errors)


class Sided(PerRecord):
    """A step that calls a function, or a method of its function, for the input that a record comes in at."""

    methods: ClassVar[tuple[str, ...]] = ()
    """What the methods are called in messages, if they are of one function."""

    def __init__(self, step: StepId, services: Services, sides: list[tuple[Any, Any]], errors: ErrorPolicy) -> None:
        super().__init__(step, services, sides[0][0], errors, inputs=len(sides))
        self._sides = sides

    def on_input(self, port: int, batch: Payload) -> None:
        self.function, self.call = self._sides[port]
        if self.methods:
            self.method = self.methods[port]
        self.on_batch(batch)


class CoMapOperator(Sided, MapOperator):
    """map of connected streams."""


class CoFlatMapOperator(Sided, FlatMapOperator):
    """flat_map of connected streams."""


class CoProcessOperator(Sided, ProcessOperator):
    methods = SIDES
