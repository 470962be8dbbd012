"""What joins are told: frozen values that the plan can inspect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from penstock.errors import PlanError
from penstock.ids import Milliseconds

JoinKind = Literal["inner", "left", "right", "full"]
"""Which rows without a partner are results too: none, those of the left side, of the right one, of both."""

Side = Literal[0, 1]
LEFT: Side = 0
RIGHT: Side = 1


@runtime_checkable
class DescribesItself(Protocol):
    """A definition of a join, for explain."""

    is_join: bool

    def describe(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSpec:
    """`left.time + lower <= right.time <= left.time + upper`; bounds are inclusive here.

    >>> IntervalSpec(lower_ms=-5, upper_ms=3).keep_ms(LEFT), IntervalSpec(lower_ms=-5, upper_ms=3).keep_ms(RIGHT)
    (3, 5)
    """

    lower_ms: Milliseconds
    upper_ms: Milliseconds
    how: JoinKind = "inner"
    late: tuple[str | None, str | None] = (None, None)
    """The side output of late records, by side."""

    def outer(self, side: Side) -> bool:
        """Are rows of this side results too if they have no partner?"""
        return outer(self.how, side)

    def keep_ms(self, side: Side) -> Milliseconds:
        """A record is kept until the watermark reaches its timestamp and this."""
        return max(0, self.upper_ms if side == LEFT else -self.lower_ms)

    def bounds(self, side: Side) -> tuple[Milliseconds, Milliseconds]:
        """For a record of this side: where partners are, relative to its timestamp."""
        return (self.lower_ms, self.upper_ms) if side == LEFT else (-self.upper_ms, -self.lower_ms)

    def describe(self) -> dict[str, str]:
        """For explain."""
        shown = {"join": f"{self.how}, right.time - left.time from {self.lower_ms} to {self.upper_ms} ms"}
        where = [
            f"{name}: " + ("dropped, and counted" if tag is None else f"to the side output {tag!r}, and counted")
            for name, tag in zip(("left", "right"), self.late, strict=True)
        ]
        return {**shown, "late records": "; ".join(where)}


def outer(how: JoinKind, side: Side) -> bool:
    return how == "full" or how == ("left" if side == LEFT else "right")


def outer_as(before: JoinKind, now: JoinKind) -> JoinKind:
    """The kind of a join that was of one kind, and is told to be of another; `PlanError` if it cannot be both."""
    if before not in ("inner", now):
        raise PlanError(
            f"a join cannot be both {before} and {now}", hint="for rows of both sides: full(), and neither of the others"
        )
    return now


def inclusive(
    lower_ms: Milliseconds, upper_ms: Milliseconds, *, lower_exclusive: bool, upper_exclusive: bool
) -> tuple[Milliseconds, Milliseconds]:
    """Bounds in whole milliseconds, both inclusive.

    >>> inclusive(-3, -1, lower_exclusive=True, upper_exclusive=False)
    (-2, -1)
    """
    if lower_ms > upper_ms:
        raise PlanError(
            f"between({lower_ms} ms, {upper_ms} ms): the lower bound is above the upper one",
            hint="between(lower, upper) says how much later than the left record the right one may be; both may be negative",
        )
    return lower_ms + lower_exclusive, upper_ms - upper_exclusive
