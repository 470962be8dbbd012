"""Steps without state that see record by record: map, flat_map, filter, process.

The loops below use `list.extend` over an iterator: it runs in C, and after an exception the length of the list tells which record
the function raised on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress, repeat
from types import GeneratorType
from typing import Any, Literal

import numpy as np

from penstock.contexts import ProcessContext
from penstock.functions import Call, CallsFunctions, call_of, life_cycle
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.plan.schema import Schema
from penstock.records import NO_TIMESTAMP, Batch, Columns, Records, Timestamps
from penstock.runtime.operators.operator import Operator, method_of
from penstock.runtime.operators.returned import as_records
from penstock.runtime.services import Services

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

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return inputs[0] if self.what == "filter" else None

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        function = services.opened(step, self.body)
        operator = {"map": MapOperator, "flat_map": FlatMapOperator, "filter": FilterOperator, "process": ProcessOperator}[
            self.what
        ]
        return operator(step, services, function, self.errors)


class PerRecord(Operator):
    """A step that calls a user's function for each record."""

    method = ""

    def __init__(self, step: StepId, services: Services, function: Any, errors: ErrorPolicy) -> None:
        super().__init__(step, services)
        self.function = function
        self.call: Callable[..., Any] = method_of(function, self.method)
        self.errors = errors

    def rejected(self, error: Exception, record: Any, time: int) -> None:
        """A record the function raised on: fail, skip, or send it to the dead letters."""
        if self.errors == "fail":
            raise self.user_error(error, self.function, record) from error
        self.set_aside(error, self.function, record, time)

    def applied(self, batch: Batch) -> tuple[list[Any], np.ndarray[Any, np.dtype[np.bool_]] | None]:
        """The function's result for each record; and, if records were rejected, a mask of those that were not."""
        values = batch.values()
        results: list[Any] = []
        rejected: list[int] = []
        while True:
            at = len(results)
            try:
                results.extend(map(self.call, values[at:] if at else values))
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

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        results, mask = self.applied(batch)
        times, ticks = batch.timestamps, batch.ticks
        if mask is not None:
            results = list(compress(results, mask))
            times = None if times is None else times[mask]
            ticks = None if ticks is None else ticks[mask]
        self.outputs.emit(Records(results, times, ticks))


class FilterOperator(PerRecord):
    method = "filter"

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        results, mask = self.applied(batch)
        keep = np.fromiter(map(bool, results), dtype=bool, count=len(results))
        if mask is not None:
            keep &= mask
        if keep.all():
            self.outputs.emit(batch)
        elif isinstance(batch, Columns):
            self.outputs.emit(batch.take(np.flatnonzero(keep)))
        else:
            times = None if batch.timestamps is None else batch.timestamps[keep]
            ticks = None if batch.ticks is None else batch.ticks[keep]
            self.outputs.emit(Records(list(compress(batch.values(), keep)), times, ticks))


class FlatMapOperator(PerRecord):
    method = "flat_map"

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        call, function = self.call, self.function
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
        self.outputs.emit(Records(out, *repeated(batch, ends)))


class ProcessOperator(PerRecord):
    method = "process"

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        call, ctx = self.call, ProcessContext()
        ctx.current_watermark = self.watermark
        ctx.current_processing_time = self.services.processing_time
        values = batch.values()
        times = [NO_TIMESTAMP] * len(values) if batch.timestamps is None else batch.timestamps.tolist()
        ticks = repeat(self.watermark, len(values)) if batch.ticks is None else batch.ticks.tolist()
        out: list[Any] = []
        usual: type | None = None
        ends: list[int] = []
        rows = zip(values, times, ticks, strict=True)
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
                            result = as_records(result, self.step, self.function, "process")
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
        self.outputs.emit(Records(out, *repeated(batch, ends)))


def repeated(batch: Batch, ends: list[int]) -> tuple[Timestamps | None, Timestamps | None]:
    """Timestamps and ticks of outputs, where the outputs of row i end at `ends[i]`."""
    times, ticks = batch.timestamps, batch.ticks
    if times is None and ticks is None:
        return None, None
    counts = np.asarray(ends, dtype=np.int64)
    counts[1:] -= counts[:-1].copy()
    return None if times is None else np.repeat(times, counts), None if ticks is None else np.repeat(ticks, counts)
