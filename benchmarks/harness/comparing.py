"""Two lists of measurements of the same thing, before a change and after it: is there a difference?

The median of each side counts. The spread of a side is half of the range of its runs. A difference that is not larger than the
spread of the wider side is none.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Better = Literal["more", "less"]
TOLERATED = 0.05
"""How much worse it may be."""


@dataclass(frozen=True, slots=True)
class Comparison:
    before: float
    after: float
    spread: float
    """As a share of the median."""
    better: Better

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def change(self) -> float:
        """How much better, as a share of before: positive if it is, in the direction that counts."""
        return self.ratio - 1 if self.better == "more" else 1 - self.ratio

    @property
    def differs(self) -> bool:
        return abs(self.ratio - 1) > self.spread

    @property
    def too_much_worse(self) -> bool:
        return self.differs and -self.change > TOLERATED

    @property
    def verdict(self) -> str:
        if not self.differs:
            return "same within the spread"
        return f"{abs(self.change):.1%} {'better' if self.change > 0 else 'worse'}"


def compare(before: Sequence[float], after: Sequence[float], better: Better) -> Comparison:
    sides = [(statistics.median(runs), max(runs) - min(runs)) for runs in (before, after)]
    return Comparison(sides[0][0], sides[1][0], max(size / 2 / median for median, size in sides), better)


def in_turns(pairs: int) -> list[tuple[str, str]]:
    """A B, B A, A B, …: what changes slowly in the machine's favour or disfavour meets both alike."""
    return [("before", "after") if number % 2 == 0 else ("after", "before") for number in range(pairs)]
