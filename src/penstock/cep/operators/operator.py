"""Patterns on a keyed stream.

Laws:
- The events of a key are taken in order of (time, `ties`, arrival), once time has got there; later ones are late.
- Partial matches are over at their time, in order, before events of that very time. What a match makes has the time of its last
  event (or that at which it became complete), and goes out by (time, key), whatever the cut of the input into batches and epochs.
- A row becomes an object when a partial match looks at it, and a record when it is taken or a function asks for it.
- What lives through the epoch is saved at its end; a match that begins and ends within it leaves no trace in state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from penstock.cep.atoms import Event
from penstock.cep.functions import PatternContext
from penstock.cep.matching import Found, Link, TooManyError, match_of
from penstock.cep.operators.lane import Lane
from penstock.cep.operators.rows import Due, Ints, Part, Waiting, waited
from penstock.cep.operators.stored import KeyMatches, KeyStore
from penstock.cep.step import KeyedPatterns
from penstock.errors import PenstockError, PlanError, StateError
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.records import NO_TIMESTAMP, Records
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.evaluator import RowsFailedError
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.returned import as_records
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.state.overlay.handles import bind_states
from penstock.state.overlay.keyed import KeyedState
from penstock.state.overlay.writes import StateLabel


class Result(NamedTuple):
    """A match, or a partial one that timed out, of a key."""

    time: Milliseconds
    encoded: bytes
    order: int
    lane: Lane
    last: Link
    timed_out: bool


class _Rows(NamedTuple):
    """Rows by key and time, as lists. `begins`: the places of those that might begin a match; `values`: by row, if asked for."""

    rows: list[int]
    times: list[Milliseconds]
    known: list[int]
    bits: list[int]
    begins: list[int]
    values: dict[int, Any] | None


class PatternOperator(Operator):
    """The pattern of a program; with rules, several."""

    def __init__(self, step: StepId, services: Services, definition: KeyedPatterns, inputs: int = 1) -> None:
        super().__init__(step, services, inputs)
        self.definition = definition
        self.errors = definition.errors
        self.event_time = definition.time == "event"
        self.body = services.opened(step, definition.body)
        self.counters = services.contexts[step]
        self.keyed: KeyedState = services.keyed_state(step, definition.key_type, self.watermark)
        handles = bind_states(
            self.keyed,
            definition.key_states(),
            lambda name: services.state_id(step, name),
            lambda name: StateLabel(step=step, state=name, function=definition.function(), tolerant=self.errors != "fail"),
            sole=False,
        )
        self._queue = self.keyed.event_timers if self.event_time else self.keyed.processing_timers
        self.store = KeyStore(self.keyed, handles, self._queue)
        self.lanes: dict[str, Lane] = {lane.id: lane for lane in definition.lanes()}
        self.keys: dict[bytes, KeyMatches] = {}
        """Keys of which something is known in this epoch."""
        self._looked_up: set[bytes] = set()
        self._waiting = Waiting()
        self._alarms: list[tuple[Milliseconds, bytes]] = []
        self._decode = key_codec(definition.key_type).decode
        self.now: Milliseconds = services.processing_time
        self._results: list[Result] = []
        self._taken: list[Event] = []
        self._partial_before = 0
        self.ctx = PatternContext()
        self.ctx.current_watermark = self.watermark
        self.ctx.current_processing_time = self.now

    # --- what comes --------------------------------------------------------------------------------------------------------

    def on_batch(self, batch: Keyed) -> None:  # type: ignore[override]
        size = len(batch)
        self.records_in += size
        if not size:
            return
        if not self.event_time:
            self._add(Part(batch.batch, batch.keys, batch.codes, np.full(size, self.now, dtype=np.int64)))
            if self.definition.ties is None:
                self._go_to(self.now)
            return
        times = batch.batch.timestamps
        if times is None or int(times.min()) == NO_TIMESTAMP:
            raise _no_timestamp(self.step, batch.batch.values()[0 if times is None else int(times.argmin())])
        ticks = batch.batch.ticks
        part = Part(batch.batch, batch.keys, batch.codes, times)
        late = times <= (self.watermark if ticks is None else np.maximum(ticks, self.watermark))
        if late.any():
            self._late(batch, np.flatnonzero(late))
            part = part.take(np.flatnonzero(~late))
        self._add(part)
        if ticks is not None and int(ticks[-1]) > self.watermark:
            self.advance(int(ticks[-1]))

    def _add(self, part: Part) -> None:
        lane = self.lanes.get("")  # rules may be others when the rows are due
        if lane is not None and len(part.times):
            try:
                rows = lane.worth_keeping(part)
            except RowsFailedError as error:
                if self.errors == "fail":
                    raise self._cannot_compute(error, part) from error
                rows = self._computable(lane, part)
            if rows is not None:
                part = part.take(rows)
        self._waiting.add(part)

    def _late(self, batch: Keyed, rows: Ints) -> None:
        self.counters.count("late", len(rows))
        if self.definition.late is None:
            self.counters.count("late_dropped", len(rows))
            return
        late = batch.batch.take(rows)
        if late.ticks is None:
            late = late.with_ticks(np.full(len(rows), self.watermark, dtype=np.int64))
        self.outputs.emit_side(self.definition.late, late)

    # --- time --------------------------------------------------------------------------------------------------------------

    def look_ahead(self, limit: Milliseconds) -> None:
        self.keyed.event_timers.ahead = limit

    def advance(self, watermark: Milliseconds) -> None:
        self.keyed.times.ended = watermark == MAX_WATERMARK
        if self.event_time:
            self._go_to(watermark)
        self.watermark = self.keyed.times.watermark = self.ctx.current_watermark = watermark

    def on_processing_time(self, now: Milliseconds) -> None:
        self.keyed.times.processing_time = now
        self.now = self.ctx.current_processing_time = now
        if not self.event_time:
            self._go_to(now if self.definition.ties is None else now - 1)

    def on_end(self) -> None:
        self.keyed.times.ended = True
        self._go_to(MAX_WATERMARK)

    def finish(self) -> None:
        """What waits and what is partial is saved."""
        for part in self._waiting.take(MAX_WATERMARK):
            self._look_up(part.keys)
            keys = [self._key(encoded) for encoded in part.keys]
            for code, time, value in zip(part.codes.tolist(), part.times.tolist(), part.batch.values(), strict=True):
                keys[code].waiting.append((time, value))
        partial = 0
        for key in self.keys.values():
            partial += key.partial_count()
            self.store.save(key, self.lanes)
        self.counters.count("partial_matches", partial - self._partial_before)
        self._partial_before = partial

    # --- a step in time ----------------------------------------------------------------------------------------------------

    def _go_to(self, until: Milliseconds) -> None:
        """Everything up to this time happens."""
        woken = self._wake(until)
        parts = self._waiting.take(until)
        back = [(key, time, value) for key in woken for time, value in self._due_of(key, until)]
        if back:
            parts.insert(0, waited(back))
        for lane in self.lanes.values():
            lane.matcher.processing_time = self.now
        if parts:
            due = Due(parts)
            self._look_up(due.keys)
            for id in sorted(self.lanes):
                self._run(self.lanes[id], due, until)
        if woken:
            done = set(woken)
            for encoded in sorted(done):
                self._expire(encoded, until)
        self._emit()

    def _wake(self, until: Milliseconds) -> list[bytes]:
        """The keys to which something happens by then, of itself."""
        woken: dict[bytes, None] = {}
        if self._queue.has_due(until):
            for _time, encoded in self._queue.due(until):
                if encoded not in self.keys:
                    self._load(encoded)
                woken[encoded] = None
        while self._alarms and self._alarms[0][0] <= until:
            _, encoded = heappop(self._alarms)
            if encoded in self.keys:
                self.keys[encoded].listed = MAX_WATERMARK
                woken[encoded] = None
        return list(woken)

    def _due_of(self, encoded: bytes, until: Milliseconds) -> Iterable[tuple[Milliseconds, Any]]:
        key = self.keys[encoded]
        due = [one for one in key.waiting if one[0] <= until]
        if due:
            key.waiting = [one for one in key.waiting if one[0] > until]
        return due

    def _run(self, lane: Lane, due: Due, until: Milliseconds) -> None:
        known, bits = self._masks(lane, due)
        may_begin = lane.may_begin(known, bits)
        live = np.zeros(len(due.keys), dtype=np.bool_)
        live[due.codes[may_begin]] = True
        if self.keys:
            mine = self.keys
            for number, encoded in enumerate(due.keys):
                if encoded in mine and mine[encoded].matches.get(lane.id):
                    live[number] = True
        chosen = live[due.codes]
        matters = lane.matters(known, bits)
        if matters is not None:
            chosen &= matters
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        needs_records = lane.atoms.needs_records or self.definition.ties is not None
        values = dict(zip(rows.tolist(), due.values(rows), strict=True)) if needs_records else None
        order = rows[np.lexsort((due.times[rows], due.codes[rows]))]
        if self.definition.ties is not None:
            assert values is not None
            order = self._by_ties(order, due, values)
        codes = due.codes[order]
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(order)]
        rows_of = _Rows(
            rows=order.tolist(),
            times=due.times[order].tolist(),
            known=known[order].tolist(),
            bits=bits[order].tolist(),
            begins=np.flatnonzero(may_begin[order]).tolist(),
            values=values,
        )
        for code, start, stop in zip(codes[bounds[:-1]].tolist(), bounds, bounds[1:], strict=False):
            self._events_of_key(lane, due.keys[code], rows_of, start, stop, until)
        self._fill_in(due)

    def _events_of_key(self, lane: Lane, encoded: bytes, some: _Rows, start: int, stop: int, until: Milliseconds) -> None:
        """The events of one key, in order."""
        key = self._key(encoded)
        matches, matcher = key.of(lane.id), lane.matcher
        times_out = lane.automaton.times_out
        rows, times, known, bits, begins, values = some.rows, some.times, some.known, some.bits, some.begins, some.values
        taken, next_id = self._taken, key.next_id
        at = start
        while at < stop:
            if not matches.partial:
                place = bisect_left(begins, at)
                if place == len(begins) or begins[place] >= stop:
                    break
                at = begins[place]
            time, row = times[at], rows[at]
            if times_out and matches.partial and matches.expires() <= time:
                self._found(lane, encoded, matcher.expire(matches, time))
            if values is None:
                event = Event(time, next_id, None, known[at], bits[at], row)
            else:
                event = Event(time, next_id, values[row], known[at], bits[at])
            next_id += 1
            try:
                found = matcher.take(matches, event)
            except Exception as error:
                self._failed(error, lane, encoded, event)
            else:
                if found:
                    self._found(lane, encoded, found)
                if event.taken:
                    taken.append(event)
            at += 1
        key.next_id = next_id
        if times_out and matches.expires() <= until:
            self._found(lane, encoded, matcher.expire(matches, until))
        self._set_alarm(key)

    def _expire(self, encoded: bytes, until: Milliseconds) -> None:
        key = self.keys.get(encoded)
        if key is None:
            return
        for id, matches in key.matches.items():
            if matches.expires() <= until:
                lane = self.lanes[id]
                try:
                    self._found(lane, encoded, lane.matcher.expire(matches, until))
                except PlanError as error:
                    raise self.user_error(error, None, encoded) from error
        self._set_alarm(key)

    def _set_alarm(self, key: KeyMatches) -> None:
        """See to it that the key is looked at in time; forget it if nothing is left of it."""
        if key.idle:
            if key.stored is None:
                self.keys.pop(key.encoded, None)
            return
        wakes = key.wakes()
        if wakes < key.listed:
            key.listed = wakes
            heappush(self._alarms, (wakes, key.encoded))

    def _found(self, lane: Lane, encoded: bytes, found: list[Found]) -> None:
        results = self._results
        results += [Result(one.time, encoded, len(results) + n, lane, one.last, one.timed_out) for n, one in enumerate(found)]

    # --- keys --------------------------------------------------------------------------------------------------------------

    def _key(self, encoded: bytes) -> KeyMatches:
        found = self.keys.get(encoded)
        if found is None:
            found = self.keys[encoded] = KeyMatches(encoded)
        return found

    def _look_up(self, keys: list[bytes]) -> None:
        """Have those of these keys in memory of which something is kept."""
        looked_up = self._looked_up
        unknown = [encoded for encoded in keys if encoded not in looked_up]
        if not unknown:
            return
        looked_up.update(unknown)
        for encoded in list(self.store.find([encoded for encoded in unknown if encoded not in self.keys])):
            self._load(encoded)

    def _load(self, encoded: bytes) -> None:
        key = self.keys[encoded] = self.store.load(encoded, self.lanes)
        self._looked_up.add(encoded)
        self._partial_before += key.partial_count()
        wakes = key.wakes()
        if wakes < MAX_WATERMARK:
            key.listed = wakes
            heappush(self._alarms, (wakes, encoded))

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _masks(self, lane: Lane, due: Due) -> tuple[Ints, Ints]:
        try:
            return lane.masks(due)
        except RowsFailedError as error:
            if self.errors == "fail":
                raise self._cannot_compute(error, due.parts[0]) from error
            size = len(due)
            return np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)  # each row is asked

    def _computable(self, lane: Lane, part: Part) -> Ints:
        """The rows of which the conditions over columns can be computed; the others are set aside."""
        fine = []
        for row, value in enumerate(part.batch.values()):
            try:
                lane.atoms.of_batch(Records([value]))
            except RowsFailedError as error:
                self.set_aside(error.error, None, value, int(part.times[row]))
            else:
                fine.append(row)
        return np.asarray(fine, dtype=np.int64)

    def _by_ties(self, order: Ints, due: Due, values: dict[int, Any]) -> Ints:
        """Events of a key and a time, in the order that the pattern's `ties` gives."""
        ties, times, codes = self.definition.ties, due.times, due.codes
        assert ties is not None
        found: list[int] = []
        for _, rows in groupby(order.tolist(), lambda row: (codes[row], times[row])):
            some = list(rows)
            found += sorted(some, key=lambda row: ties(values[row])) if len(some) > 1 else some
        return np.asarray(found, dtype=np.int64)

    def _fill_in(self, due: Due) -> None:
        """What was taken becomes records."""
        taken = [event for event in self._taken if event.row >= 0]
        self._taken = []
        if taken:
            rows, at = np.unique(np.asarray([event.row for event in taken], dtype=np.int64), return_inverse=True)
            values = due.values(rows)
            for event, number in zip(taken, at.tolist(), strict=True):
                event.value = values[number]
                event.row = -1

    # --- output and errors -------------------------------------------------------------------------------------------------

    def _emit(self) -> None:
        if not self._results:
            return
        results, self._results = self._results, []
        results.sort(key=lambda one: (one.time, one.encoded, one.lane.id, one.order))
        ctx, body = self.ctx, self.body
        out: list[Any] = []
        times: list[Milliseconds] = []
        ticks: list[Milliseconds] = []
        tick = self.watermark
        matched = timed_out = 0
        for one in results:
            if one.timed_out:
                timed_out += 1
                if not body.wants_timed_out:
                    continue
            else:
                matched += 1
            ctx.key = self._decode(one.encoded)
            ctx.timestamp_ms = one.time if self.event_time else NO_TIMESTAMP
            if self.event_time:
                tick = max(tick, one.time - 1)
            ctx._tick = tick
            if one.lane.id:
                ctx.rule, ctx.rule_version = one.lane.id, one.lane.version
            start, mark = len(out), ctx.side_mark()
            match = match_of(one.last)
            try:
                if one.timed_out:
                    body.of_timed_out(match, ctx)
                else:
                    made = body.of_match(match, ctx)
                    if made is not None:
                        out.extend(as_records(made, self.step, body.function, body.kind))
            except Exception as error:
                if self.errors == "fail":
                    raise self.user_error(error, body.function, match, doing=f"key {ctx.key!r:.200}") from error
                del out[start:]
                ctx.side_back_to(mark)
                self.set_aside(error, body.function, match, ctx.timestamp_ms)
            times.extend([ctx.timestamp_ms] * (len(out) - start))
            ticks.extend([tick] * (len(out) - start))
        if matched:
            self.counters.count("matches", matched)
        if timed_out:
            self.counters.count("timed_out", timed_out)
        self.outputs.emit_sides(ctx.take_side())
        stamps = np.asarray(times, dtype=np.int64) if self.event_time else None
        self.outputs.emit(Records(out, stamps, np.asarray(ticks, dtype=np.int64)))

    def _failed(self, error: Exception, lane: Lane, encoded: bytes, event: Event) -> None:
        """A condition raised on an event, or there are too many partial matches."""
        key = self._decode(encoded)
        if isinstance(error, TooManyError):
            raise StateError(
                f"step {self.step!r}: key {key!r:.200} has more than {lane.matcher.limit:,} partial matches",
                detail=f"record: {event.value!r:.300}",
                hint="give the pattern within(...), drop allow_combinations(), raise max_partial_matches=, or let "
                'when_full="drop_oldest" drop those that began first',
            ) from error
        if isinstance(error, RowsFailedError):
            error = error.error
        if self.errors == "fail" or (isinstance(error, PenstockError) and not isinstance(error, PlanError)):
            raise self.user_error(error, self._culprit(lane), event.value, doing=f"key {key!r:.200}") from error
        self.set_aside(error, self._culprit(lane), event.value, event.time)

    def _culprit(self, lane: Lane) -> Any:
        return lane.matcher.atoms.asking

    def _cannot_compute(self, error: RowsFailedError, part: Part) -> Exception:
        return self.user_error(error.error, None, part.batch.values()[0], doing=f"{error.text}, ")


def _no_timestamp(step: str, record: Any) -> PlanError:
    return PlanError(
        f"step {step!r}: a record without a timestamp came to a pattern in event time",
        detail=f"record: {record!r:.300}",
        hint='give the source watermarks=Watermarks.bounded(seconds=5, timestamp=...), or the pattern time="processing"',
    )
