"""The start of a stream: splits are read, records get their timestamps, each source partition its watermark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.connectors.protocol import CountsSkipped, KnowsColumns, Reader, Source, Split
from penstock.errors import PenstockError, SourceError, UserCodeError
from penstock.functions import Call, CallsFunctions, function_location
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.jobs.source_order import SourceOrder
from penstock.plan.definition import Definition
from penstock.plan.schema import Schema
from penstock.records import Batch
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.timing.timestamps import HINT_NOTE, RECORD_NOTE, unit_warning
from penstock.timing.watermarks import PartitionClock, Watermarks


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStep(Definition):
    """Reads a source."""

    source: Any
    watermarks: Watermarks[Any] | None = None

    @property
    def kind(self) -> str:
        return f"source {self.source.describe()}"

    def function(self) -> Any:
        timestamp = None if self.watermarks is None else self.watermarks.timestamp
        return timestamp if callable(timestamp) else None

    def calls(self) -> tuple[Call, ...]:
        own = self.source._function_calls() if isinstance(self.source, CallsFunctions) else ()
        return *own, *(() if self.watermarks is None else self.watermarks._function_calls())

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self.source.known_columns() if isinstance(self.source, KnowsColumns) else None

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SourceOperator(step, services, self.source, self.watermarks)


class SourceOperator(Operator):
    """Runs as `for _ in operator.batches(): …`: each turn pushes one batch."""

    def __init__(self, step: StepId, services: Services, source: Source, watermarks: Watermarks[Any] | None) -> None:
        super().__init__(step, services)
        self._source = source
        self._watermarks = watermarks
        self._order = services.order.sources.get(step, SourceOrder(tasks=[]))
        mine = self._order.tasks[services.partition] if services.partition < len(self._order.tasks) else []
        self._splits: dict[str, list[Split]] = {}
        for split in mine:
            self._splits.setdefault(split.partition, []).append(split)
        self.clocks: dict[str, PartitionClock] = {}
        if watermarks is not None:
            self.clocks = {partition: watermarks.clock(self._order.clocks.get(partition)) for partition in self._splits}
        self._reader: Reader | None = None
        self._new = {partition for partition in self.clocks if self._order.clocks.get(partition) is None}
        """Source partitions of which no time is known yet."""

    def begin(self) -> None:
        """Tell what time it is before the first record."""
        self._announce()

    def current(self) -> Milliseconds | None:
        """This task's share of the source's watermark: None if it has no say in it."""
        times = [clock.watermark for clock in self.clocks.values()]
        if self._order.held is not None:
            times.append(self._order.held)
        return min(times, default=None)

    def batches(self) -> Iterator[Milliseconds]:
        """Read everything, a batch at a time, the partition that is most behind first; yields the time of what comes next."""
        self._reader = self._source.reader()
        runs = {partition: self._read(splits) for partition, splits in self._splits.items()}
        order = {partition: number for number, partition in enumerate(runs)}
        try:
            while runs:
                partition = min(runs, key=lambda p: (self.clocks[p].watermark if p in self.clocks else 0, order[p]))
                yield self.clocks[partition].watermark if partition in self.clocks else 0
                batch = self._next(runs[partition])
                if batch is None:
                    del runs[partition]
                else:
                    self._push(partition, batch)
        finally:
            if isinstance(self._reader, CountsSkipped):
                self.skipped += self._reader.skipped
            self._reader.close()

    def end(self) -> None:
        """The epoch's input is read; at the end of a bounded source, so is all time."""
        if self._order.ended:
            self.idle = False
            self.watermark = MAX_WATERMARK
            self.outputs.watermark(MAX_WATERMARK)

    def _read(self, splits: list[Split]) -> Iterator[Batch]:
        assert self._reader is not None
        for split in splits:
            yield from self._reader.read(split)

    def _next(self, run: Iterator[Batch]) -> Batch | None:
        try:
            return next(run, None)
        except PenstockError:
            raise
        except Exception as error:
            raise SourceError(
                f"source {self.step!r} could not be read: {type(error).__name__}: {error}",
                detail=self._source.describe(),
                hint="nothing of this epoch was committed; mend the source and start the job again",
            ) from error

    def _push(self, partition: str, batch: Batch) -> None:
        self.records_in += len(batch)
        watermarks = self._watermarks
        if watermarks is None:
            self.outputs.emit(batch)
            return
        try:
            batch = watermarks.assign(batch, self.services.processing_time)
            if partition in self._new:
                self._look(batch, watermarks)
                self._new.discard(partition)
            cuts = self.clocks[partition].advance(batch)
        except Exception as error:
            raise self._no_time(error, watermarks) from error
        start = 0
        final = self.clocks[partition].watermark
        for end, watermark in cuts:
            part = batch if (start, end) == (0, len(batch)) else batch.take(np.arange(start, end))
            self.outputs.emit(part)
            self.clocks[partition].watermark = watermark
            self._announce()
            start = end
        self.clocks[partition].watermark = final

    def _look(self, batch: Batch, watermarks: Watermarks[Any]) -> None:
        """Are the first timestamps in the unit that was said?"""
        if watermarks.timestamp is not None:
            self.services.warn(self.step, unit_warning(self.step, batch, watermarks.timestamp, watermarks.unit))

    def _no_time(self, error: Exception, watermarks: Watermarks[Any]) -> UserCodeError:
        given = watermarks._punctuation or watermarks.generator or watermarks.timestamp
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(RECORD_NOTE)]
        hints = [note.removeprefix(HINT_NOTE) for note in getattr(error, "__notes__", ()) if note.startswith(HINT_NOTE)]
        where = function_location(given) if callable(given) else f"the field {given!r}"
        return UserCodeError(
            f"step {self.step!r}: {type(error).__name__}: {error} (assigning timestamps)",
            detail="\n".join((f"timestamp: {where}", *notes)),
            hint=hints[0]
            if hints
            else "timestamp= is a field or a function that gives an integer in unit=, a datetime, a date, or None",
        )

    def _announce(self) -> None:
        current = self.current()
        self.idle = current is None
        if current is None:
            self.outputs.watermark(None)
        elif current >= self.watermark:
            self.watermark = current
            self.outputs.watermark(current)
