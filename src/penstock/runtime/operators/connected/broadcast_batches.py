"""map_batches with a broadcast input: a vectorised function, and state that the broadcast records change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.changes import APPENDS, Changes
from penstock.contexts import ProcessContext
from penstock.errors import PlanError, ReturnedValueError
from penstock.functions import Call, function_location, life_cycle, method_call
from penstock.ids import StepId
from penstock.plan.definition import StateDeclaration, Takes
from penstock.records import NO_TIMESTAMP, Batch
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.connected.broadcast import opened
from penstock.runtime.operators.map_batches import MapBatches, MapBatchesOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.scopes import bind_broadcast_states, bind_operator_states, check_scopes, declarations
from penstock.runtime.services import Services
from penstock.state.descriptors import state_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastBatches(MapBatches):
    """A `BroadcastBatchFunction` on a stream that is not keyed and a broadcast one."""

    sees_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not all(callable(getattr(self.body, name, None)) for name in ("map_batch", "process_broadcast")):
            raise PlanError(
                f"{self.body!r} is not a BroadcastBatchFunction",
                hint="give an instance of a class with map_batch(self, batch) and process_broadcast(self, value, ctx)",
            )
        check_scopes(self.body, ("broadcast", "operator"), "BroadcastBatchFunction")

    @property
    def kind(self) -> str:
        return "broadcast map_batches"

    @property
    def accepts(self) -> Changes:
        return APPENDS

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=False), Takes(broadcast=True)

    def calls(self) -> tuple[Call, ...]:
        methods = (
            method_call(self.body, "map_batch", "batch", several=True),
            method_call(self.body, "process_broadcast", "value", "ctx"),
        )
        return *methods, *life_cycle(self.body), *state_calls(self.body)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return tuple(declarations(step, self.body))

    def uses(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        return None  # the records of the broadcast stream are wanted as they are

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return BroadcastBatchesOperator(step, services, services.opened(step, self.body), self, inputs)


class BroadcastBatchesOperator(MapBatchesOperator):
    def __init__(self, step: StepId, services: Services, function: Any, definition: BroadcastBatches, inputs: int) -> None:
        super().__init__(step, services, function, definition, inputs)
        self._views = bind_broadcast_states(services, step, function, definition.body, self.watermark)
        bind_operator_states(services, step, function, definition.body)

    def on_input(self, port: int, batch: Payload) -> None:
        if port == 0:
            self.on_batch(batch)
        else:
            with opened(self._views.values()):
                self._take_broadcast(unkeyed(batch))

    def _take_broadcast(self, batch: Batch) -> None:
        self.records_in += len(batch)
        ctx, values = ProcessContext(), batch.values()
        ctx.current_processing_time = self.services.processing_time
        times = [NO_TIMESTAMP] * len(values) if batch.timestamps is None else batch.timestamps.tolist()
        ticks = [self.watermark] * len(values) if batch.ticks is None else batch.ticks.tolist()
        for record, ctx.timestamp_ms, ctx.current_watermark in zip(values, times, ticks, strict=True):
            try:
                returned = self._function.process_broadcast(record, ctx)
            except Exception as error:
                raise self.user_error(error, self._function, record, doing="a broadcast record") from error
            if returned is not None:
                raise ReturnedValueError(
                    f"step {self.step!r}: process_broadcast returned {returned!r:.100}, where nothing is expected",
                    detail=f"function: {function_location(self._function)}",
                    hint="it changes state; what is emitted comes from map_batch(batch)",
                )
        self.outputs.emit_sides(ctx.take_side())
