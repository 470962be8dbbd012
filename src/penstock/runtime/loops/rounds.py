"""How often a record has been through a loop.

Laws:
- The rounds of a record are those of the record it was made from. Operators do not carry them: what a step emits while it takes a
  batch was made of that batch, so `Rounds` says whose turn it is, and frames within a loop carry the number across exchanges.
- What a timer or a window emits was made of no record in particular: it begins anew, at 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.ids import StepId


class Rounds:
    """Of the batch that a task is taking: which loop it is in, and how often its records have been through that."""

    __slots__ = ("done", "loop")

    def __init__(self) -> None:
        self.loop: StepId | None = None
        self.done = 0

    def of(self, loop: StepId | None) -> int:
        """Rounds in this loop; 0 for what comes from outside."""
        return self.done if loop is not None and loop == self.loop else 0

    @contextmanager
    def turn(self, loop: StepId | None, done: int) -> Iterator[None]:
        """Until this is left, what operators take has been through the loop so often."""
        before = self.loop, self.done
        self.loop, self.done = loop, done
        try:
            yield
        finally:
            self.loop, self.done = before
