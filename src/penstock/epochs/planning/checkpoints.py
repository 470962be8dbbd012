"""When epochs become durable.

With a checkpoint interval the epochs between two checkpoints are kept by the workers only, as layers; the epoch at a checkpoint
flushes them with its own changes, and all are committed together. Without one every epoch is a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.epochs.committing.pipeline import RanEpoch
from penstock.ids import Milliseconds
from penstock.runtime.messages import DeltaPlace

KEPT_UP_TO = 64 * 1024 * 1024
"""Bytes of layers in a partition from which on the next epoch is a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """What becomes of an epoch's changes."""

    deltas: DeltaPlace
    flush: bool = False
    durable: bool = True


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """`ahead`: do epochs run ahead of their commit?"""

    interval_ms: Milliseconds
    ahead: bool
    last_ms: Milliseconds = 0
    wanted: bool = False
    """The next epoch is to be a checkpoint, whatever the time."""

    def durability(self, now: Milliseconds, waiting: list[RanEpoch], *, final: bool) -> Durability:
        deltas: DeltaPlace = "reported" if self.ahead else "written"
        if not self.interval_ms:
            return Durability(deltas=deltas)
        if final or self.wanted or now >= self.last_ms + self.interval_ms or _kept(waiting) > KEPT_UP_TO:
            return Durability(deltas=deltas, flush=True)
        return Durability(deltas="kept", durable=False)

    def due_ms(self, waiting: list[RanEpoch]) -> Milliseconds | None:
        """When the epochs that wait for a checkpoint are to have one; None if there are none."""
        return self.last_ms + self.interval_ms if waiting and not waiting[-1].durable else None

    def made(self, now: Milliseconds) -> None:
        self.last_ms, self.wanted = now, False


def _kept(waiting: list[RanEpoch]) -> int:
    """The bytes of layers in the partition with most of them."""
    sizes: dict[tuple[int, int], int] = {}
    for ran in waiting:
        for place, ref in ran.files.items():
            sizes[place] = sizes.get(place, 0) + ref.size
    return max(sizes.values(), default=0)
