"""Steps that are others when a job is only looked at: sinks write nothing, windows are taken record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.records import Batch
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.services import Services
from penstock.windows.operators.observed import ObservedWindowOperator
from penstock.windows.step import WindowStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedSink(Definition):
    """Stands for a sink, and takes what it would have been given."""

    sink: SinkStep

    @property
    def kind(self) -> str:
        return self.sink.kind

    def function(self) -> Any:
        return None

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return CapturingOperator(step, services)


class CapturingOperator(Operator):
    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class EachRecord(Definition):
    """Stands for windows that may take a batch at a time: it does the same, and can be watched more closely."""

    windows: WindowStep

    @property
    def kind(self) -> str:
        return self.windows.kind

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return ObservedWindowOperator(step, services, self.windows)
