"""Several streams of one type, as one."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.ids import StepId
from penstock.plan.definition import ANYTHING, Definition, Takes
from penstock.plan.schema import Schema, common_schema
from penstock.records import Batch
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(Definition):
    """Passes everything on; its watermark is the least of its inputs'."""

    @property
    def kind(self) -> str:
        return "union"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (ANYTHING,) * max(1, given)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return common_schema(inputs)

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return wanted

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return UnionOperator(step, services, inputs)


class UnionOperator(Operator):
    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        self.outputs.emit(batch)
