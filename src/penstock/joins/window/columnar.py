"""Window joins over columns: rows of both sides wait as they are; when windows are over, they are matched by key and window.

Laws:
- Results are those of the record path, in any order within a window.
- A record is in those of its windows that are not over at its tick, which does not depend on the cut; it is late if all are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.joins.buffer.rows import Numbers, Rows, one_rows
from penstock.joins.buffer.run import Run
from penstock.joins.buffer.side import SideBuffer
from penstock.joins.columns import payload_of
from penstock.joins.keys import ProbeKeys
from penstock.joins.spec import LEFT, RIGHT, Side, outer
from penstock.records import DICT_ROW, Batch, Columns
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.state.key_groups import groups_of
from penstock.windows.columnar.chunks import KeyIndex
from penstock.windows.columnar.partial import timestamps

if TYPE_CHECKING:
    from penstock.joins.window.step import ColumnarWindowJoin

_FAR = 1 << 61


class WindowJoinOperator(Operator):
    def __init__(self, step: StepId, services: Services, inputs: int, definition: ColumnarWindowJoin) -> None:
        super().__init__(step, services, inputs)
        self._definition = definition
        self._grid = definition.grid
        self._index = KeyIndex(codec := key_codec(definition.key_type))
        self._probe_keys = ProbeKeys(self._index, codec)
        self._turn = int(services.order.epoch) << 32
        services.opened(step, None)
        self._buffers = tuple(self._buffer(services, side) for side in (LEFT, RIGHT))
        services.keyed += self._buffers

    def _buffer(self, services: Services, side: Any) -> SideBuffer:
        state_id = services.state_id(self.step, self._definition.state_names[side])
        return SideBuffer(
            services.committed,
            state_id=state_id,
            groups=groups_of(services.partition, services.job.parallelism, services.job.max_parallelism),
            next_due=services.committed.partition_state.next_due.get(state_id),
            key_groups=services.job.key_groups,
            index=self._index,
            what=self._definition.kept(side),
            step=self.step,
            keep_ms=self._grid.size_ms,
            stretch_ms=self._grid.slide_ms,
            waits=False,
            watermark=self.watermark,
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
        ticks = [batch.batch.ticks for batch in batches.values() if batch.batch.ticks is not None]
        for port, batch in batches.items():
            self._add(LEFT if port == 0 else RIGHT, batch, places[port])
        self._turn += sum(map(len, batches.values()))
        if ticks and (now := max(int(each[-1]) for each in ticks)) > self.watermark:
            self._close(now)

    def _add(self, side: Side, keyed: Keyed, places: Numbers) -> None:
        self.records_in += len(keyed)
        batch = keyed.batch
        times = timestamps(batch, self.step)
        ticks = batch.ticks if batch.ticks is not None else np.full(len(batch), self.watermark, dtype=np.int64)
        late = self._grid.last_window(times) - 1 <= ticks
        if late.any():
            self._set_late(side, batch.take(np.flatnonzero(late)))
        if late.all():
            return
        data = payload_of(batch, self._definition.columns.kept(side), self.step)
        keys, met = self._index.numbers(keyed.keys)[keyed.codes], np.zeros(len(times), dtype=bool)
        rows = Rows(keys, times, ticks, places + self._turn, met, data)
        self._buffers[side].add(rows.take(~late) if late.any() else rows)

    def _set_late(self, side: Side, records: Batch) -> None:
        counters, tag = self.services.contexts[self.step], self._definition.late[side]
        counters.count(("late_left", "late_right")[side], len(records))
        if tag is None:
            counters.count("late_dropped", len(records))
        else:
            self.outputs.emit_side(tag, records)

    # --- time --------------------------------------------------------------------------------------------------------------

    def advance(self, watermark: Milliseconds) -> None:
        self._close(watermark)

    def _close(self, now: Milliseconds) -> None:
        """Time gets to `now`: windows that are over are joined."""
        before, self.watermark = self.watermark, now
        until = min(now, _FAR)
        sides = [self._in_windows(buffer, before, until) for buffer in self._buffers]
        if any(side is not None for side in sides):
            self._join(sides[LEFT], sides[RIGHT], before)
        for buffer in self._buffers:
            buffer.drop(now)

    def _in_windows(self, buffer: SideBuffer, before: Milliseconds, now: Milliseconds) -> tuple[Rows, Numbers] | None:
        """Rows, once for each of their windows that ends by now, with the ends."""
        grid = self._grid
        low = max(before, -_FAR) + 1 - grid.size_ms
        rows, ends = [], []
        for run in buffer.runs(low, now):
            mine = run.rows
            for nth in range(-(-grid.size_ms // grid.slide_ms)):
                end = grid.first_window(mine.times) + nth * grid.slide_ms
                last = end - 1
                due = np.flatnonzero(
                    (end <= grid.last_window(mine.times)) & (last > before) & (last <= now) & (last > mine.ticks)
                )
                if len(due):
                    rows.append(mine.take(due))
                    ends.append(end[due])
        return (one_rows(rows, self.step), np.concatenate(ends)) if rows else None

    def _join(self, left: tuple[Rows, Numbers] | None, right: tuple[Rows, Numbers] | None, before: Milliseconds) -> None:
        ls = rs = np.zeros(0, dtype=np.int64)
        if left is not None and right is not None:
            held = right[0]
            run = Run(Rows(held.keys, right[1], held.ticks, held.turns, held.met, held.data))
            ls, rs = run.partners(self._probe_keys.of(left[0].keys), left[1], left[1])
        at, alone = [ls, rs], []
        how = self._definition.how
        for side, mine in ((LEFT, left), (RIGHT, right)):
            if mine is not None and outer(how, side):
                rest = np.setdiff1d(np.arange(len(mine[0])), at[side])
                alone.append((side, rest))
        for side, rest in alone:
            none = np.full(len(rest), -1)
            more = (rest, none) if side == LEFT else (none, rest)
            at = [np.concatenate(both) for both in zip(at, more, strict=True)]
        if not len(at[0]):
            return
        ends = np.where(at[LEFT] >= 0, _at(left, at[LEFT]), _at(right, at[RIGHT]))
        order = np.argsort(ends, kind="stable")
        at, ends = [rows[order] for rows in at], ends[order]
        payloads = [self._payload(side, mine) for side, mine in ((LEFT, left), (RIGHT, right))]
        whole = self._definition.columns.joined(payloads[0], payloads[1], (at[0], at[1]))
        ticks = np.maximum(ends - 2, before) if self.ordered else None
        self.outputs.emit(Columns(whole, DICT_ROW, ends - 1, ticks))

    def _payload(self, side: Any, mine: tuple[Rows, Numbers] | None) -> Any:
        if mine is not None:
            return mine[0].data
        sample = self._buffers[side].sample
        return None if sample is None else sample.data

    def finish(self) -> None:
        """State bounds, as metrics."""
        counters = self.services.contexts[self.step]
        for name, buffer in zip(("rows_left", "rows_right"), self._buffers, strict=True):
            counters.count(name, buffer.rows_held())
        if self.watermark == MAX_WATERMARK:
            for buffer in self._buffers:
                buffer.drop(self.watermark)


def _at(mine: tuple[Rows, Numbers] | None, rows: Numbers) -> Numbers:
    """The ends of windows; of no row anything."""
    return np.zeros(len(rows), dtype=np.int64) if mine is None else mine[1][rows]
