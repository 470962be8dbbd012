"""The step of temporal joins over columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.changes import APPENDS, Changes
from penstock.ids import StepId
from penstock.joins.buffer.kind import VERSIONS
from penstock.joins.columns import JoinedColumns
from penstock.joins.interval.step import ROWS
from penstock.joins.spec import LEFT, RIGHT, Side
from penstock.joins.temporal.columnar import TemporalJoinOperator
from penstock.joins.temporal.record import accepted, described
from penstock.plan.definition import Definition, KeyFields, StateDeclaration, Takes
from penstock.plan.schema import Schema
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarTemporalJoin(Definition):
    """A temporal join whose results are columns of both sides. `keeps`: records without a version are results too."""

    columns: JoinedColumns
    keeps: bool
    late: tuple[str | None, str | None] = (None, None)
    key_type: Any = None
    key_fields: tuple[KeyFields | None, KeyFields | None] = (None, None)
    sees_order: ClassVar[bool] = True
    is_join: ClassVar[bool] = True
    state_names: ClassVar[tuple[str, str]] = ("waiting", "versions")

    @property
    def kind(self) -> str:
        return "temporal join"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (Takes(keyed=True, key_type=self.key_type),) * 2

    def accepts_from(self, port: int) -> Changes:
        return accepted(LEFT if port == 0 else RIGHT)

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self.columns.schema((inputs[LEFT], inputs[RIGHT]))

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        left, right = self.columns.kept(LEFT), self.columns.kept(RIGHT)
        return None if left is None or right is None else frozenset((*left, *right))

    def kept(self, side: Side) -> str:
        """Of what join stored rows are: with another text they would be misread."""
        columns = self.columns.kept(side)
        shown = "all columns" if columns is None else ", ".join(columns)
        return f"temporal join; {'waiting; kept for 0 ms' if side == LEFT else VERSIONS}; {shown}"

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return tuple(
            StateDeclaration(
                step=step, name=name, state=None, kind=ROWS, key_type=self.key_type, key_fields=fields, what=self.kept(side)
            )
            for side, name, fields in ((LEFT, "waiting", self.key_fields[LEFT]), (RIGHT, "versions", self.key_fields[RIGHT]))
        )

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return TemporalJoinOperator(step, services, inputs, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        return {
            **described(self.keeps, self.late),
            "columns": self.columns.describe(),
            "path": "over columns: matched in bulk, by key and time",
        }
