"""Steps without state that see record by record: map, flat_map, filter, process.

The loops below use `list.extend` over an iterator: it runs in C, and after an exception the length of the list tells which record
the function raised on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import compress, repeat
from types import GeneratorType
from typing import Any, ClassVar, Literal

import numpy as np

from penstock.changes import ANY_CHANGES, Changes
from penstock.contexts import ChangeContext, ProcessContext
from penstock.functions import Call, CallsFunctions, call_of, life_cycle
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy, StateDeclaration
from penstock.plan.schema import Schema
from penstock.records import NO_TIMESTAMP, Batch, Carried, Columns, Records, Timestamps, carried
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.observer import Invocation
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.returned import as_records
from penstock.runtime.operators.scopes import bind_operator_states, check_scopes, declarations, states_of
from penstock.runtime.services import Services
from penstock.state.descriptors import state_calls

StatelessKind = Literal["map", "flat_map", "filter", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateless(Definition):
    """map, flat_map, filter or process by a user's function."""

    what: StatelessKind
    body: Any

    @property
    def kind(self) -> str:
        return self.what

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        arguments = ("value", "ctx") if self.what == "process" else ("value",)
        several = self.what in ("flat_map", "process")
        inner = self.body.function_calls() if isinstance(self.body, CallsFunctions) else ()
        return call_of(self.body, self.what, *arguments, several=several), *life_cycle(self.body), *inner

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return inputs[0] if self.what == "filter" else None

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        function = services.opened(step, self.body)
        operator = {"map": MapOperator, "flat_map": FlatMapOperator, "filter": FilterOperator, "process": ProcessOperator}[
            self.what
        ]
        return operator(step, services, function, self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithOperatorState(Stateless):
    """A function whose class declares lists of its partition."""

    sees_order: ClassVar[bool] = True

    def calls(self) -> tuple[Call, ...]:
        return *Stateless.calls(self), *state_calls(self.body)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return tuple(declarations(step, self.body))

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        operator = Stateless.build(self, step, services, inputs)
        assert isinstance(operator, PerRecord)
        bind_operator_states(services, step, operator.function, self.body)
        return operator


def per_record(what: StatelessKind, body: Any, errors: ErrorPolicy) -> Stateless:
    """The step for a function that is called for each record."""
    check_scopes(body, ("operator",), f"{what} of a stream that is not keyed")
    return (WithOperatorState if states_of(body, "operator") else Stateless)(what=what, body=body, errors=errors)


class PerRecord(Operator):
    """A step that calls a user's function for each record."""

    method = ""
    observed = frozenset(("record",))

    def __init__(self, step: StepId, services: Services, function: Any, errors: ErrorPolicy, inputs: int = 1) -> None:
        super().__init__(step, services, inputs)
        self.function = function
        self.call: Callable[..., Any] = method_of(function, self.method)
        self.errors = errors

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        self.run(unkeyed(batch))

    def run(self, batch: Batch) -> None:
        """Call the function for each record, and emit."""
        raise NotImplementedError

    def calling(self, batch: Batch) -> Callable[..., Any]:
        """The function, for the records of a batch."""
        observer = self.observer
        if observer is None:
            return self.call
        times = iter([NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist())

        def invoked(record: Any, ctx: ProcessContext | None = None) -> Any:
            one = Invocation("record", record, next(times), self.watermark)

            def proceed() -> Any:
                mark = {} if ctx is None else ctx.side_mark()
                result = self.call(record) if ctx is None else self.call(record, ctx)
                result, records = self.made(record, result)
                one.emits(((made, one.time) for made in records), ctx, mark)
                return result

            return observer.on_call(one, proceed)

        return invoked

    def made(self, record: Any, result: Any) -> tuple[Any, list[Any]]:
        """What the function returned, and what the step emits for it."""
        records = [] if result is None else list(as_records(result, self.step, self.function, self.method))
        return records, records

    def rejected(self, error: Exception, record: Any, time: int) -> None:
        """A record the function raised on: fail, skip, or send it to the dead letters."""
        if self.errors == "fail":
            raise self.user_error(error, self.function, record) from error
        self.set_aside(error, self.function, record, time)

    def applied(self, batch: Batch) -> tuple[list[Any], np.ndarray[Any, np.dtype[np.bool_]] | None]:
        """The function's result for each record; and, if records were rejected, a mask of those that were not."""
        call, values = self.calling(batch), batch.values()
        results: list[Any] = []
        rejected: list[int] = []
        while True:
            at = len(results)
            try:
                results.extend(map(call, values[at:] if at else values))
                if len(results) < len(values):
                    raise StopIteration  # the function raised it, and map took it for the end
                break
            except Exception as error:
                row = len(results)
                time = NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[row])
                self.rejected(error, values[row], time)
                rejected.append(row)
                results.append(None)
        if not rejected:
            return results, None
        mask = np.ones(len(values), dtype=bool)
        mask[rejected] = False
        return results, mask


class MapOperator(PerRecord):
    method = "map"

    def made(self, record: Any, result: Any) -> tuple[Any, list[Any]]:
        return result, [result]

    def run(self, batch: Batch) -> None:
        results, mask = self.applied(batch)
        if mask is not None:
            results = list(compress(results, mask))
        self.outputs.emit(Records(results, *carried(batch, mask)))


class FilterOperator(PerRecord):
    method = "filter"

    def made(self, record: Any, result: Any) -> tuple[Any, list[Any]]:
        return result, [record] if result else []

    def run(self, batch: Batch) -> None:
        results, mask = self.applied(batch)
        keep = np.fromiter(map(bool, results), dtype=bool, count=len(results))
        if mask is not None:
            keep &= mask
        if keep.all():
            self.outputs.emit(batch)
        elif isinstance(batch, Columns):
            self.outputs.emit(batch.take(np.flatnonzero(keep)))
        else:
            self.outputs.emit(Records(list(compress(batch.values(), keep)), *carried(batch, keep)))


class FlatMapOperator(PerRecord):
    method = "flat_map"

    def run(self, batch: Batch) -> None:
        call, function = self.calling(batch), self.function
        out: list[Any] = []
        ends: list[int] = []
        rows = enumerate(batch.values())
        row, record = 0, None
        while True:
            try:
                for row, record in rows:  # noqa: B007 - both are needed after an error
                    result = call(record)
                    if type(result) is list or type(result) is GeneratorType:
                        out.extend(result)
                    elif result is not None:
                        out.extend(as_records(result, self.step, function, "flat_map"))
                    ends.append(len(out))
                break
            except Exception as error:
                del out[ends[-1] if ends else 0 :]
                ends.append(len(out))
                self.rejected(error, record, NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[row]))
        self.outputs.emit(Records(out, *repeated(carried(batch), ends)))


class ProcessOperator(PerRecord):
    method = "process"

    def run(self, batch: Batch) -> None:
        call, ctx = self.calling(batch), ProcessContext() if batch.kinds is None else ChangeContext()
        ctx.current_watermark = self.watermark
        ctx.current_processing_time = self.services.processing_time
        values = batch.values()
        times = [NO_TIMESTAMP] * len(values) if batch.timestamps is None else batch.timestamps.tolist()
        ticks = repeat(self.watermark, len(values)) if batch.ticks is None else batch.ticks.tolist()
        out: list[Any] = []
        usual: type | None = None
        ends: list[int] = []
        rows: Iterator[tuple[Any, int, int]] = zip(values, times, ticks, strict=True)
        if isinstance(ctx, ChangeContext) and batch.kinds is not None:
            rows = ctx.following(batch.kinds.tolist(), rows)
        record, time = None, NO_TIMESTAMP
        tolerant, mark = self.errors != "fail", ctx.side_mark()
        while True:
            try:
                for record, time, tick in rows:
                    ctx.timestamp_ms = time
                    ctx.current_watermark = tick
                    if tolerant:
                        mark = ctx.side_mark()
                    result = call(record, ctx)
                    if result is not None:
                        if type(result) is not usual:
                            result = as_records(result, self.step, self.function, self.method)
                            usual = type(result)
                        out.extend(result)
                    ends.append(len(out))
                break
            except Exception as error:
                del out[ends[-1] if ends else 0 :]
                ends.append(len(out))
                ctx.side_back_to(mark)
                self.rejected(error, record, time)
        self.outputs.emit_sides(ctx.take_side())
        self.outputs.emit(Records(out, *repeated(carried(batch), ends)))


def repeated(beside: Carried, ends: list[int] | Timestamps) -> Carried:
    """Timestamps, ticks and kinds of outputs, where the outputs of row i end at `ends[i]`."""
    times, ticks, kinds = beside
    if times is None and ticks is None and kinds is None:
        return None, None, None
    counts = np.array(ends, dtype=np.int64)
    counts[1:] -= counts[:-1].copy()
    return (
        None if times is None else np.repeat(times, counts),
        None if ticks is None else np.repeat(ticks, counts),
        None if kinds is None else np.repeat(kinds, counts),
    )
