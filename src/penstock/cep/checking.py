"""Which patterns are legal. What is not is refused with what to write instead."""

from __future__ import annotations

from penstock.cep.skipping import SkipStrategy
from penstock.cep.stages import Group, Link, Stage, simple_stages
from penstock.errors import PlanError
from penstock.ids import Milliseconds


class PatternError(PlanError):
    """A pattern that cannot be."""


def refuse(what: str, hint: str, detail: str = "") -> PatternError:
    return PatternError(what, detail=detail, hint=hint)


def check_new(stages: tuple[Stage, ...], new: Stage) -> None:
    """A stage that is added behind these."""
    taken = {stage.name for stage in simple_stages(stages)}
    for stage in simple_stages((new,)):
        if stage.name in taken:
            raise refuse(f"there are two stages named {stage.name!r}", "give each stage a name of its own")
        taken.add(stage.name)
    before = stages[-1]
    if new.link.negative and before.optional:
        raise refuse(
            f"{new.link.value} {new.name!r} comes right after the optional stage {before.name!r}",
            "write two patterns, one with and one without the optional stage",
        )
    if new.link is Link.NOT_NEXT and before.link is Link.NOT_FOLLOWED_BY:
        raise refuse(
            f"not_next {new.name!r} comes right after not_followed_by {before.name!r}",
            "put a stage that takes an event between them",
        )


def check_pattern(stages: tuple[Stage, ...], skip: SkipStrategy, within_ms: Milliseconds | None) -> None:
    """A pattern as a whole."""
    _check_group(stages)
    last = stages[-1]
    if last.link is Link.NOT_FOLLOWED_BY and within_ms is None and last.within_ms is None:
        raise refuse(
            f"not_followed_by {last.name!r} ends the pattern, and would have to be waited for for ever",
            "add within(...): the match is complete when the time is over",
        )
    _check_end(stages)
    names = {stage.name for stage in simple_stages(stages) if not stage.link.negative}
    if skip.stage is not None and skip.stage not in names:
        raise refuse(
            f"skip {skip.describe()}: the pattern has no stage {skip.stage!r} that takes events",
            f"name one of {', '.join(map(repr, sorted(names)))}",
        )
    for stage in simple_stages(stages):
        for ms in (stage.within_ms, stage.loop_within_ms):
            if ms is not None and within_ms is not None and ms > within_ms:
                raise refuse(
                    f"stage {stage.name!r} may come {ms} ms after the event before it; the whole match has {within_ms} ms",
                    "make the time between events the shorter one",
                )


def _check_end(stages: tuple[Stage, ...]) -> None:
    """Where a match may be complete at once, no event is waited for that could be the next one."""
    for before, stage in zip(reversed(stages[:-1]), reversed(stages[1:]), strict=True):
        if not stage.optional:
            return
        if before.link is Link.NOT_NEXT:
            raise refuse(
                f"not_next {before.name!r} is followed by optional stages only",
                "write two patterns: one that ends with what is forbidden, one in which the last stage is not optional",
            )


def _check_group(stages: tuple[Stage, ...], *, inside: bool = False) -> None:
    for stage in stages:
        if isinstance(stage, Group):
            if stage.loop_within_ms is not None or stage.within_ms is not None:
                raise refuse(
                    f"{stage.name}: time between events is said of single stages",
                    'give the stages in the group within(..., between="previous_and_current")',
                )
            if stage.maximum is None and all(inner.optional or inner.link.negative for inner in stage.stages):
                raise refuse(
                    f"{stage.name} is a loop of which all stages are optional", "make the group optional, not all its stages"
                )
            _check_group(stage.stages, inside=True)
    if inside and stages[-1].link is Link.NOT_FOLLOWED_BY:
        raise refuse(
            f"not_followed_by {stages[-1].name!r} ends a group",
            "put it behind the group, or another stage behind it in the group",
        )
