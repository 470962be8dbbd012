"""The ends of a job when it is only looked at: sinks that write nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.records import Batch
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.services import Services


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
