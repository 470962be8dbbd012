"""The steps of interval joins: over columns, and record by record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.functions import Call
from penstock.ids import Milliseconds, StepId
from penstock.joins.columns import JoinedColumns
from penstock.joins.interval.columnar import IntervalJoinOperator
from penstock.joins.interval.record import IntervalJoinFunction
from penstock.joins.results import ResultOutputs
from penstock.joins.spec import LEFT, RIGHT, IntervalSpec, Side
from penstock.plan.definition import Definition, KeyFields, StateDeclaration, Takes
from penstock.plan.schema import Schema
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.runtime.operators.keyed import KeyedProcessOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.state.descriptors import state_calls

ROWS = "join rows"
"""The kind of state of joins over columns."""

_LEAST_STRETCH_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarIntervalJoin(Definition):
    """An interval join whose results are columns of both sides."""

    spec: IntervalSpec
    columns: JoinedColumns
    key_type: Any = None
    key_fields: tuple[KeyFields | None, KeyFields | None] = (None, None)
    sees_order: ClassVar[bool] = True
    is_join: ClassVar[bool] = True
    state_names: ClassVar[tuple[str, str]] = ("left", "right")

    @property
    def kind(self) -> str:
        return "interval join"

    @property
    def stretch_ms(self) -> Milliseconds:
        """A stretch of time: a few of them are open at a time."""
        return max(_LEAST_STRETCH_MS, (self.spec.keep_ms(LEFT) + self.spec.keep_ms(RIGHT)) // 2)

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=True, key_type=self.key_type),) * 2

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self.columns.schema((inputs[LEFT], inputs[RIGHT]))

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        left, right = self.columns.kept(LEFT), self.columns.kept(RIGHT)
        return None if left is None or right is None else frozenset((*left, *right))

    def kept(self, side: Side) -> str:
        """Of what join stored rows are: with another text they would be misread."""
        columns = self.columns.kept(side)
        return "; ".join(
            (
                "interval join",
                ("left" if side == LEFT else "right") + (", outer" if self.spec.outer(side) else ""),
                f"kept for {self.spec.keep_ms(side)} ms",
                f"stretches of {self.stretch_ms} ms",
                "all columns" if columns is None else ", ".join(columns),
            )
        )

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return tuple(
            StateDeclaration(
                step=step, name=name, state=None, kind=ROWS, key_type=self.key_type, key_fields=fields, what=self.kept(side)
            )
            for side, name, fields in ((LEFT, "left", self.key_fields[LEFT]), (RIGHT, "right", self.key_fields[RIGHT]))
        )

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return IntervalJoinOperator(step, services, inputs, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        return {
            **self.spec.describe(),
            "columns": self.columns.describe(),
            "path": "over columns: matched in bulk, by key and time",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIntervalJoin(KeyedCoProcess):
    """An interval join whose results a function makes. `body`: an `IntervalJoinFunction`; `why`: not over columns."""

    is_join: ClassVar[bool] = True
    label: str = "interval join"
    why: str = "a function sees the records"

    @property
    def kind(self) -> str:
        return self.label

    def calls(self) -> tuple[Call, ...]:
        assert isinstance(self.body, IntervalJoinFunction)
        return *self.body.function_calls(), *state_calls(self.body)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        """What is kept of rows that have met depends on which sides are outer."""
        assert isinstance(self.body, IntervalJoinFunction)
        spec = self.body.spec
        kept = {
            name: f"interval join; {name}{', outer' if spec.outer(side) else ''}; kept for {spec.keep_ms(side)} ms"
            for side, name in ((LEFT, "left"), (RIGHT, "right"))
        }
        return tuple(replace(state, what=kept.get(state.name, "")) for state in KeyedCoProcess.states(self, step))

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        operator = KeyedProcessOperator(step, services, inputs, self)
        operator.outputs = ResultOutputs(operator.outputs, updates=False)
        return operator

    def describe(self) -> dict[str, str]:
        """For explain."""
        assert isinstance(self.body, IntervalJoinFunction)
        return {**self.body.spec.describe(), "path": f"record by record, not over columns: {self.why}"}
