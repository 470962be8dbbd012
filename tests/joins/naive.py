"""Joins by double loops, over records in the one order in which a step sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

MIN = -(1 << 63)


class Came(NamedTuple):
    """A record as it came: `tick` is the event time of its source from just before it, `place` its place in the one order."""

    side: int
    row: dict[str, Any]
    time: int
    tick: int
    place: int


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def in_order(left: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]], slack: int) -> list[Came]:
    """The records of both sides in turn, by tick."""
    found = []
    for side, rows in enumerate((left, right)):
        latest = MIN
        for row in rows:
            found.append((max(MIN, latest - slack - 1) if latest > MIN else MIN, side, row))
            latest = max(latest, row["t"])
    found.sort(key=lambda entry: entry[:2])
    return [Came(side, row, row["t"], tick, place) for place, (tick, side, row) in enumerate(found)]


@dataclass(frozen=True)
class Interval:
    """Bounds are inclusive."""

    lower: int
    upper: int
    how: str

    def outer(self, side: int) -> bool:
        return self.how == "full" or self.how == ("left", "right")[side]

    def end(self, one: Came) -> int:
        """When a record is gone: not before time has moved on from when it came."""
        return max(one.time + max(0, self.upper if one.side == 0 else -self.lower), one.tick + 1)

    def results(self, came: Sequence[Came]) -> tuple[list[Any], list[list[Any]]]:
        """(left, right, time) of each result, in any order; and the late records of each side."""
        kept = [one for one in came if one.time >= one.tick]
        late = [[one.row for one in came if one.time < one.tick and one.side == side] for side in (0, 1)]
        found: list[Any] = []
        met: set[int] = set()
        for left in (one for one in kept if one.side == 0):
            for right in (one for one in kept if one.side == 1):
                first, second = sorted((left, right), key=lambda one: one.place)
                near = left.time + self.lower <= right.time <= left.time + self.upper
                if near and left.row["k"] == right.row["k"] and self.end(first) > second.tick:
                    found.append((left.row, right.row, max(left.time, right.time)))
                    met |= {left.place, right.place}
        for one in kept:
            if self.outer(one.side) and one.place not in met:
                end = one.time + max(0, self.upper if one.side == 0 else -self.lower)
                found.append((one.row, None, end) if one.side == 0 else (None, one.row, end))
        return found, late


@st.composite
def sides(draw: st.DrawFn, most: int = 30) -> list[dict[str, Any]]:
    """Records {k, t, v} of one stream, out of order."""
    steps = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(-12, 8)), max_size=most))
    rows, now = [], draw(st.integers(0, 15))
    for number, (key, step) in enumerate(steps):
        rows.append({"k": key, "t": now + step, "v": number})
        now += max(step, 0)
    return rows
