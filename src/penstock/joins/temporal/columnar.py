"""The temporal join over columns: records whose time has come, with the newest versions that are not later, a round at a time.

Laws:
- Results are those of the record path, in the same order.
- Of the versions of a key those are kept that are later than the watermark, and the newest of the others, even if it ends the
  row.
- A version whose timestamp is its tick comes when records of that time may have been joined: a round is cut there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.changes import RowKind
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.joins.buffer.rows import Mask, Numbers, Rows, needed_versions, one_rows
from penstock.joins.buffer.side import SideBuffer
from penstock.joins.columns import one_payload, payload_of
from penstock.joins.keys import ProbeKeys
from penstock.joins.spec import LEFT, RIGHT, Side
from penstock.records import DICT_ROW, Batch, Columns
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.ordering import sliced
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.state.key_groups import groups_of
from penstock.windows.columnar.chunks import KeyIndex
from penstock.windows.columnar.partial import timestamps

if TYPE_CHECKING:
    from penstock.joins.temporal.step import ColumnarTemporalJoin

FOR_EVER_MS = 1 << 60
_LEFT_STRETCH_MS = 1_000


class TemporalJoinOperator(Operator):
    def __init__(self, step: StepId, services: Services, inputs: int, definition: ColumnarTemporalJoin) -> None:
        super().__init__(step, services, inputs)
        self._definition = definition
        self._index = KeyIndex(codec := key_codec(definition.key_type))
        self._probe_keys = ProbeKeys(self._index, codec)
        self._turn = int(services.order.epoch) << 32
        services.opened(step, None)
        self._waiting, self._versions = (self._buffer(services, side) for side in (LEFT, RIGHT))
        services.keyed += [self._waiting, self._versions]

    def _buffer(self, services: Services, side: Side) -> SideBuffer:
        state_id = services.state_id(self.step, self._definition.state_names[side])
        versions = side == RIGHT
        return SideBuffer(
            services.committed,
            state_id=state_id,
            groups=groups_of(services.partition, services.job.parallelism, services.job.max_parallelism),
            next_due=services.committed.partition_state.next_due.get(state_id),
            key_groups=services.job.key_groups,
            index=self._index,
            what=self._definition.kept(side),
            step=self.step,
            keep_ms=FOR_EVER_MS if versions else 0,
            stretch_ms=FOR_EVER_MS if versions else _LEFT_STRETCH_MS,
            waits=not versions,
            watermark=self.watermark,
            prune=needed_versions if versions else None,
        )

    # --- records -----------------------------------------------------------------------------------------------------------

    def on_input(self, port: int, batch: Keyed) -> None:
        self._take({port: batch}, {port: np.arange(len(batch))})

    def on_merged(self, batches: dict[int, Keyed], ports: Ports) -> None:
        if self.observer is not None:
            super().on_merged(batches, ports)
        else:
            self._take(batches, {port: np.flatnonzero(ports == port) for port in batches})

    def _take(self, batches: dict[int, Keyed], places: dict[int, Numbers]) -> None:
        """Records and versions that have come, with their place among those of both sides."""
        cuts = [0, *self._cuts(batches.get(RIGHT), places.get(RIGHT)), 1 << 62]
        for first, last in pairwise(cuts):
            part: dict[int, tuple[Any, Numbers]] = {}
            for port, batch in batches.items():
                start, stop = np.searchsorted(places[port], (first, last)).tolist()
                if start < stop:
                    part[port] = sliced(batch, start, stop), places[port][start:stop]
            if part:
                self._take_part(part)
        self._turn += sum(map(len, batches.values()))

    def _cuts(self, versions: Keyed | None, places: Numbers | None) -> list[int]:
        if versions is None or places is None or versions.batch.ticks is None:
            return []
        at = places[timestamps(versions.batch, self.step) == versions.batch.ticks]
        return [place for place in at.tolist() if place > 0]

    def _take_part(self, part: dict[int, tuple[Keyed, Numbers]]) -> None:
        ticks = [keyed.batch.ticks for keyed, _ in part.values() if keyed.batch.ticks is not None]
        if ticks and (least := min(int(each[0]) for each in ticks)) > self.watermark:
            self._join(least)
        for port, (keyed, places) in part.items():
            self._add(LEFT if port == 0 else RIGHT, keyed, places)
        if ticks and (now := max(int(each[-1]) for each in ticks)) > self.watermark:
            self._join(now)

    def _add(self, side: Side, keyed: Keyed, places: Numbers) -> None:
        self.records_in += len(keyed)
        batch = keyed.batch
        times = timestamps(batch, self.step)
        ticks = batch.ticks if batch.ticks is not None else np.full(len(batch), self.watermark, dtype=np.int64)
        keys, turns = self._index.numbers(keyed.keys)[keyed.codes], places + self._turn
        gone = np.zeros(len(keys), dtype=bool)
        kept = times >= ticks
        if side == RIGHT and batch.kinds is not None:
            gone = batch.kinds == RowKind.DELETE.code
            kept_kinds = batch.kinds != RowKind.UPDATE_BEFORE.code
        else:
            kept_kinds = np.ones(len(keys), dtype=bool)
        if not kept.all():
            self._set_late(side, batch.take(np.flatnonzero(~kept)))
        rows = np.flatnonzero(kept & kept_kinds)
        if len(rows) < len(keys):
            batch, keys, times, ticks, turns, gone = (
                batch.take(rows),
                keys[rows],
                times[rows],
                ticks[rows],
                turns[rows],
                gone[rows],
            )
        if len(rows):
            data = payload_of(batch, self._definition.columns.kept(side), self.step)
            (self._waiting if side == LEFT else self._versions).add(Rows(keys, times, ticks, turns, gone, data))

    def _set_late(self, side: Side, records: Batch) -> None:
        counters, tag = self.services.contexts[self.step], self._definition.late[side]
        counters.count(("late_left", "late_right")[side], len(records))
        if tag is None:
            counters.count("late_dropped", len(records))
        else:
            self.outputs.emit_side(tag, records.with_kinds(None))

    # --- time --------------------------------------------------------------------------------------------------------------

    def advance(self, watermark: Milliseconds) -> None:
        self._join(watermark)

    def _join(self, now: Milliseconds) -> None:
        """Time gets to `now`: records that are not later meet their versions."""
        due = self._waiting.take_over(now) if self._waiting.has_due(now) else []
        self.watermark = now
        if due:
            self._emit(one_rows(due, self.step))
        self._waiting.drop(now)
        self._versions.watermark = now

    def _emit(self, rows: Rows) -> None:
        rows = rows.take(np.lexsort((rows.turns, rows.ticks, self._ranks_of_keys(rows.keys), rows.times)))
        parts: list[pa.RecordBatch] = []
        found = np.full(len(rows), -1)
        best = np.full((3, len(rows)), np.iinfo(np.int64).min)
        start = 0
        keys = self._probe_keys.of(rows.keys)
        gone = np.zeros(len(rows), dtype=bool)
        for run in self._versions.runs(-FOR_EVER_MS, int(rows.times.max())):
            at = run.latest(keys, rows.times)
            mine = run.rows
            order = np.stack((mine.times[at], mine.ticks[at], mine.turns[at]))
            newer = (at >= 0) & _later(order, best)
            found[newer], best[:, newer], gone[newer] = at[newer] + start, order[:, newer], mine.met[at[newer]]
            parts.append(mine.data)
            start += len(mine)
        found[gone] = -1
        if not self._definition.keeps and (found < 0).any():
            rows, found = rows.take(found >= 0), found[found >= 0]
        if not len(rows):
            return
        sample = self._versions.sample
        versions = one_payload(parts, self.step) if parts else None if sample is None else sample.data
        whole = self._definition.columns.joined(rows.data, versions, (np.arange(len(rows)), found))
        ticks = np.maximum(rows.times - 1, rows.ticks) if self.ordered else None
        self.outputs.emit(Columns(whole, DICT_ROW, rows.times, ticks))

    def _ranks_of_keys(self, keys: Numbers) -> Numbers:
        encoded = self._index.encoded
        distinct = np.unique(keys)
        ranks = np.empty(len(distinct), dtype=np.int64)
        ranks[sorted(range(len(distinct)), key=lambda place: encoded[distinct[place]])] = np.arange(len(distinct))
        return ranks[np.searchsorted(distinct, keys)]

    def finish(self) -> None:
        """State bounds, as metrics."""
        counters = self.services.contexts[self.step]
        for name, buffer in (("rows_left", self._waiting), ("rows_right", self._versions)):
            counters.count(name, buffer.rows_held())
        if self.watermark == MAX_WATERMARK:
            self._waiting.drop(self.watermark)


def _later(mine: Numbers, best: Numbers) -> Mask:
    """Which of some (time, tick, turn) are after others."""
    after: Mask = mine[2] > best[2]
    for place in (1, 0):
        after = (mine[place] > best[place]) | ((mine[place] == best[place]) & after)
    return after
