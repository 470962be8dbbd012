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

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.records import DICT_ROW, Batch, Columns
from penstock.runtime.exchange import Exchange, distinct_keys
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Definition, Operator, StateDeclaration
from penstock.runtime.services import Services
from penstock.state.key_groups import groups_of
from penstock.state.keys import key_codec
from penstock.windows.aggregates import Aggregate
from penstock.windows.columnar.chunk_state import ChunkState
from penstock.windows.columnar.chunks import Chunk, KeyIndex, joined
from penstock.windows.columnar.grid import saturated
from penstock.windows.columnar.measures import Vectors, measure_of, reduced
from penstock.windows.columnar.partial import STRAGGLERS, as_columns, from_columns, timestamps, unnamed, values_of_field
from penstock.windows.columnar.results import emit_late, results
from penstock.windows.columnar.runs import runs_of
from penstock.windows.columnar.vectors import Rows
from penstock.windows.declared import Declared
from penstock.windows.step import WindowStep

SESSIONS = "session runs"
"""The state of such a step."""


# --- before the exchange -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPartialStep(Definition):
    """Aggregates each batch by key and run."""

    exchange: Exchange
    gap_ms: Milliseconds
    aggregates: tuple[Aggregate, ...]

    @property
    def kind(self) -> str:
        return "session partial aggregation"

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SessionPartialOperator(step, services, self)


class SessionPartialOperator(Operator):
    def __init__(self, step: StepId, services: Services, definition: SessionPartialStep) -> None:
        super().__init__(step, services)
        self._definition = definition
        self._codec = key_codec(definition.exchange.key_type)

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        times = timestamps(batch, self.step)
        behind = times + (self._definition.gap_ms - 1) <= self.watermark
        if behind.any():
            self.outputs.emit_side(STRAGGLERS, batch.take(np.flatnonzero(behind)))
            rest = np.flatnonzero(~behind)
            batch, times = batch.take(rest), times[rest]
        if len(batch):
            self._send(batch, times)

    def _send(self, batch: Batch, times: Rows) -> None:
        definition = self._definition
        keys, codes = distinct_keys(batch, definition.exchange, self._codec, self.step)
        rows = runs_of_records(batch, codes.astype(np.int64), times, definition.gap_ms, definition.aggregates, self.step)
        sent = as_columns(rows.vectors[0][1], [[rows.vectors[0][0]], *rows.vectors[1:]])
        self.outputs.emit(Keyed(Columns(sent, DICT_ROW), keys, rows.keys.astype(np.int32)))  # type: ignore[arg-type]


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
    vectors: list[Vectors] = [[times[starts], ends]]
    for aggregate in aggregates:
        values, valid = values_of_field(batch, aggregate, step)
        mine = runs
        if valid is not None:
            values, mine = values[valid], runs[valid]
        vectors.append(measure_of(aggregate).partial(values, mine, len(starts)))
    return Chunk(keys[starts], vectors)


# --- behind the exchange -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMergeStep(Definition):
    """Sessions of what `SessionPartialStep` sends. `shared`: the aggregates that it sends; `window`: the step the user wrote."""

    window: WindowStep
    shared: tuple[Aggregate, ...]

    @property
    def kind(self) -> str:
        return self.window.kind

    def function(self) -> Any:
        return self.window.function()

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return (StateDeclaration(step=step, name=SESSIONS, state=None, kind=SESSIONS, key_type=self.window.key_type),)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return SessionMergeOperator(step, services, inputs, self)


class SessionMergeOperator(Operator):
    """Input 0: rows of runs. Input 1: stragglers."""

    def __init__(self, step: StepId, services: Services, inputs: int, definition: SessionMergeStep) -> None:
        super().__init__(step, services, inputs)
        spec, declared = definition.window.spec, definition.window.body.incremental
        assert isinstance(declared, Declared)
        assigner: Any = spec.assigner
        self._gap: Milliseconds = assigner.gap_ms
        self._late = spec.late
        self._declared = declared
        self._mine = [definition.shared.index(unnamed(one)) for one in declared.aggregates]
        self._widths = [1, *(measure_of(one).width for one in definition.shared)]
        self._measures = [measure_of(one) for one in declared.aggregates]
        self._index = KeyIndex(key_codec(definition.window.key_type))
        services.opened(step, None)
        state_id = services.state_id(step, SESSIONS)
        self._state = ChunkState(
            services.committed,
            state_id=state_id,
            groups=groups_of(services.partition, services.job.parallelism, services.job.max_parallelism),
            next_due=services.committed.partition_state.next_due.get(state_id),
            max_parallelism=services.job.max_parallelism,
            index=self._index,
            merge=joined,
            where=f"step {step!r}",
            due=self._due,
        )
        services.keyed.append(self._state)

    def on_input(self, port: int, batch: Keyed) -> None:
        self.records_in += len(batch)
        if port == 0:
            self._take(batch)
        else:
            self._take_stragglers(batch)

    def _take(self, batch: Keyed) -> None:
        assert isinstance(batch.batch, Columns)
        ends, (starts, *vectors) = from_columns(batch.batch.data, self._widths)
        keys = self._index.numbers(batch.keys)[batch.codes]
        self._add(Chunk(keys, [[starts[0], ends], *(vectors[number] for number in self._mine)]))

    def _add(self, rows: Chunk) -> None:
        """Keep rows by the bucket that they end in."""
        buckets = -(-rows.vectors[0][1] // self._gap) * self._gap
        order = np.argsort(buckets, kind="stable")
        there, firsts = np.unique(buckets[order], return_index=True)
        for bucket, mine in zip(there.tolist(), np.split(order, firsts[1:]), strict=True):
            self._state.add(bucket, rows.take(mine))

    # --- time --------------------------------------------------------------------------------------------------------------

    def _due(self, bucket: Milliseconds) -> Milliseconds:
        """Rows of a bucket end above the one before; what ends by the watermark is dead."""
        return max(bucket - self._gap, self.watermark + 1)

    def advance(self, watermark: Milliseconds) -> None:
        due = self._state.has_due(watermark)
        before, self.watermark = self.watermark, watermark
        if not due:
            return
        rows = self._live(before, watermark)
        if rows is not None:
            ended = rows.vectors[0][1] <= watermark + 1 if watermark < MAX_WATERMARK else np.ones(len(rows), dtype=bool)
            if ended.any():
                self._close(rows.take(_of_keys(rows.keys, rows.keys[ended])), watermark)
        self._state.drop([bucket for bucket in self._state.ends() if bucket - 1 <= watermark])

    def _live(self, before: Milliseconds, watermark: Milliseconds) -> Chunk | None:
        """The rows that were live at one watermark, and may belong to sessions that end by another."""
        until = saturated(watermark + 1 + 3 * self._gap)
        self._state.load(until)
        chunks = [chunk for bucket in self._state.ends() if bucket <= until for chunk in self._state.chunks(bucket)]
        if not chunks:
            return None
        rows = joined(chunks)
        alive = rows.vectors[0][1] - 1 > before
        return rows if alive.all() else rows.take(np.flatnonzero(alive))

    def _close(self, rows: Chunk, watermark: Milliseconds) -> None:
        """Emit the sessions that have ended; of others, let what has ended wait for the rest."""
        order, runs = runs_of(rows.keys, *rows.vectors[0])
        rows = rows.take(order)
        ends = rows.vectors[0][1]
        firsts = np.flatnonzero(np.diff(runs, prepend=-1))
        run_ends = np.maximum.reduceat(ends, firsts)
        over = run_ends - 1 <= watermark
        complete = over[runs]
        self._emit(rows.take(np.flatnonzero(complete)), runs[complete])
        waits = np.flatnonzero(~complete & (ends - 1 <= watermark))
        if len(waits):
            some = self._by_run(rows.take(waits), runs[waits])
            some.vectors[0][1] = np.minimum(run_ends[np.unique(runs[waits])], watermark + 1 + 2 * self._gap)
            self._add(some)

    def _by_run(self, rows: Chunk, runs: Rows) -> Chunk:
        """One row for each run; rows are in order of runs and starts."""
        _, firsts, numbers = np.unique(runs, return_index=True, return_inverse=True)
        starts, ends = rows.vectors[0]
        vectors: list[Vectors] = [[starts[firsts], np.maximum.reduceat(ends, firsts)]]
        for measure, held in zip(self._measures, rows.vectors[1:], strict=True):
            vectors.append(reduced(measure, held, numbers, len(firsts)))
        return Chunk(rows.keys[firsts], vectors)

    def _emit(self, rows: Chunk, runs: Rows) -> None:
        if len(rows):
            whole = self._by_run(rows, runs)
            decoded = self._index.decoded()
            keys = [decoded[key] for key in whole.keys.tolist()]
            (starts, ends), *vectors = whole.vectors
            self.outputs.emit(results(self._declared, self._measures, keys, starts, ends, vectors))

    def finish(self) -> None:
        """Rows that died in this epoch are not written."""
        watermark = self.watermark
        self._state.sift(lambda chunk: chunk.take(np.flatnonzero(chunk.vectors[0][1] - 1 > watermark)))

    # --- stragglers --------------------------------------------------------------------------------------------------------

    def _take_stragglers(self, batch: Keyed) -> None:
        """One after another: each either continues a live session of its key, or makes one, or is late."""
        times, watermark, gap = timestamps(batch.batch, self.step), self.watermark, self._gap
        keys = self._index.numbers(batch.keys)[batch.codes]
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
            part = batch.batch.take(np.asarray(taken))
            for at, end in enumerate(ends):
                one = part.take(np.asarray([at]))
                aggregates = self._declared.aggregates
                rows = runs_of_records(one, keys[[taken[at]]], times[[taken[at]]], gap, aggregates, self.step)
                rows.vectors[0][1] = np.asarray([end])
                self._add(rows)
        if late:
            emit_late(self, self._late, batch.batch.take(np.asarray(late)))

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
