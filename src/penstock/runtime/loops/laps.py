"""Laps: the stage at the end of a loop is run several times in an epoch, one after another, in the epoch's one chain of stages.

    … → stage 2 → stage 3, lap 0 → stage 3, lap 1 → stage 3, lap 2 → stage 4 → …

What was fed back to other partitions in a lap goes to them, and is taken in the next. For all else that a stage does:

Laws:
- All input but feedback comes in lap 0. Where the upstreams of the stage have got in time is passed on from lap to lap: every
  lap begins where the epoch began, and ends where lap 0 did.
- What a lap sends to the next stage is passed on by the laps after it, undecoded, before anything of their own.
- A lap reads state with the changes of those before it on top. They travel from lap to lap within a partition; the last one
  makes them one delta.
- What waits in the loop becomes state in the last lap only.
- Every lap has a report of its own, with what its sinks have staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from penstock.runtime.frames import LapChanges, Trailer
from penstock.runtime.messages import TaskReport

Entry = tuple[bytes, bytes | None]
V = TypeVar("V")


def with_earlier(earlier: LapChanges | None, parts: Iterable[Iterable[Entry]]) -> list[Entry]:
    """The changes of this lap over those of the ones before it, in order of keys."""
    changed: dict[bytes, bytes | None] = dict(earlier.entries) if earlier is not None else {}
    for part in parts:
        changed.update(part)
    return sorted(changed.items())


def passed_on(mine: Mapping[int, V], trailer: Trailer | None, of: str, channels: Iterable[int]) -> dict[int, V]:
    """What a trailer says of channels: of those out of the stage, and, if there is another lap, of those into it."""
    found = dict(mine)
    if trailer is not None:
        known: Mapping[int, Any] = getattr(trailer, of)
        found.update({channel: known[channel] for channel in channels if channel in known})
    return found


def in_order_of_laps(reports: Iterable[TaskReport]) -> list[TaskReport]:
    return sorted(reports, key=lambda report: (report.stage, report.lap, report.partition))
