"""What becomes of other matches when one is complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SkipKind = Literal["no_skip", "to_next", "past_last_event", "to_first", "to_last"]


@dataclass(frozen=True, slots=True)
class SkipStrategy:
    """Which matches, complete or partial, are dropped with each match that is emitted.

    >>> SkipStrategy.to_first("b").describe()
    'to_first(b)'
    """

    kind: SkipKind = "no_skip"
    stage: str | None = None
    fails_on_miss: bool = False

    @classmethod
    def no_skip(cls) -> SkipStrategy:
        """Every match is emitted."""
        return cls("no_skip")

    @classmethod
    def to_next(cls) -> SkipStrategy:
        """No other match that begins with the same event."""
        return cls("to_next")

    @classmethod
    def past_last_event(cls) -> SkipStrategy:
        """No other match that begins before the match is over."""
        return cls("past_last_event")

    @classmethod
    def to_first(cls, stage: str) -> SkipStrategy:
        """No other match that begins before the first event of this stage."""
        return cls("to_first", stage)

    @classmethod
    def to_last(cls, stage: str) -> SkipStrategy:
        """No other match that begins before the last event of this stage."""
        return cls("to_last", stage)

    def fail_on_miss(self) -> SkipStrategy:
        """A match without an event of the stage, or one whose first event that is, fails the job (or is set aside)."""
        return SkipStrategy(self.kind, self.stage, fails_on_miss=True)

    @property
    def skips(self) -> bool:
        return self.kind != "no_skip"

    def describe(self) -> str:
        return self.kind if self.stage is None else f"{self.kind}({self.stage})"
