"""Session windows over columns.

    batch ─→ partial: a row for each run of a key's records ─→ key_by ─→ rows by the time they end ─→ results

Laws:
- Before the exchange a record is a straggler if the step's own watermark has passed the end of a session of its own.
- A row is live until the watermark reaches its last moment. Then, if no live row continues its session, the session is
  emitted; if one does, the row is written anew with an end not above that of the session: it waits there for the rest.
- A live row that starts by the watermark ends within two gaps from there: only these rows can continue a session that is due. A
  run is therefore cut at multiples of the gap before it is sent.
- A row that was live is dead once the watermark has passed it, wherever it is still stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.records import Batch
from penstock.runtime.frames import Codes, Keyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.chunks import Chunk, joined
from penstock.windows.columnar.grid import saturated
from penstock.windows.columnar.measures import Vectors, reduced
from penstock.windows.columnar.merge import MergeOperator, MergeStep
from penstock.windows.columnar.partial import PartialStep, partials, timestamps
from penstock.windows.columnar.results import emit_late
from penstock.windows.columnar.runs import runs_of
from penstock.windows.columnar.vectors import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPartialStep(PartialStep):
    """Aggregates each batch by key and run. A straggler may continue a session that a record before it began."""

    gap_ms: Milliseconds
    ordered = True

    def last_moments(self, times: Rows) -> Rows:
        return times + (self.gap_ms - 1)

    def rows(self, batch: Batch, codes: Codes, times: Rows, keys: int, step: StepId) -> Chunk:
        return runs_of_records(batch, codes.astype(np.int64), times, self.gap_ms, self.aggregates, step)


def runs_of_records(
    batch: Batch, keys: Rows, times: Rows, gap_ms: Milliseconds, aggregates: tuple[Aggregate, ...], step: str
) -> Chunk:
    """The records of each key, by runs within one multiple of the gap: key; start, end; then the measures."""
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    first = np.empty(len(order), dtype=bool)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    first[1:] |= times[1:] - times[:-1] > gap_ms
    first[1:] |= times[1:] // gap_ms != times[:-1] // gap_ms
    starts = np.flatnonzero(first)
    ends = times[np.append(starts[1:], len(order)) - 1] + gap_ms
    runs = np.empty(len(order), dtype=np.int64)
    runs[order] = np.cumsum(first) - 1
    return Chunk(keys[starts], [[times[starts], ends], *partials(batch, runs, len(starts), aggregates, step)])


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMergeStep(MergeStep):
    """Sessions with one gap."""

    state = "session runs"

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SessionMergeOperator(step, services, inputs, self)


class SessionMergeOperator(MergeOperator):
    times = 2

    def __init__(self, step: StepId, services: Services, inputs: int, definition: MergeStep) -> None:
        assigner: Any = definition.window.spec.assigner
        self._gap: Milliseconds = assigner.gap_ms
        super().__init__(step, services, inputs, definition)

    def merge_chunks(self, chunks: Sequence[Chunk]) -> Chunk:
        return joined(chunks)

    def take(self, rows: Chunk) -> None:
        """Keep rows by the bucket that they end in."""
        buckets = -(-rows.vectors[0][1] // self._gap) * self._gap
        order = np.argsort(buckets, kind="stable")
        there, firsts = np.unique(buckets[order], return_index=True)
        for bucket, mine in zip(there.tolist(), np.split(order, firsts[1:]), strict=True):
            self.state.add(bucket, rows.take(mine))

    # --- time --------------------------------------------------------------------------------------------------------------

    def due(self, bucket: Milliseconds) -> Milliseconds:
        """Rows of a bucket end above the one before; what ends by the watermark is dead."""
        return max(bucket - self._gap, self.watermark + 1)

    def advance(self, watermark: Milliseconds) -> None:
        due = self.state.has_due(watermark)
        before, self.watermark = self.watermark, watermark
        if not due:
            return
        rows = self._live(before, watermark)
        if rows is not None:
            ended = rows.vectors[0][1] <= watermark + 1 if watermark < MAX_WATERMARK else np.ones(len(rows), dtype=bool)
            if ended.any():
                self._close(rows.take(_of_keys(rows.keys, rows.keys[ended])), watermark)
        self.state.drop([bucket for bucket in self.state.ends() if bucket - 1 <= watermark])

    def _live(self, before: Milliseconds, watermark: Milliseconds) -> Chunk | None:
        """The rows that were live at one watermark, and may belong to sessions that end by another."""
        until = saturated(watermark + 1 + 3 * self._gap)
        self.state.load(until)
        chunks = [chunk for bucket in self.state.ends() if bucket <= until for chunk in self.state.chunks(bucket)]
        if not chunks:
            return None
        rows = joined(chunks)
        alive = rows.vectors[0][1] - 1 > before
        return rows if alive.all() else rows.take(np.flatnonzero(alive)) if alive.any() else None

    def _close(self, rows: Chunk, watermark: Milliseconds) -> None:
        """Emit the sessions that have ended; of others, let what has ended wait for the rest."""
        order, runs = runs_of(rows.keys, *rows.vectors[0])
        rows = rows.take(order)
        ends = rows.vectors[0][1]
        firsts = np.flatnonzero(np.diff(runs, prepend=-1))
        run_ends = np.maximum.reduceat(ends, firsts)
        over = run_ends - 1 <= watermark
        complete = over[runs]
        if complete.any():
            whole = self._by_run(rows.take(np.flatnonzero(complete)), runs[complete])
            (run_starts, run_stops), *vectors = whole.vectors
            self.emit(whole.keys, run_starts, run_stops, vectors)
        waits = np.flatnonzero(~complete & (ends - 1 <= watermark))
        if len(waits):
            some = self._by_run(rows.take(waits), runs[waits])
            some.vectors[0][1] = np.minimum(run_ends[np.unique(runs[waits])], watermark + 1 + 2 * self._gap)
            self.take(some)

    def _by_run(self, rows: Chunk, runs: Rows) -> Chunk:
        """One row for each run; rows are in order of runs and starts."""
        _, firsts, numbers = np.unique(runs, return_index=True, return_inverse=True)
        starts, ends = rows.vectors[0]
        vectors: list[Vectors] = [[starts[firsts], np.maximum.reduceat(ends, firsts)]]
        for measure, held in zip(self.measures, rows.vectors[1:], strict=True):
            vectors.append(reduced(measure, held, numbers, len(firsts)))
        return Chunk(rows.keys[firsts], vectors)

    def finish(self) -> None:
        """Rows that died in this epoch are not written."""
        watermark = self.watermark
        self.state.sift(lambda chunk: chunk.take(np.flatnonzero(chunk.vectors[0][1] - 1 > watermark)))

    # --- stragglers --------------------------------------------------------------------------------------------------------

    def take_stragglers(self, batch: Keyed) -> None:
        """One after another: each either continues a live session of its key, or makes one, or is late."""
        times, watermark, gap = timestamps(batch.batch, self.step), self.watermark, self._gap
        keys = self.index.numbers(batch.keys)[batch.codes]
        sessions = self._sessions(np.unique(keys))
        late: list[int] = []
        taken: list[int] = []
        ends: list[Milliseconds] = []
        for row, (key, start) in enumerate(zip(keys.tolist(), times.tolist(), strict=True)):
            end = start + gap
            mine = sessions.setdefault(key, [])
            touched = [session for session in mine if session[0] <= end and start <= session[1]]
            if not touched and end - 1 <= watermark:
                late.append(row)
                continue
            whole = [min([start, *(s[0] for s in touched)]), max([end, *(s[1] for s in touched)])]
            sessions[key] = [session for session in mine if session not in touched] + [whole]
            taken.append(row)
            ends.append(end if end - 1 > watermark else min(whole[1], watermark + 1 + 2 * gap))
        if taken:
            rows = np.asarray(taken)
            alone = partials(batch.batch.take(rows), np.arange(len(rows)), len(rows), self.declared.aggregates, self.step)
            self.take(Chunk(keys[rows], [[times[rows], np.asarray(ends)], *self.arrived(alone, len(rows))]))
        if late:
            emit_late(self, self.spec.late, batch.batch.take(np.asarray(late)))

    def _sessions(self, keys: Rows) -> dict[int, list[list[Milliseconds]]]:
        """The live sessions, as [start, end], of some keys."""
        rows = self._live(self.watermark, self.watermark)
        found: dict[int, list[list[Milliseconds]]] = {}
        if rows is None or not len(rows := rows.take(_of_keys(rows.keys, keys))):
            return found
        order, runs = runs_of(rows.keys, *rows.vectors[0])
        starts, ends = (vector[order] for vector in rows.vectors[0])
        firsts = np.flatnonzero(np.diff(runs, prepend=-1))
        extents = zip(
            rows.keys[order][firsts].tolist(), starts[firsts].tolist(), np.maximum.reduceat(ends, firsts).tolist(), strict=True
        )
        for key, start, end in extents:
            found.setdefault(key, []).append([start, end])
        return found


def _of_keys(keys: Rows, wanted: Rows) -> Rows:
    """The rows of some keys."""
    chosen = np.zeros(int(max(keys.max(), wanted.max())) + 1, dtype=bool)
    chosen[wanted] = True
    return np.flatnonzero(chosen[keys])
