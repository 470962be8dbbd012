"""Several streams of one type, as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.changes import ANY_CHANGES, Changes
from penstock.ids import StepId
from penstock.plan.definition import ANYTHING, Definition, Takes
from penstock.plan.schema import Schema, common_schema
from penstock.records import Batch
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.ordering import merged
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(Definition):
    """Passes everything on; its watermark is the least of its inputs'."""

    @property
    def kind(self) -> str:
        return "union"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return (ANYTHING,) * max(1, given)

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return common_schema(inputs)

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return wanted

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return UnionOperator(step, services, inputs)


class UnionOperator(Operator):
    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        self.outputs.emit(self._with_kinds(batch))

    def on_merged(self, batches: dict[int, Payload], ports: Ports) -> None:
        self.on_batch(merged([self._with_kinds(batch) for batch in batches.values()]))

    def _with_kinds(self, batch: Payload) -> Batch:
        batch = unkeyed(batch)
        if self.updates and batch.kinds is None:  # of an input that only adds rows
            batch = batch.with_kinds(np.zeros(len(batch), dtype=np.int8))
        return batch
