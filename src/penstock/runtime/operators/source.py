"""The start of a stream: splits are read, records get their timestamps, each source partition its watermark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from penstock.connectors.protocol import CountsSkipped, KnowsColumns, Reader, Rejected, Source, Split
from penstock.errors import PenstockError, SourceError, UserCodeError
from penstock.functions import Call, CallsFunctions, function_location
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds, StepId
from penstock.jobs.source_order import SourceOrder
from penstock.plan.definition import DEAD_LETTERS, Definition, Takes
from penstock.plan.schema import Schema
from penstock.records import NO_TIMESTAMP, Batch, Records, Timestamps
from penstock.runtime.messages import Reached
from penstock.runtime.operators.operator import Operator
from penstock.runtime.ordering import ShortOfBoundError, Waiting, merged
from penstock.runtime.services import Services
from penstock.timing.timestamps import HINT_NOTE, RECORD_NOTE, unit_warning
from penstock.timing.watermarks import PartitionClock, Watermarks

ENOUGH_TO_WARN = 100
"""Fewer records at the start of a split may well be late ones."""


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
        own = self.source.function_calls() if isinstance(self.source, CallsFunctions) else ()
        return *own, *(() if self.watermarks is None else self.watermarks.function_calls())

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self.source.known_columns() if isinstance(self.source, KnowsColumns) else None

    def takes(self, given: int) -> tuple[Takes, ...]:
        return ()

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SourceOperator(step, services, self.source, self.watermarks)


class Lane:
    """A source partition in an epoch that reads in order of event time."""

    def __init__(self, operator: SourceOperator, partition: str, splits: list[Split], order: SourceOrder) -> None:
        self._operator = operator
        self._partition = partition
        self._splits = splits
        self._bound = MAX_WATERMARK if order.until is None else order.until
        self._more = partition in (order.more or ())
        self._skip = order.skip.get(partition, 0)
        self._run: Iterator[Batch] | None = None
        self._done, self._rows, self._records = 0, self._skip, 0
        self._begins = False
        """The next batch is the first of a split."""
        self.ended = False
        self.finished = False
        """Nothing more is read of it in this epoch."""
        self.waiting = Waiting()
        self._ends = order.ends and not self._more

    @property
    def clock(self) -> PartitionClock:
        return self._operator.clocks[self._partition]

    def read(self) -> None:
        """Read a batch, or find that there is none within the bound."""
        self._operator.busy_with(self._read)

    def _read(self) -> None:
        if self.clock.watermark >= self._bound:
            self.finished = True
            return
        batch = self._next()
        if batch is None:
            self.finished, self.ended = True, self._ends
            if self._more:
                raise ShortOfBoundError(self.clock.watermark)
            return
        if isinstance(batch, Rejected):  # no time, and no tick: where it is in the split is all that counts
            self._begins = False
            self._rows += len(batch)
            self._operator.reject(batch)
            return
        before = self.clock.state()
        batch = self._operator.timed(self._partition, batch)
        if self._begins:
            self._begins = False
            self._operator.check_begin(self.clock.watermark, batch)
        ticks = self._operator.ticks(self._partition, batch)
        fits = len(batch)
        if fits and int(ticks[-1]) >= self._bound:
            fits = int(np.searchsorted(ticks, self._bound))
            self._operator.wind_back(self._partition, before, batch.slice(0, fits))
            self.finished = True
        self._rows += fits
        self._records += fits
        self.waiting.add(batch.slice(0, fits).with_ticks(ticks[:fits]))

    def reached(self) -> Reached:
        return Reached(splits=self._done, rows=self._rows, records=self._records, ended=self.ended)

    def _next(self) -> Batch | None:
        while self._run is not None or self._done < len(self._splits):
            if self._run is None:
                self._run = self._operator.rows_of(self._splits[self._done])
                self._begins = not self._skip
            batch = self._operator.next_of(self._run)
            if batch is None:
                self._run, self._skip, self._rows = None, 0, 0
                self._done += 1
            elif not self._skip or self._skip < len(batch):
                skip, self._skip = self._skip, 0
                return batch.slice(skip, len(batch))
            else:
                self._skip -= len(batch)
        return None


class SourceOperator(Operator):
    """Runs as `for _ in operator.batches(): …`: each turn pushes one batch; or, if it is `paced`, by its lanes."""

    def __init__(self, step: StepId, services: Services, source: Source, watermarks: Watermarks[Any] | None) -> None:
        super().__init__(step, services)
        self._source = source
        self._watermarks = watermarks
        self._order = services.order.sources.get(step, SourceOrder(tasks=[]))
        mine = self._order.tasks[services.partition] if services.partition < len(self._order.tasks) else []
        self._splits: dict[str, list[Split]] = {}
        for split in mine:
            self._splits.setdefault(split.partition, []).append(split)
        self._splits = dict(sorted(self._splits.items()))
        self.paced = False
        self.clocks: dict[str, PartitionClock] = {}
        if watermarks is not None:
            self.clocks = {partition: watermarks.clock(self._order.clocks.get(partition)) for partition in self._splits}
        self.lanes = {partition: Lane(self, partition, splits, self._order) for partition, splits in self._splits.items()}
        self._reader: Reader | None = None
        self._new = {partition for partition in self.clocks if self._order.clocks.get(partition) is None}
        """Source partitions of which no time is known yet."""

    def begin(self) -> None:
        """Tell what time it is before the first record."""
        self._announce()

    def current(self) -> Milliseconds | None:
        """This task's share of the source's watermark: None if it has no say in it."""
        bound = MAX_WATERMARK if self._order.until is None else self._order.until
        times = [clock.watermark for partition, clock in self.clocks.items() if not self.lanes[partition].ended]
        if self._order.held is not None:
            times.append(self._order.held)
        if not times and self._order.until is not None and self.last is not None and self.last >= self._order.until:
            times.append(self.last)  # its end is not within the bound
        return min(bound, *times) if times else None

    @property
    def over(self) -> bool:
        """Is nothing left of any source partition, and is the end within the bound? Often that is found out while the last
        records are read."""
        if not self.paced or self.services.order.final:
            return self._order.ended
        if self._order.until is None and self._order.ended:
            return True
        return (self._order.ended or self._order.exhausted) and self.current() is None

    @property
    def last(self) -> Milliseconds | None:
        """The latest time of any partition, as far as this task knows."""
        times = [clock.watermark for clock in self.clocks.values()]
        return max([*times, *(() if self._order.last is None else (self._order.last,))], default=None)

    # --- in order of event time --------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._reader = self._source.reader()

    def close(self) -> None:
        if self._reader is not None:
            if isinstance(self._reader, CountsSkipped):
                self.skipped += self._reader.skipped
            self._reader.close()

    def rows_of(self, split: Split) -> Iterator[Batch]:
        assert self._reader is not None
        return self._reader.read(split)

    def next_of(self, run: Iterator[Batch]) -> Batch | None:
        return self._next(run)

    def pass_on(self, horizon: Milliseconds) -> None:
        """Pass on what has ticks below the horizon."""
        parts = [batch for lane in self.lanes.values() for batch in lane.waiting.release(horizon)]
        if parts:
            whole = merged(parts)
            self.records_in += len(whole)
            self.outputs.emit(whole)
        self._announce(horizon)

    def reject(self, batch: Rejected) -> None:
        """Records that the reader could not read: to the dead letters."""
        now = self.services.processing_time
        letters = [msgspec.structs.replace(letter, step=self.step, rejected_ms=now) for letter in batch.values()]
        times = [NO_TIMESTAMP if letter.timestamp_ms is None else letter.timestamp_ms for letter in letters]
        self.dead_letters += len(letters)
        self.outputs.emit_side(DEAD_LETTERS, Records(letters, np.asarray(times, dtype=np.int64)))

    def timed(self, partition: str, batch: Batch) -> Batch:
        """With timestamps."""
        assert self._watermarks is not None
        try:
            batch = self._watermarks.assign(batch, self.services.processing_time)
            if partition in self._new:
                self._look(batch, self._watermarks)
                self._new.discard(partition)
        except Exception as error:
            raise self._no_time(error, self._watermarks) from error
        return batch

    def check_begin(self, watermark: Milliseconds, batch: Batch) -> None:
        """Warn if what a partition reads next lies in the past as a whole: then it is of another order than the user thinks."""
        if batch.timestamps is None or len(batch) < ENOUGH_TO_WARN or watermark == MIN_WATERMARK:
            return
        latest = int(batch.timestamps[:ENOUGH_TO_WARN].max())
        if latest != NO_TIMESTAMP and latest < watermark:
            self.services.warn(
                self.step,
                f"source {self.step!r}: {ENOUGH_TO_WARN} records in a row, up to event time {latest}, come after records that "
                f"moved time to {watermark}: they are late. If files cover the same time, give each a lane of its own: "
                "FileSource(lanes=...)",
            )

    def ticks(self, partition: str, batch: Batch) -> Timestamps:
        """Of the rows of a batch; moves the clock on."""
        assert self._watermarks is not None
        try:
            return self.clocks[partition].ticks(batch)
        except Exception as error:
            raise self._no_time(error, self._watermarks) from error

    def wind_back(self, partition: str, state: Any, batch: Batch) -> None:
        """Set the clock to where it is after `batch`, coming from `state`."""
        assert self._watermarks is not None
        clock = self.clocks[partition] = self._watermarks.clock(state)
        if len(batch):
            clock.ticks(batch)

    def reached(self) -> dict[str, Reached]:
        return {partition: lane.reached() for partition, lane in self.lanes.items()}

    def rest(self) -> None:
        """All records have been passed on. When all partitions are over, time goes on to the latest of them, and rests there."""
        if not self.over or self.last is None:
            return
        if self.last >= self.watermark:
            self.watermark = self.last
            self.outputs.watermark(self.last)
        self.idle = True
        self.outputs.watermark(None)

    # --- by batches --------------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[Milliseconds]:
        """Read everything, a batch at a time, the partition that is most behind first; yields the time of what comes next."""
        self._reader = self._source.reader()
        runs = {partition: self._read(splits, self._order.skip.get(partition, 0)) for partition, splits in self._splits.items()}
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
        if self.over:
            self.idle = False
            self.watermark = MAX_WATERMARK
            self.outputs.watermark(MAX_WATERMARK)

    def _read(self, splits: list[Split], skip: int) -> Iterator[Batch]:
        """All rows, but for the first few, which earlier epochs have taken."""
        assert self._reader is not None
        for number, split in enumerate(splits):
            passed = 0 if number else skip
            for batch in self._reader.read(split):
                if not passed or passed < len(batch):
                    yield batch.slice(passed, len(batch)) if passed else batch
                passed = max(0, passed - len(batch))

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
        if isinstance(batch, Rejected):
            self.reject(batch)
            return
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

    def _announce(self, horizon: Milliseconds = MAX_WATERMARK) -> None:
        current = self.current()
        if current is not None:
            current = min(current, horizon)
        self.idle = current is None
        if current is None:
            self.outputs.watermark(None)
        elif current >= self.watermark:
            self.watermark = current
            self.outputs.watermark(current)
