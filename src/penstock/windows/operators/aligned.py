"""The common case, faster: tumbling and sliding windows with their default trigger and an incremental aggregation.

Laws:
- It does what `WindowOperator` does, result for result. (Within a batch time stands still, so a window either is past its end
  for all of the batch's records, or for none.)
- A window of which nothing is committed is *fresh*: nothing is read for it, and if it is over before the epoch is, nothing is
  written. Every window with committed state has its cleanup timer committed, so one look at the timers tells for all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.ids import MIN_WATERMARK, Milliseconds, StepId
from penstock.records import NO_TIMESTAMP, Timestamps
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.keyed import EMIT_ABOVE
from penstock.runtime.services import Services
from penstock.state.overlay.keyed import UNLOADED, Slot
from penstock.state.overlay.timers import Timer
from penstock.windows.assigners import AlignedWindows
from penstock.windows.operators.contents import Accumulated
from penstock.windows.operators.operator import WindowOperator
from penstock.windows.step import WindowStep, no_timestamp
from penstock.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from penstock.windows.window import TimeWindow, decode_window, encode_window

Ints = npt.NDArray[np.int64]

FAR = 1 << 61
"""Times beyond this are left to the general operator, whose integers do not overflow."""

AT_A_TIME = 2_000
"""So many windows are looked up together when time closes them."""


def is_aligned(definition: WindowStep) -> bool:
    """Is this the common case?"""
    spec = definition.spec
    usual = EventTimeTrigger() if spec.assigner.event_time else ProcessingTimeTrigger()
    return (
        isinstance(spec.assigner, AlignedWindows)
        and spec.assigner.stagger == "aligned"
        and type(spec.trigger) is type(usual)
        and spec.trigger == usual
        and definition.incremental
        and definition.errors == "fail"
    )


class AlignedOperator(WindowOperator):
    """Takes a batch at a time."""

    contents: Accumulated

    def __init__(self, step: StepId, services: Services, definition: WindowStep) -> None:
        super().__init__(step, services, definition)
        assert isinstance(self.spec.assigner, AlignedWindows)
        self._assigner = self.spec.assigner
        self._timers = self.windows.event_timers if self.event_time else self.windows.processing_timers
        self._known: dict[Milliseconds, bool] = {}

    # --- records -----------------------------------------------------------------------------------------------------------

    def on_batch(self, batch: Keyed) -> None:  # type: ignore[override]
        moments = self._moments(batch)
        if not len(batch) or int(moments.max()) > FAR or int(moments.min()) < -FAR:
            super().on_batch(batch)
            return
        self.records_in += len(batch)
        ticks = batch.batch.ticks
        if ticks is None or not self.event_time:
            self._take(batch, moments)
            return
        bounds = [0, *self._turns(ticks), len(batch)]
        for start, stop in pairwise(bounds):
            if (tick := int(ticks[start])) > self.watermark:
                self._move_on(tick)
            part = batch if (start, stop) == (0, len(batch)) else _rows(batch, start, stop)
            self._take(part, moments[start:stop])

    def _turns(self, ticks: Ints) -> list[int]:
        """The rows before which a window ends, or takes no more records."""
        slide, last = self._assigner.slide_ms, self._assigner.offset_ms + self._assigner.size_ms - 1
        known = np.maximum(ticks, -FAR)
        turns = np.diff((known - last) // slide) != 0
        if self.spec.allowed_lateness_ms:
            turns |= np.diff((known - last - self.spec.allowed_lateness_ms) // slide) != 0
        return (np.flatnonzero(turns) + 1).tolist()

    def _take(self, batch: Keyed, moments: Ints) -> None:
        """Records between which time stands still, as far as windows can tell."""
        self._tick = self.ctx._tick = self.watermark
        rows, starts = self._taken(batch, moments)
        if len(rows):
            self._add(batch, rows, starts)
        self._flush()

    def _moments(self, batch: Keyed) -> Ints:
        if not self.event_time:
            return np.full(len(batch), self.ctx.current_processing_time, dtype=np.int64)
        stamps = batch.batch.timestamps
        if stamps is None or (len(stamps) and int(stamps.min()) == NO_TIMESTAMP):
            row = 0 if stamps is None else int(stamps.argmin())
            raise no_timestamp(self.step, batch.batch.values()[row])
        return stamps

    def _taken(self, batch: Keyed, moments: Ints) -> tuple[Ints, Ints]:
        """(row, window start) of every record in every window that takes it, in order of rows. Late records go out."""
        size, slide = self._assigner.size_ms, self._assigner.slide_ms
        last = moments - (moments - self._assigner.offset_ms) % slide
        starts = last[:, None] - np.arange(-(-size // slide), dtype=np.int64) * slide
        taken = starts > moments[:, None] - size
        if self.event_time and self.watermark != MIN_WATERMARK:
            lateness = self.spec.allowed_lateness_ms
            taken &= starts > self.watermark - lateness - size + 1
            self._leave_out(batch, moments, taken, moments <= self.watermark - lateness)
        else:
            self._leave_out(batch, moments, taken, np.zeros(len(moments), dtype=bool))
        rows, columns = np.nonzero(taken)
        return rows, starts[rows, columns]

    def _leave_out(self, batch: Keyed, moments: Ints, taken: npt.NDArray[np.bool_], past: npt.NDArray[np.bool_]) -> None:
        """Records that no window takes: late ones, and those that have no window at all."""
        left = np.logical_not(np.any(taken, axis=1))
        if not np.any(left):
            return
        values = batch.batch.values()
        ticks = batch.batch.ticks
        at = np.full(len(batch), self.watermark) if ticks is None else ticks
        late = np.flatnonzero(left & past).tolist()
        self._emit_late([(values[row], int(moments[row]), int(at[row])) for row in late])
        unassigned = int(np.count_nonzero(left & ~past))
        if unassigned:
            self.counters.count("unassigned", unassigned)

    def _add(self, batch: Keyed, rows: Ints, starts: Ints) -> None:
        distinct, which = np.unique(starts, return_inverse=True)
        pairs, pair_of = np.unique(batch.codes[rows].astype(np.int64) * len(distinct) + which, return_inverse=True)
        codes, at = np.divmod(pairs, len(distinct))
        windows = [TimeWindow(start, start + self._assigner.size_ms) for start in distinct.tolist()]
        slots = self._enter(batch.keys, codes.tolist(), at.tolist(), windows)
        cells = [slot.cells for slot in slots]
        values = batch.batch.values()
        records = values if np.array_equal(rows, np.arange(len(values))) else [values[row] for row in rows.tolist()]
        past = self.watermark if self.event_time else MIN_WATERMARK
        cell = self.contents.handle.cell
        add: Callable[[Any, Any], Any] = self.contents.incremental.add
        timed = self.contents.incremental.timed
        if timed:
            records, add = self._with_times(batch.batch.timestamps, rows, records), self._add_at
        record, held = None, cells[0]
        self._calling = self.contents.incremental.function
        try:
            if windows[0].max_timestamp > past:
                for held, record in zip(map(cells.__getitem__, pair_of.tolist()), records, strict=True):
                    held[cell] = add(held[cell], record)
            else:
                for number, record in zip(pair_of.tolist(), records, strict=True):
                    held = cells[number]
                    held[cell] = add(held[cell], record)
                    window = windows[int(at[number])]
                    if window.max_timestamp <= past:
                        self._fire(slots[number], slots[number], window, stays=True)
                        self._calling = self.contents.incremental.function
            record, admit = f"one of a batch of {len(records)} records", self.contents.handle.admit
            for slot in slots:
                held = slot.cells
                admit(slot)
        except Exception as error:
            self.windows.slot = next(slot for slot in slots if slot.cells is held)
            raise self._error(error, record[0] if timed and isinstance(record, tuple) else record) from error

    def _with_times(self, times: Timestamps | None, rows: Ints, records: list[Any]) -> list[Any]:
        return list(zip(records, [NO_TIMESTAMP] * len(rows) if times is None else times[rows].tolist(), strict=True))

    def _add_at(self, held: Any, timed: tuple[Any, Milliseconds]) -> Any:
        return self.contents.incremental.add_at(held, *timed)

    def _enter(self, keys: list[bytes], codes: list[int], at: list[int], windows: list[TimeWindow]) -> list[Slot]:
        """The slots of (key, window) pairs, loaded, with their timers set."""
        encoded = [encode_window(window) for window in windows]
        wanted = [keys[code] + encoded[i] for code, i in zip(codes, at, strict=True)]
        fresh = [self._is_fresh(window) for window in windows]
        slots = self.windows.enter_spaces(wanted, [fresh[i] for i in at])
        handle = self.contents.handle
        past = self.watermark if self.event_time else MIN_WATERMARK
        register, lateness = self._timers.register, self.spec.allowed_lateness_ms if self.event_time else 0
        for slot, i in zip(slots, at, strict=True):
            if slot.cells[handle.cell] is UNLOADED:
                handle.load(slot)
            last = windows[i].max_timestamp
            if last > past:
                register(last, slot)
            if lateness:
                register(last + lateness, slot)
        return slots

    def _is_fresh(self, window: TimeWindow) -> bool:
        cleanup = self.spec.cleanup_time(window)
        found = self._known.get(cleanup)
        if found is None:
            found = self._known[cleanup] = not self._timers.is_committed(cleanup)
        return found

    # --- time --------------------------------------------------------------------------------------------------------------

    def look_ahead(self, limit: Milliseconds) -> None:
        """Timers are read when windows end: that is seldom enough."""

    def _fire_timers(self, timers: Iterable[Timer], domain: str) -> None:
        self.windows.times.record_time = None
        timers = iter(timers)
        while chunk := list(islice(timers, AT_A_TIME)):
            slots = self.windows.enter_spaces([encoded for _, encoded in chunk])
            for (time, encoded), slot in zip(chunk, slots, strict=True):
                window = decode_window(encoded)
                self._fires_at(time, domain)
                over = time == self.spec.cleanup_time(window)
                try:
                    if time == window.max_timestamp:
                        self._fire(slot, slot, window, stays=not over)
                    if over:
                        self._close(slot, slot, window)
                except Exception as error:
                    raise self._error(error, {"window": tuple(window), "timer": time, "domain": domain}) from error
            if len(self._out) >= EMIT_ABOVE:
                self._flush()
        self._flush()

    def _close(self, slot: Slot, home: Slot, window: TimeWindow) -> None:
        """The trigger has neither state nor, by now, timers."""
        self._tell_function(slot, window)
        if slot.fresh:
            self.windows.forget(slot)
        else:
            self._clear_slot(slot)


def _rows(batch: Keyed, start: int, stop: int) -> Keyed:
    """Some rows, with only their keys."""
    numbers, codes = np.unique(batch.codes[start:stop], return_inverse=True)
    keys = [batch.keys[number] for number in numbers.tolist()]
    return Keyed(batch.batch.slice(start, stop), keys, codes.astype(np.int32), batch.column)
