"""The end of a stream: batches go to a sink's writer, and what it prepared goes into the task's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.changes import ANY_CHANGES, APPENDS, Changelog, Changes, RowKind
from penstock.connectors.protocol import Sink, SinkWriter, TakesChanges, WriterContext
from penstock.errors import PenstockError, SinkError
from penstock.functions import Call, CallsFunctions
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStep(Definition):
    """Writes to a sink."""

    sink: Any
    changes_hint: ClassVar[str] = (
        "put .changes_as_rows() before it, or choose a sink that takes changes, such as FileSink(kind_field=...) or "
        "SqliteSink(key=...)"
    )

    @property
    def kind(self) -> str:
        return f"sink {self.sink.describe()}"

    @property
    def accepts(self) -> Changes:
        return APPENDS if changelog_of(self.sink) == "append" else ANY_CHANGES

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS

    def calls(self) -> tuple[Call, ...]:
        return self.sink.function_calls() if isinstance(self.sink, CallsFunctions) else ()

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SinkOperator(step, services, self.sink, services.writer_context(step))


def changelog_of(sink: Sink) -> Changelog:
    """What a sink takes of a stream that updates."""
    return sink.changelog if isinstance(sink, TakesChanges) else "append"


class SinkOperator(Operator):
    def __init__(self, step: StepId, services: Services, sink: Sink, context: WriterContext) -> None:
        super().__init__(step, services)
        self._sink = sink
        self._context = context
        self._writer: SinkWriter | None = None
        self._upserts = changelog_of(sink) == "upsert"

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        batch = unkeyed(batch)
        if self._upserts and batch.kinds is not None:
            batch = batch.take(np.flatnonzero(batch.kinds != RowKind.UPDATE_BEFORE.code))
        try:
            if self._writer is None:
                self._writer = self._sink.writer(self._context)
            self._writer.write(batch)
        except Exception as error:
            raise self._failure(error, "write") from error

    def finish(self) -> None:
        if self._writer is None:
            return
        try:
            self.services.committables[self.step] = self._writer.prepare()
        except Exception as error:
            raise self._failure(error, "prepare") from error

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()

    def _failure(self, error: Exception, doing: str) -> Exception:
        if isinstance(error, PenstockError):
            return error
        return SinkError(
            f"the sink of step {self.step!r} failed to {doing}: {type(error).__name__}: {error}",
            detail=self._sink.describe(),
            hint="nothing of this epoch was published; it is tried again after the sink is well",
        )
