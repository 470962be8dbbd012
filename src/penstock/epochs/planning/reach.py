"""How far in event time an epoch goes, where steps follow that see order.

    least clock ──────── span ────────→ until
                 about as many records
                 as the epoch may take

Laws:
- An epoch takes all records with ticks below `until`, of every source partition, and none of the others. So the records of one
  tick are never divided between epochs.
- There is no bound if all that is left is planned, or if the input is not read in order of event time.
- A partition that has more input than was planned of it, and not enough to reach the bound, makes the epoch be planned anew, with
  the bound where that partition got to.
- The bound is in the order: a retry and a replay stop where the epoch did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.ids import MIN_WATERMARK, Milliseconds

AIM = 0.8
"""The span aims at this share of what an epoch may take, because records are not spread evenly."""

MOST_GROWTH = 1024.0
"""Of the span, from one epoch to the next. A span that is too long costs a plan; one that is too short, many epochs."""

TOGETHER = 1 << 20
"""Up to this number of records of one tick stay together, even where an epoch may take fewer."""


@dataclass(frozen=True, slots=True)
class LaneAhead:
    """What is known of a source partition when an epoch is planned. `clock`: None, if nothing of it has been read."""

    clock: Milliseconds | None
    reads: bool
    more: bool
    drift_ms: Milliseconds | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Of an epoch. `until`: None, all that is planned is taken. `least`: the clock furthest behind. `strict`: a partition that
    has more than was planned must reach the bound."""

    until: Milliseconds | None = None
    least: Milliseconds = MIN_WATERMARK
    strict: bool = False


UNBOUND = Bound()


class Reach:
    """Learns how much event time fits into an epoch."""

    def __init__(self) -> None:
        self._span: float | None = None
        self._cap: Milliseconds | None = None
        self._boost = 1
        self._loose = False

    @property
    def factor(self) -> int:
        """Multiple of the epoch's limit to plan: above 1 while one tick has more records than an epoch may take."""
        return self._boost

    def bound(self, lanes: Sequence[LaneAhead], planned: int = 0, allowed: int = 0) -> Bound:
        """Of an epoch that reads these partitions in order of event time: `planned` records, or so, where `allowed` may be."""
        reading = [lane for lane in lanes if lane.reads]
        least = min((MIN_WATERMARK if lane.clock is None else lane.clock for lane in reading), default=MIN_WATERMARK)
        drifts = [lane.drift_ms for lane in lanes if lane.drift_ms is not None]
        behind = [lane.clock for lane in lanes if lane.clock is not None] if drifts else []
        limits = [min(behind) + min(drifts)] if behind and all(lane.clock is not None for lane in lanes) else []
        more = any(lane.more for lane in lanes)
        if self._loose or not (more or planned > allowed * self._boost):
            return Bound(until=min(limits, default=None), least=least)
        limits += [lane.clock for lane in lanes if lane.more and not lane.reads and lane.clock is not None and lane.clock > least]
        if self._cap is not None:
            limits.append(self._cap)
        elif self._span is not None and least > MIN_WATERMARK:
            limits.append(least + max(1, int(self._span)))
        return Bound(until=min(limits, default=None), least=least, strict=True)

    def fell_short(self, bound: Bound, clock: Milliseconds, records: int) -> None:
        """A partition ended at `clock`, before the bound; `records`: how many were planned at most."""
        if clock > bound.least:
            self._cap = clock
            if self._span is not None and bound.until is not None:
                self._span = min(self._span, max(1.0, float(clock - bound.least)))
        elif records * self._boost < max(TOGETHER, 64 * records):
            self._boost *= 4
        else:
            self._loose = True

    def ran(self, bound: Bound, records: int, allowed: int) -> None:
        """An epoch within the bound took `records` records, of the `allowed` ones."""
        self._cap, self._boost, self._loose = None, 1, False
        if bound.until is None or not bound.strict or bound.least == MIN_WATERMARK or records <= 0:
            return
        span = max(1, bound.until - bound.least)
        self._span = span * min(MOST_GROWTH, max(0.125, AIM * allowed / records))
