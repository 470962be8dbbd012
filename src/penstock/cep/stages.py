"""The steps of a pattern, as values: what SQL and Python both build, and the compiler takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from penstock.cep.conditions import Condition
from penstock.ids import Milliseconds


class Link(Enum):
    """How an event follows the one before it in a match."""

    NEXT = "next"
    FOLLOWED_BY = "followed_by"
    FOLLOWED_BY_ANY = "followed_by_any"
    NOT_NEXT = "not_next"
    NOT_FOLLOWED_BY = "not_followed_by"

    @property
    def negative(self) -> bool:
        return self in (Link.NOT_NEXT, Link.NOT_FOLLOWED_BY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step: `minimum` to `maximum` events (None: any number) that fulfil `where`.

    `link`: how the first of them follows; `inner`: how the others do. `within_ms`: since the event before, at most (exclusive).
    `loop_within_ms`: the same for each event that is required.
    """

    name: str
    link: Link
    where: Condition | None = None
    until: Condition | None = None
    minimum: int = 1
    maximum: int | None = 1
    repeated: bool = False
    optional: bool = False
    greedy: bool = False
    inner: Link = Link.FOLLOWED_BY
    within_ms: Milliseconds | None = None
    loop_within_ms: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Stage):
    """A pattern as a step of another."""

    stages: tuple[Stage, ...]


def simple_stages(stages: tuple[Stage, ...]) -> Iterator[Stage]:
    """All stages that take events or forbid them, those of groups included, in order."""
    for stage in stages:
        if isinstance(stage, Group):
            yield from simple_stages(stage.stages)
        else:
            yield stage
