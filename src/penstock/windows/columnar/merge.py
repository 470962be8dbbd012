"""Behind the exchange: rows of (key, slice) are kept by slice, and windows are put together from slices.

Laws:
- A window is emitted when the watermark reaches its last moment, and again, for one key, with each straggler that comes within
  the allowed lateness. The results are those of the record-by-record path.
- A slice is kept until the last window it is in is over. One that comes and goes inside an epoch leaves nothing in state.
- State is written by change: an epoch's rows of a slice and key group are a chunk of their own; chunks of about one size are
  merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds, StepId
from penstock.records import Columns
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Definition, Operator, StateDeclaration
from penstock.runtime.services import Services
from penstock.state.key_groups import groups_of
from penstock.state.keys import key_codec
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.chunk_state import ChunkState
from penstock.windows.columnar.chunks import Chunk, KeyIndex, joined, merged
from penstock.windows.columnar.grid import grid_of, saturated
from penstock.windows.columnar.measures import measure_of
from penstock.windows.columnar.partial import aggregated, from_columns, timestamps, unnamed
from penstock.windows.columnar.results import emit_late, results
from penstock.windows.columnar.vectors import Rows
from penstock.windows.declared import Declared
from penstock.windows.step import WindowStep

SLICES = "slices"
"""The state of such a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep(Definition):
    """Windows over what `PartialStep` sends. `shared`: the aggregates that it sends; `window`: the step the user wrote."""

    window: WindowStep
    shared: tuple[Aggregate, ...]

    @property
    def kind(self) -> str:
        return self.window.kind

    def function(self) -> Any:
        return self.window.function()

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return (StateDeclaration(step=step, name=SLICES, state=None, kind=SLICES, key_type=self.window.key_type),)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return MergeOperator(step, services, inputs, self)


class MergeOperator(Operator):
    """Input 0: aggregated rows. Input 1: stragglers."""

    def __init__(self, step: StepId, services: Services, inputs: int, definition: MergeStep) -> None:
        super().__init__(step, services, inputs)
        spec, declared = definition.window.spec, definition.window.body.incremental
        assert isinstance(declared, Declared)
        self._spec = spec
        self._declared = declared
        self._grid = grid_of(spec)
        self._lateness = spec.allowed_lateness_ms
        self._mine = [definition.shared.index(unnamed(one)) for one in declared.aggregates]
        self._widths = [measure_of(one).width for one in definition.shared]
        self._measures = [measure_of(one) for one in declared.aggregates]
        self._index = KeyIndex(key_codec(definition.window.key_type))
        services.opened(step, None)
        self._slices = ChunkState(
            services.committed,
            state_id=services.state_id(step, SLICES),
            groups=groups_of(services.partition, services.job.parallelism, services.job.max_parallelism),
            next_due=services.committed.partition_state.next_due.get(services.state_id(step, SLICES)),
            max_parallelism=services.job.max_parallelism,
            index=self._index,
            merge=lambda chunks: merged(chunks, self._measures),
            where=f"step {step!r}",
            due=self._due,
        )
        services.keyed.append(self._slices)

    # --- rows --------------------------------------------------------------------------------------------------------------

    def on_input(self, port: int, batch: Keyed) -> None:
        self.records_in += len(batch)
        if port == 0:
            self._take(batch)
        else:
            self._take_stragglers(batch)

    def _take(self, batch: Keyed) -> None:
        assert isinstance(batch.batch, Columns)
        ends, vectors = from_columns(batch.batch.data, self._widths)
        keys = self._index.numbers(batch.keys)[batch.codes]
        self._add(Chunk(keys, [vectors[number] for number in self._mine]), ends)

    def _add(self, rows: Chunk, ends: Rows) -> None:
        """Rows of several slices; in each the keys are different."""
        first = int(ends[0])
        if (ends == first).all():
            self._slices.add(self._grid.slice_end(first - 1), rows)
            return
        order = np.argsort(ends, kind="stable")
        there, starts = np.unique(ends[order], return_index=True)
        for end, mine in zip(there.tolist(), np.split(order, starts[1:]), strict=True):
            self._slices.add(self._grid.slice_end(end - 1), rows.take(mine))

    # --- stragglers --------------------------------------------------------------------------------------------------------

    def _take_stragglers(self, batch: Keyed) -> None:
        times = timestamps(batch.batch, self.step)
        grid, watermark = self._grid, self.watermark
        first, last = grid.first_window(times), grid.last_window(times)
        over = min(watermark - self._lateness, MAX_WATERMARK - 1) + 1 if watermark > MIN_WATERMARK else MIN_WATERMARK
        late = (last <= over) & (last >= first)
        late |= (last < first) & (times + self._lateness <= watermark)
        if late.any():
            emit_late(self, self._spec.late, batch.batch.take(np.flatnonzero(late)))
        taken = ~late & (last >= first)
        again = taken & (first - 1 <= watermark)
        if len(at := np.flatnonzero(taken & ~again)):
            self._add_records(batch, at)
        if len(at := np.flatnonzero(again)):
            self._update(batch, at, over)

    def _add_records(self, batch: Keyed, at: Rows) -> Chunk:
        """Records that no window has been emitted without."""
        part = batch.batch.take(at)
        ends = self._grid.slice_end(timestamps(part, self.step))
        rows = aggregated(part, batch.codes[at], ends, len(batch.keys), self._declared.aggregates, self.step)
        chunk = Chunk(self._index.numbers(batch.keys)[rows.codes], rows.vectors)
        self._add(chunk, rows.ends)
        return chunk

    def _update(self, batch: Keyed, at: Rows, over: Milliseconds) -> None:
        """Records of windows that have been emitted: one after another, each gives these windows' new results of its key."""
        self._slices.load(self.watermark + 1)
        touched = np.unique(self._index.numbers(batch.keys)[batch.codes[at]])
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
                    for end in self._slices.between(self._grid.slices(window)):
                        if end not in known:
                            known[end] = [c for chunk in self._slices.chunks(end) if len(c := _only(chunk, touched))]
                        chunks += known[end]
                    results.append(merged([c for chunk in chunks if len(c := _only(chunk, one.keys))], self._measures))
                    ends.append(window)
        if results:
            self._emit(joined(results), np.asarray(ends))

    # --- time --------------------------------------------------------------------------------------------------------------

    def advance(self, watermark: Milliseconds) -> None:
        due = self._slices.has_due(watermark)
        before, self.watermark = self.watermark, watermark
        if not due:
            return
        self._slices.load(saturated(watermark + 1))
        for window in self._windows_between(before, watermark):
            chunks = [chunk for end in self._slices.between(self._grid.slices(window)) for chunk in self._slices.chunks(end)]
            whole = merged(chunks, self._measures)
            self._emit(whole, np.full(len(whole), window, dtype=np.int64))
        self._slices.drop([end for end in self._slices.ends() if self._cleanup(end) <= watermark])

    def _windows_between(self, before: Milliseconds, watermark: Milliseconds) -> list[Milliseconds]:
        found: set[Milliseconds] = set()
        for end in self._slices.ends():
            if end - 1 <= watermark:
                found.update(window for window in self._grid.windows(end) if before < window - 1 <= watermark)
        return sorted(found)

    def _cleanup(self, end: Milliseconds) -> Milliseconds:
        """When the last window of a slice is over."""
        windows = self._grid.windows(end)
        return saturated(windows[-1] - 1 + self._lateness) if windows else end - 1

    def _due(self, end: Milliseconds) -> Milliseconds:
        """When something is to be done about a slice next."""
        following = (window - 1 for window in self._grid.windows(end) if window - 1 > self.watermark)
        return min([*following, self._cleanup(end)])

    def _emit(self, rows: Chunk, ends: Rows) -> None:
        if len(rows):
            decoded = self._index.decoded()
            keys = [decoded[key] for key in rows.keys.tolist()]
            batch = results(self._declared, self._measures, keys, ends - self._grid.size_ms, ends, rows.vectors)
            self.outputs.emit(batch)


def _only(chunk: Chunk, keys: Rows) -> Chunk:
    return chunk.take(np.flatnonzero(np.isin(chunk.keys, keys)))
