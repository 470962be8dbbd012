"""The interval join over columns: what has come is matched with what waits, a round at a time.

Laws:
- Results are those of the record path, in the same order: for each record that comes its partners, by time and then in order of
  arrival; rows that stay without a partner when time comes to their end, as timers would give them.
- A record is late if its timestamp is below its tick, which does not depend on the cut of the input into epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.joins.buffer.rows import Numbers, Rows
from penstock.joins.buffer.run import Run
from penstock.joins.buffer.side import SideBuffer
from penstock.joins.columns import one_payload, payload_of
from penstock.joins.interval.matching import Pairs, gone, pairs_with
from penstock.joins.keys import ProbeKeys
from penstock.joins.spec import LEFT, RIGHT, Side
from penstock.records import DICT_ROW, Batch, Columns
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.state.key_groups import groups_of
from penstock.windows.columnar.chunks import KeyIndex
from penstock.windows.columnar.partial import timestamps

if TYPE_CHECKING:
    from penstock.joins.interval.step import ColumnarIntervalJoin

SIDES: tuple[Side, Side] = (LEFT, RIGHT)


@dataclass(slots=True)
class _Found:
    """Results that wait to be put in order: rows of both sides (None: no row), and by result what it is ordered by: its tick; 0
    for partners, 1 for what has none; and then the place of the later record, or the end of a row."""

    sides: tuple[Rows | None, Rows | None]
    ticks: Numbers
    times: Numbers
    later: Numbers

    def __len__(self) -> int:
        return len(self.ticks)


class IntervalJoinOperator(Operator):
    def __init__(self, step: StepId, services: Services, inputs: int, definition: ColumnarIntervalJoin) -> None:
        super().__init__(step, services, inputs)
        self._spec = spec = definition.spec
        self._columns = definition.columns
        self._index = KeyIndex(codec := key_codec(definition.key_type))
        self._probe_keys = ProbeKeys(self._index, codec)
        self._turn = int(services.order.epoch) << 32
        services.opened(step, None)
        self._buffers = tuple(
            SideBuffer(
                services.committed,
                state_id=(state_id := services.state_id(step, name)),
                groups=groups_of(services.partition, services.job.parallelism, services.job.max_parallelism),
                next_due=services.committed.partition_state.next_due.get(state_id),
                key_groups=services.job.key_groups,
                index=self._index,
                what=definition.kept(side),
                step=step,
                keep_ms=spec.keep_ms(side),
                stretch_ms=definition.stretch_ms,
                waits=spec.outer(side),
                watermark=self.watermark,
            )
            for side, name in zip(SIDES, definition.state_names, strict=True)
        )
        services.keyed += self._buffers

    # --- records -----------------------------------------------------------------------------------------------------------

    def on_input(self, port: int, batch: Keyed) -> None:
        self._take({port: batch}, {port: np.arange(len(batch))})

    def on_merged(self, batches: dict[int, Keyed], ports: Ports) -> None:
        if self.observer is not None:
            super().on_merged(batches, ports)
        else:
            self._take(batches, {port: np.flatnonzero(ports == port) for port in batches})

    def _take(self, batches: dict[int, Keyed], places: dict[int, Numbers]) -> None:
        """Records that have come, with their place among those of both sides."""
        came = {port: self._rows(port, batch, places[port]) for port, batch in batches.items()}
        self._turn += sum(map(len, batches.values()))
        now = max((int(batch.batch.ticks[-1]) for batch in batches.values() if batch.batch.ticks is not None), default=None)
        results: list[_Found] = []
        left, right = (came.get(side) for side in SIDES)
        for side, rows in ((LEFT, left), (RIGHT, right)):
            if rows is not None and len(rows):
                results += self._with_waiting(side, rows)
        if left is not None and right is not None and len(left) and len(right):
            results += self._among(left, right)
        for side, rows in ((LEFT, left), (RIGHT, right)):
            if rows is not None:
                self._buffers[side].add(rows)
        if now is not None and now > self.watermark:
            results += self._over(now)
            self.watermark = now
        self._emit(results)
        if now is not None:
            self._drop(self.watermark)

    def _rows(self, port: int, keyed: Keyed, places: Numbers) -> Rows:
        """The records of an input that are not late."""
        side: Side = LEFT if port == 0 else RIGHT
        self.records_in += len(keyed)
        batch = keyed.batch
        times = timestamps(batch, self.step)
        ticks = batch.ticks if batch.ticks is not None else np.full(len(batch), self.watermark, dtype=np.int64)
        keys, turns = self._index.numbers(keyed.keys)[keyed.codes], places + self._turn
        late = times < ticks
        if late.any():
            self._set_late(side, batch.take(np.flatnonzero(late)))
            kept = np.flatnonzero(~late)
            batch, keys, times, ticks, turns = batch.take(kept), keys[kept], times[kept], ticks[kept], turns[kept]
        data = payload_of(batch, self._columns.kept(side), self.step)
        return Rows(keys, times, ticks, turns, np.zeros(len(keys), dtype=bool), data)

    def _set_late(self, side: Side, records: Batch) -> None:
        counters, tag = self.services.contexts[self.step], self._spec.late[side]
        counters.count(("late_left", "late_right")[side], len(records))
        if tag is None:
            counters.count("late_dropped", len(records))
        else:
            self.outputs.emit_side(tag, records)

    # --- partners ----------------------------------------------------------------------------------------------------------

    def _with_waiting(self, side: Side, rows: Rows) -> list[_Found]:
        """Rows that have come on one side, with those that wait on the other."""
        other: Side = RIGHT if side == LEFT else LEFT
        buffer, (lower, upper) = self._buffers[other], self._spec.bounds(side)
        runs = buffer.runs(int(rows.times.min()) + lower, int(rows.times.max()) + upper)
        found = []
        keys = self._probe_keys.of(rows.keys)
        for pairs in pairs_with(rows, keys, runs, (lower, upper), buffer.keep_ms):
            if self._spec.outer(side):
                rows.met[pairs.fresh] = True
            buffer.meet(pairs.run, pairs.rows)
            found.append(self._paired(side, rows, pairs))
        return found

    def _paired(self, side: Side, rows: Rows, pairs: Pairs) -> _Found:
        fresh, held = rows.take(pairs.fresh), pairs.run.rows.take(pairs.rows)
        return _Found(
            sides=(fresh, held) if side == LEFT else (held, fresh),
            ticks=fresh.ticks,
            times=np.maximum(fresh.times, held.times),
            later=fresh.turns,
        )

    def _among(self, left: Rows, right: Rows) -> list[_Found]:
        """Partners that have come together: one of two comes later."""
        lower, upper = self._spec.bounds(LEFT)
        run = Run(right)
        ls, rs = run.partners(self._probe_keys.of(left.keys), left.times + lower, left.times + upper)
        if not len(ls):
            return []
        right_later = right.turns[rs] > left.turns[ls]
        missed = np.where(
            right_later,
            gone(left, ls, right.ticks[rs], self._buffers[LEFT].keep_ms),
            gone(right, rs, left.ticks[ls], self._buffers[RIGHT].keep_ms),
        )
        if missed.any():
            ls, rs, right_later = ls[~missed], rs[~missed], right_later[~missed]
        if self._spec.outer(LEFT):
            left.met[ls] = True
        if self._spec.outer(RIGHT):
            right.met[rs] = True
        mine, theirs = left.take(ls), right.take(rs)
        return [
            _Found(
                sides=(mine, theirs),
                ticks=np.where(right_later, theirs.ticks, mine.ticks),
                times=np.maximum(mine.times, theirs.times),
                later=np.where(right_later, theirs.turns, mine.turns),
            )
        ]

    # --- time --------------------------------------------------------------------------------------------------------------

    def advance(self, watermark: Milliseconds) -> None:
        results = self._over(watermark)
        self.watermark = watermark
        self._emit(results)
        self._drop(watermark)

    def _over(self, now: Milliseconds) -> list[_Found]:
        """Rows without a partner whose end has come: the time of the result is that end."""
        found = []
        for side in SIDES:
            buffer = self._buffers[side]
            if not buffer.waits or not buffer.has_due(now):
                continue
            for rows in buffer.take_over(now):
                times = rows.times + buffer.keep_ms
                sides = (rows, None) if side == LEFT else (None, rows)
                found.append(_Found(sides, np.maximum(times - 1, rows.ticks), times, np.full(len(rows), -1)))
        return found

    def _drop(self, watermark: Milliseconds) -> None:
        for buffer in self._buffers:
            buffer.drop(watermark)

    # --- results -----------------------------------------------------------------------------------------------------------

    def _emit(self, results: list[_Found]) -> None:
        results = [found for found in results if len(found)]
        if not results:
            return
        ticks, times = (np.concatenate([getattr(found, name) for found in results]) for name in ("ticks", "times"))
        order = self._order(results, ticks, times)
        data, at = [], []
        for side in SIDES:
            payload, rows = self._side_of(side, results)
            data.append(payload)
            at.append(rows[order])
        whole = self._columns.joined(data[0], data[1], (at[0], at[1]))
        self.outputs.emit(Columns(whole, DICT_ROW, times[order], ticks[order] if self.ordered else None))

    def _side_of(self, side: Side, results: list[_Found]) -> tuple[pa.RecordBatch | None, Numbers]:
        """The payload of a side of all results, and for each result its row there (-1: none)."""
        parts, rows, start = [], [], 0
        for found in results:
            mine = found.sides[side]
            if mine is None:
                rows.append(np.full(len(found), -1))
            else:
                parts.append(mine.data)
                rows.append(np.arange(start, start + len(mine)))
                start += len(mine)
        numbers = np.concatenate(rows)
        if parts:
            return one_payload(parts, self.step), numbers
        sample = self._buffers[side].sample
        return (None if sample is None else sample.data), numbers

    def _order(self, results: list[_Found], ticks: Numbers, times: Numbers) -> Numbers:
        """By tick; of one tick partners first, by the later record, and of those by the other's time and arrival; then rows
        without a partner, by time, key, side and arrival."""
        if len(results) == 1 and len(ticks) == 1:
            return np.zeros(1, dtype=np.int64)
        earlier = [_earlier(found) for found in results]
        first, second, third = (np.concatenate(parts) for parts in zip(*earlier, strict=True))
        later = np.concatenate([found.later for found in results])
        single = later < 0
        if single.any():
            first[single] = self._ranks_of_keys(first[single])
        return np.lexsort((third, second, first, np.where(single, times, later), single, ticks))

    def _ranks_of_keys(self, keys: Numbers) -> Numbers:
        """Numbers that are in order as encoded keys are."""
        encoded = self._index.encoded
        distinct = np.unique(keys)
        ranks = np.empty(len(distinct), dtype=np.int64)
        ranks[sorted(range(len(distinct)), key=lambda place: encoded[distinct[place]])] = np.arange(len(distinct))
        return ranks[np.searchsorted(distinct, keys)]

    def finish(self) -> None:
        """State bounds, as metrics."""
        counters = self.services.contexts[self.step]
        for name, buffer in zip(("rows_left", "rows_right"), self._buffers, strict=True):
            counters.count(name, buffer.rows_held())
        if self.watermark == MAX_WATERMARK:
            self._drop(self.watermark)


def _earlier(found: _Found) -> tuple[Numbers, Numbers, Numbers]:
    """Of partners: time, tick and turn of the one that came first. Of rows without: key, side and turn."""
    left, right = found.sides
    if left is None or right is None:
        rows = right if left is None else left
        assert rows is not None
        return rows.keys.copy(), np.full(len(rows), int(left is None)), rows.turns
    right_first = found.later == left.turns
    by_name = ("times", "ticks", "turns")
    first, second, third = (np.where(right_first, getattr(right, name), getattr(left, name)) for name in by_name)
    return first, second, third
