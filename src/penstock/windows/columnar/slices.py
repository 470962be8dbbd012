"""Tumbling and sliding windows over columns: windows are put together from slices.

Laws:
- A window is emitted when the watermark reaches its last moment, and again, for one key, with each straggler that comes within
  the allowed lateness. The results are those of the record-by-record path.
- A slice is kept until the last window it is in is over. One that comes and goes inside an epoch leaves nothing in state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds, StepId
from penstock.records import Batch
from penstock.runtime.frames import Codes, Keyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.chunks import Chunk, joined, merged
from penstock.windows.columnar.grid import Grid, grid_of, saturated
from penstock.windows.columnar.merge import MergeOperator, MergeStep
from penstock.windows.columnar.partial import PartialStep, partials, timestamps
from penstock.windows.columnar.results import emit_late
from penstock.windows.columnar.vectors import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePartialStep(PartialStep):
    """Aggregates each batch by key and slice."""

    slices: Grid

    def last_moments(self, times: Rows) -> Rows:
        return self.slices.slice_end(times) - 1

    def rows(self, batch: Batch, codes: Codes, times: Rows, keys: int, step: StepId) -> Chunk:
        return aggregated(batch, codes, self.slices.slice_end(times), keys, self.aggregates, step)


def aggregated(batch: Batch, codes: Codes, ends: Rows, keys: int, aggregates: tuple[Aggregate, ...], step: str) -> Chunk:
    """A row for each (key, slice), with the slice's end."""
    first = int(ends[0])
    if (ends == first).all():
        slices, groups, width = np.asarray([first]), codes.astype(np.int64), 1
    else:
        slices, inverse = np.unique(ends, return_inverse=True)
        width = len(slices)
        groups = codes.astype(np.int64) * width + inverse
    size = keys * width
    there: Rows | None = None
    if size > 4 * len(batch):
        there, groups = np.unique(groups, return_inverse=True)
        size = len(there)
    vectors = partials(batch, groups, size, aggregates, step)
    if there is None:
        there = np.flatnonzero(np.bincount(groups, minlength=size))
        if len(there) < size:
            vectors = [[vector[there] for vector in each] for each in vectors]
    return Chunk(there // width, [[slices[there % width]], *vectors])


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceMergeStep(MergeStep):
    """Tumbling or sliding windows."""

    state = "slices"

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SliceMergeOperator(step, services, inputs, self)


class SliceMergeOperator(MergeOperator):
    times = 1

    def __init__(self, step: StepId, services: Services, inputs: int, definition: MergeStep) -> None:
        self._grid = grid_of(definition.window.spec)
        super().__init__(step, services, inputs, definition)

    def merge_chunks(self, chunks: Sequence[Chunk]) -> Chunk:
        return merged(chunks, self.measures)

    # --- rows --------------------------------------------------------------------------------------------------------------

    def take(self, rows: Chunk) -> None:
        """Rows of several slices; in each the keys are different."""
        (ends,), *vectors = rows.vectors
        rows = Chunk(rows.keys, vectors)
        first = int(ends[0])
        if (ends == first).all():
            self.state.add(self._grid.slice_end(first - 1), rows)
            return
        order = np.argsort(ends, kind="stable")
        there, starts = np.unique(ends[order], return_index=True)
        for end, mine in zip(there.tolist(), np.split(order, starts[1:]), strict=True):
            self.state.add(self._grid.slice_end(end - 1), rows.take(mine))

    # --- stragglers --------------------------------------------------------------------------------------------------------

    def take_stragglers(self, batch: Keyed) -> None:
        times = timestamps(batch.batch, self.step)
        grid, watermark = self._grid, self.watermark
        first, last = grid.first_window(times), grid.last_window(times)
        lateness = self.spec.allowed_lateness_ms
        over = min(watermark - lateness, MAX_WATERMARK - 1) + 1 if watermark > MIN_WATERMARK else MIN_WATERMARK
        late = last <= over
        if late.any():
            emit_late(self, self.spec.late, batch.batch.take(np.flatnonzero(late)))
        again = ~late & (first - 1 <= watermark)
        if len(at := np.flatnonzero(~late & ~again)):
            self._add_records(batch, at)
        if len(at := np.flatnonzero(again)):
            self._update(batch, at, over)

    def _add_records(self, batch: Keyed, at: Rows) -> Chunk:
        """Records that no window has been emitted without."""
        part = batch.batch.take(at)
        ends = self._grid.slice_end(timestamps(part, self.step))
        rows = aggregated(part, batch.codes[at], ends, len(batch.keys), self.declared.aggregates, self.step)
        times, *vectors = rows.vectors
        rows = Chunk(self.index.numbers(batch.keys)[rows.keys], [times, *self.arrived(vectors, len(rows))])
        self.take(rows)
        return Chunk(rows.keys, rows.vectors[1:])

    def _update(self, batch: Keyed, at: Rows, over: Milliseconds) -> None:
        """Records of windows that have been emitted: one after another, each gives these windows' new results of its key."""
        self.state.load(self.watermark + 1)
        touched = np.unique(self.index.numbers(batch.keys)[batch.codes[at]])
        known: dict[Milliseconds, list[Chunk]] = {}
        results: list[Chunk] = []
        ends: list[Milliseconds] = []
        for row in at.tolist():
            one = self._add_records(batch, np.asarray([row]))
            assert batch.batch.timestamps is not None
            mine = self._grid.slice_end(int(batch.batch.timestamps[row]))
            if mine in known:
                known[mine].append(one)
            for window in reversed(self._grid.windows(mine)):
                if over < window <= self.watermark + 1:
                    chunks = []
                    for end in self.state.between(self._grid.slices(window)):
                        if end not in known:
                            known[end] = [c for chunk in self.state.chunks(end) if len(c := _only(chunk, touched))]
                        chunks += known[end]
                    results.append(merged([c for chunk in chunks if len(c := _only(chunk, one.keys))], self.measures))
                    ends.append(window)
        if results:
            self._emit(joined(results), np.asarray(ends))

    # --- time --------------------------------------------------------------------------------------------------------------

    def advance(self, watermark: Milliseconds) -> None:
        due = self.state.has_due(watermark)
        before, self.watermark = self.watermark, watermark
        if not due:
            return
        self.state.load(saturated(watermark + 1))
        for window in self._windows_between(before, watermark):
            chunks = [chunk for end in self.state.between(self._grid.slices(window)) for chunk in self.state.chunks(end)]
            whole = merged(chunks, self.measures)
            self._emit(whole, np.full(len(whole), window, dtype=np.int64))
        self.state.drop([end for end in self.state.ends() if self._cleanup(end) <= watermark])

    def _windows_between(self, before: Milliseconds, watermark: Milliseconds) -> list[Milliseconds]:
        found: set[Milliseconds] = set()
        for end in self.state.ends():
            if end - 1 <= watermark:
                windows = self._grid.windows(end)
                skipped = max(0, (before + 1 - windows[0]) // self._grid.slide_ms + 1)
                for window in windows[skipped:]:
                    if window - 1 > watermark:
                        break
                    found.add(window)
        return sorted(found)

    def _cleanup(self, end: Milliseconds) -> Milliseconds:
        """When the last window of a slice is over."""
        return saturated(self._grid.last_window(end - 1) - 1 + self.spec.allowed_lateness_ms)

    def due(self, end: Milliseconds) -> Milliseconds:
        """When something is to be done about a slice next."""
        windows = self._grid.windows(end)
        skipped = max(0, (self.watermark + 1 - windows[0]) // self._grid.slide_ms + 1)
        cleanup = self._cleanup(end)
        return min(windows[skipped] - 1, cleanup) if skipped < len(windows) else cleanup

    def _emit(self, rows: Chunk, ends: Rows) -> None:
        self.emit(rows.keys, ends - self._grid.size_ms, ends, rows.vectors)


def _only(chunk: Chunk, keys: Rows) -> Chunk:
    return chunk.take(np.flatnonzero(np.isin(chunk.keys, keys)))
