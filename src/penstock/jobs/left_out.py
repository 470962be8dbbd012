"""What is not in a job's results, counted: input that was shed, late records, records that a function failed on.

Laws:
- Counts of this kind are totals of the job. They travel in the manifests: a restart of the driver does not forget them, and going
  back goes back to those of the earlier epoch.
- A number that is not known is not made up: it is an estimate and marked as one, or the pieces of input are counted instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.jobs.source_order import SourceOrder
from penstock.jobs.step_metrics import StepMetrics


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records that are not in the results. `estimated`: `shed` is an estimate; `pieces`: splits that were shed as well, and
    whose records were not counted. Late records and dead letters may have gone to an output of their own."""

    shed: int = 0
    estimated: bool = False
    pieces: int = 0
    late: int = 0
    skipped: int = 0
    dead_letters: int = 0

    def __bool__(self) -> bool:
        return self != LeftOut()

    def plus(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            shed=self.shed + other.shed,
            estimated=self.estimated or other.estimated,
            pieces=self.pieces + other.pieces,
            late=self.late + other.late,
            skipped=self.skipped + other.skipped,
            dead_letters=self.dead_letters + other.dead_letters,
        )

    def described(self) -> dict[str, str]:
        """What there is of it, for people.

        >>> LeftOut(shed=1200, estimated=True, late=3).described()
        {'shed': 'about 1,200', 'late': '3'}
        """
        found = {"shed": self.shed_text()} if self.shed or self.pieces else {}
        counts = {"late": self.late, "skipped": self.skipped, "dead letters": self.dead_letters}
        return found | {what: f"{count:,}" for what, count in counts.items() if count}

    def shed_text(self) -> str:
        """
        >>> LeftOut(pieces=2).shed_text()
        '2 pieces of input whose records were not counted'
        """
        records = [f"{'about ' * self.estimated}{self.shed:,}"] if self.shed or not self.pieces else []
        unknown = f"{self.pieces:,} piece{'s' * (self.pieces > 1)} of input whose records were not counted"
        return " and ".join([*records, *([unknown] if self.pieces else [])])

    def sentence(self) -> str:
        """
        >>> LeftOut(shed=1, late=2).sentence()
        'shed 1, late 2'
        """
        return ", ".join(f"{what} {count}" for what, count in self.described().items())


NOTHING = LeftOut()


def left_out_by(metrics: Mapping[str, StepMetrics]) -> LeftOut:
    """What the steps of an epoch left out."""
    return LeftOut(
        late=sum(m.counters.get("late", 0) for m in metrics.values()),
        skipped=sum(m.skipped for m in metrics.values()),
        dead_letters=sum(m.dead_letters for m in metrics.values()),
    )


def input_of(order: SourceOrder) -> LeftOut:
    """What an epoch was to read of a source, as input that is never read."""
    splits = [split for task in order.tasks for split in task]
    known = [split for split in splits if split.records is not None]
    return LeftOut(
        shed=sum(split.records or 0 for split in known),
        estimated=any(split.estimated for split in known),
        pieces=len(splits) - len(known),
    )


def together(parts: Iterable[LeftOut]) -> LeftOut:
    total = LeftOut()
    for part in parts:
        total = total.plus(part)
    return total
