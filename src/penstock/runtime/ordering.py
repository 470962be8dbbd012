"""One order: in what order a step sees records, whatever the cut of the input into epochs.

A record's *tick* is the event time of its source partition just before it; what a timer emits has the tick just below the timer's
time. A step that sees order takes records by (tick, lane, upstream, sequence), and to it a record's tick is the watermark: timers
due by the tick fire before the record.

Laws:
- Ticks are a function of the records of a source partition, and do not go back in it. So they do not in what a task sends.
- An epoch that is bounded by an event time takes all records with ticks below the bound, and none of the others: records of one
  tick are never divided between epochs. Put end to end, epochs are the order of one epoch.
- Time is taken in *rounds*: a stretch of ticks of which all records are there. A step is given a round's records of one input as
  one batch; one of several inputs that sees order takes them all in turn, by (tick, port, lane, upstream, sequence). So also
  where a task sends records of one tick over several ways, their order does not depend on the cut.
- A source partition that is over has its end at its last clock; after it, time is that of those that are left. When the last is
  over, time goes on to the latest of these clocks.
- So the time of a source ends in the epoch whose bound is beyond its last clock. What timers emit at the end of time has the tick
  of that clock, if time goes on elsewhere.
- A tick above the watermark of all upstreams counts as that watermark: input that is not complete has no order to keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.records import Batch, Timestamps, one_batch
from penstock.runtime.frames import Codes, Keyed, Payload, Trailer

ROUND_ROWS = 16_384
"""With this many records waiting, those whose round is complete are passed on."""

END = MAX_WATERMARK
"""The horizon when everything is there."""


class ShortOfBoundError(Exception):
    """A source partition has fewer records planned than the epoch's bound asks for: `clock` is where it got."""

    def __init__(self, clock: Milliseconds) -> None:
        super().__init__(f"the input planned ends at event time {clock}")
        self.clock = clock


class Waiting:
    """Batches of one source partition that are read and not passed on, in order of ticks."""

    __slots__ = ("_batches", "rows")

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self.rows = 0

    def add(self, batch: Batch) -> None:
        if len(batch):
            self._batches.append(batch)
            self.rows += len(batch)

    def release(self, horizon: Milliseconds) -> Iterator[Batch]:
        """Take out what has ticks below the horizon."""
        batches, self._batches = self._batches, []
        for number, batch in enumerate(batches):
            assert batch.ticks is not None
            at = len(batch) if horizon == END else int(np.searchsorted(batch.ticks, horizon))
            if at:
                self.rows -= at
                yield batch.slice(0, at)
            if at < len(batch):
                self._batches = [batch.slice(at, len(batch)), *batches[number + 1 :]]
                return


def merged(parts: list[Batch]) -> Batch:
    """Batches as one, in order of ticks; of records of one tick those of an earlier batch come first."""
    whole = one_batch(parts)
    order = None if len(parts) == 1 else in_order(whole)
    return whole if order is None else whole.take(order)


def in_order(batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The rows in order of ticks; None: they are."""
    ticks = batch.ticks
    assert ticks is not None
    return None if (ticks[1:] >= ticks[:-1]).all() else np.argsort(ticks, kind="stable")


@dataclass(slots=True)
class _Open:
    """A payload that is being taken."""

    place: tuple[int, int, int]
    payload: Payload
    ticks: np.ndarray[tuple[int], np.dtype[np.int64]]
    at: int = 0


class Merge:
    """The payloads of one channel or port, merged by ticks."""

    __slots__ = ("_open", "rows")

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self.rows = 0

    def add(self, place: tuple[int, int, int], payload: Payload) -> Milliseconds:
        """Returns its last tick. `place`: of records of one tick, whose come first."""
        ticks = (payload.batch if isinstance(payload, Keyed) else payload).ticks
        assert ticks is not None
        self._open.append(_Open(place, payload, ticks))
        self.rows += len(ticks)
        return int(ticks[-1])

    def release(self, horizon: Milliseconds, limit: Milliseconds) -> Payload | None:
        """What has ticks below the horizon, as one batch; ticks above the limit become the limit."""
        parts: list[Payload] = []
        self._open.sort(key=lambda entry: entry.place)
        for entry in self._open:
            stop = len(entry.ticks) if horizon == END else int(np.searchsorted(entry.ticks, horizon))
            if stop > entry.at:
                parts.append(sliced(entry.payload, entry.at, stop))
                self.rows -= stop - entry.at
                entry.at = stop
        self._open = [entry for entry in self._open if entry.at < len(entry.ticks)]
        if not parts:
            return None
        keyed = isinstance(parts[0], Keyed)
        whole = merged_keyed([part for part in parts if isinstance(part, Keyed)]) if keyed else merged(parts)  # type: ignore[arg-type]
        ticks = (whole.batch if isinstance(whole, Keyed) else whole).ticks
        assert ticks is not None
        return whole if int(ticks[-1]) <= limit else with_ticks(whole, np.minimum(ticks, limit))


def ticked(payload: Payload, watermark: Milliseconds) -> Payload:
    """In order of ticks; those of a payload without ticks are the watermark."""
    batch = payload.batch if isinstance(payload, Keyed) else payload
    if batch.ticks is None:
        return with_ticks(payload, np.full(len(batch), watermark, dtype=np.int64))
    order = in_order(batch)
    if order is None:
        return payload
    whole = batch.take(order)
    return Keyed(whole, payload.keys, payload.codes[order], payload.column) if isinstance(payload, Keyed) else whole


def with_ticks(payload: Payload, ticks: Timestamps | None) -> Payload:
    if ticks is None and (payload.batch if isinstance(payload, Keyed) else payload).ticks is None:
        return payload
    if isinstance(payload, Keyed):
        return Keyed(payload.batch.with_ticks(ticks), payload.keys, payload.codes, payload.column)
    return payload.with_ticks(ticks)


def sliced(payload: Payload, start: int, stop: int) -> Payload:
    if isinstance(payload, Keyed):
        if start == 0 and stop == len(payload):
            return payload
        return Keyed(payload.batch.slice(start, stop), payload.keys, payload.codes[start:stop], payload.column)
    return payload.slice(start, stop)


def merged_keyed(parts: list[Keyed]) -> Keyed:
    if len(parts) == 1:
        return parts[0]
    numbers: dict[bytes, int] = {}
    codes: list[Codes] = []
    for part in parts:
        mine = [numbers.setdefault(key, len(numbers)) for key in part.keys]
        codes.append(np.asarray(mine, dtype=np.int32)[part.codes])
    whole, code = one_batch([part.batch for part in parts]), np.concatenate(codes)
    order = in_order(whole)
    if order is not None:
        whole, code = whole.take(order), code[order]
    return Keyed(whole, list(numbers), code)


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far event time goes in an epoch, by what all upstreams said at their end.

    `limit`: no tick counts for more; `last`: the watermark after all records; `rests`: then time is idle; `ended`: then it ends.
    """

    limit: Milliseconds
    last: Milliseconds
    rests: bool
    ended: bool


def ahead_of(channel: int, trailers: dict[int, Trailer]) -> Ahead:
    """An upstream whose time has ended, or is idle, does not hold the others back. When there are no others, time goes on to
    where the furthest got. Pure."""
    ended = {u for u, trailer in trailers.items() if channel in trailer.before_end}
    active = [
        watermark
        for u, trailer in trailers.items()
        if u not in ended and (watermark := trailer.watermarks.get(channel)) is not None
    ]
    if active:
        return Ahead(limit=min(active), last=min(active), rests=False, ended=False)
    last = max(trailer.reached.get(channel, MIN_WATERMARK) for trailer in trailers.values())
    return Ahead(limit=MAX_WATERMARK - 1, last=last, rests=True, ended=len(ended) == len(trailers))
