"""The step of window joins over columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ids import StepId
from penstock.joins.columns import JoinedColumns
from penstock.joins.interval.step import ROWS
from penstock.joins.spec import LEFT, RIGHT, JoinKind, Side
from penstock.joins.window.columnar import WindowJoinOperator
from penstock.plan.definition import Definition, KeyFields, StateDeclaration, Takes
from penstock.plan.schema import Schema
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.windows.assigners import AlignedWindows, WindowAssigner
from penstock.windows.columnar.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarWindowJoin(Definition):
    """A join in tumbling or sliding windows whose results are columns of both sides."""

    assigner: AlignedWindows
    columns: JoinedColumns
    how: JoinKind
    late: tuple[str | None, str | None] = (None, None)
    key_type: Any = None
    key_fields: tuple[KeyFields | None, KeyFields | None] = (None, None)
    sees_order: ClassVar[bool] = True
    is_join: ClassVar[bool] = True
    state_names: ClassVar[tuple[str, str]] = ("left", "right")

    @property
    def kind(self) -> str:
        return "window join"

    @property
    def grid(self) -> Grid:
        return Grid(self.assigner.size_ms, self.assigner.slide_ms, self.assigner.offset_ms)

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
        shown = "all columns" if columns is None else ", ".join(columns)
        name = self.state_names[side]
        return f"window join; {name}; kept for {self.assigner.size_ms} ms; {self.assigner.describe()}; {shown}"

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return tuple(
            StateDeclaration(
                step=step, name=name, state=None, kind=ROWS, key_type=self.key_type, key_fields=fields, what=self.kept(side)
            )
            for side, name, fields in ((LEFT, "left", self.key_fields[LEFT]), (RIGHT, "right", self.key_fields[RIGHT]))
        )

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return WindowJoinOperator(step, services, inputs, self)

    def describe(self) -> dict[str, str]:
        """For explain."""
        where = ["dropped, and counted" if tag is None else f"to the side output {tag!r}, and counted" for tag in self.late]
        return {
            "join": f"{self.how}, in {self.assigner.describe()}",
            "late records": f"left: {where[0]}; right: {where[1]}",
            "columns": self.columns.describe(),
            "path": "over columns: matched in bulk, by key and window",
        }


def why_not_over_columns(assigner: WindowAssigner, *, plain: bool) -> str | None:
    """A reason, or None. `plain`: no trigger, evictor or allowed lateness was given."""
    if not isinstance(assigner, AlignedWindows) or not assigner.event_time:
        return "only tumbling and sliding windows of event time are"
    if assigner.stagger != "aligned" or assigner.size_ms < assigner.slide_ms:
        return "windows that are staggered, or have gaps between them, are not"
    return None if plain else "triggers, evictors and allowed lateness look at single records"
