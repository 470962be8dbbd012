"""Loops are a reason for an epoch: as long as something is in them, and until time has got through them.

Law: time ends in an epoch that begins with empty loops and reads nothing. What comes back after that, from timers at the end of
time, goes on turning; the job is finished once nothing does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.ids import MAX_WATERMARK
from penstock.jobs.manifest import Manifest, SourceState
from penstock.runtime.job import CompiledJob

MOST_LAPS = 16
"""A lap costs a stage, also one in which nothing is left to do."""


@dataclass(frozen=True, slots=True)
class LoopsNow:
    """The loops of a job between two epochs. `turn`: something is in them, or may be; `wait`: time has not got through them."""

    any: bool
    turn: bool
    wait: bool
    ended: bool
    """Time has ended."""

    def final(self, before: Iterable[SourceState], after: Iterable[SourceState], *, drain: bool) -> bool:
        """Does time end in an epoch with these sources?"""
        if not all(state.ended for state in after):
            return False
        reads = not drain and not all(state.ended for state in before)
        return not self.any or self.ended or not (reads or self.turn)


def loops_now(job: CompiledJob, head: Manifest) -> LoopsNow:
    known = [head.loops.get(loop.head) for loop in job.loops]
    return LoopsNow(
        any=bool(job.loops),
        turn=any(loop is None or loop.records > 0 for loop in known),
        wait=any(loop is not None and loop.waits for loop in known),
        ended=bool(job.loops) and all(head.watermarks.get(loop.head) == MAX_WATERMARK for loop in job.loops),
    )


def laps_after(head: Manifest) -> int:
    """How many laps an epoch has that begins with something in a loop: the longer that lasts, the more."""
    return min(MOST_LAPS, 2 * head.laps)


def states_before(steps: Iterable[str], sources: Mapping[str, SourceState]) -> list[SourceState]:
    return [sources.get(step, SourceState()) for step in steps]
