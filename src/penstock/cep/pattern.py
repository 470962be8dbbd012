"""What a person writes: `Pattern.begin("small").where(col("amount") < 1).next("big")…`. A pattern is a value; each method makes a
new one. What is illegal is refused when it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from penstock.cep.checking import check_new, check_pattern, refuse
from penstock.cep.conditions import Both, Either, OfClass, condition_of
from penstock.cep.skipping import SkipStrategy
from penstock.cep.stages import Group, Link, Stage
from penstock.ids import Milliseconds
from penstock.plan.expressions.expression import Expression
from penstock.timing.durations import Duration, to_ms

Where = Expression | Callable[..., Any]
"""A condition: an expression over columns, a function of the event, or a function of the event and the match so far."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to look for in a stream: stages, one after another.

    >>> from penstock.expressions import col
    >>> fraud = (Pattern.begin("small").where(col("amount") < 1)
    ...          .next("big").where(lambda event, match: event["amount"] > 10 * match.events("small")[0]["amount"])
    ...          .within(seconds=60))
    >>> print(fraud.describe())
    begin small, next big, within 60000 ms, skip no_skip
    """

    stages: tuple[Stage, ...]
    skip: SkipStrategy = field(default_factory=SkipStrategy)
    within_ms: Milliseconds | None = None

    @classmethod
    def begin(cls, first: str | Pattern, skip: SkipStrategy | None = None) -> Pattern:
        """The first stage, by name; or a group of stages."""
        return cls((_stage(first, Link.NEXT),), SkipStrategy() if skip is None else skip)

    # --- what follows ------------------------------------------------------------------------------------------------------

    def next(self, stage: str | Pattern) -> Pattern:
        """The very next event."""
        return self._then(stage, Link.NEXT)

    def followed_by(self, stage: str | Pattern) -> Pattern:
        """The next event that fulfils the condition, whatever is between."""
        return self._then(stage, Link.FOLLOWED_BY)

    def followed_by_any(self, stage: str | Pattern) -> Pattern:
        """Any later event that fulfils the condition: a match for each."""
        return self._then(stage, Link.FOLLOWED_BY_ANY)

    def not_next(self, stage: str) -> Pattern:
        """The very next event does not fulfil the condition."""
        return self._then(stage, Link.NOT_NEXT)

    def not_followed_by(self, stage: str) -> Pattern:
        """No event fulfils the condition until the next stage (or, at the end of a pattern, until its time is over)."""
        return self._then(stage, Link.NOT_FOLLOWED_BY)

    # --- conditions --------------------------------------------------------------------------------------------------------

    def where(self, condition: Where) -> Pattern:
        """What an event of this stage fulfils, besides what was said before."""
        return self._narrowed(condition_of(condition, method="where"), "where", Both)

    def or_where(self, condition: Where) -> Pattern:
        """What is enough instead of what was said before."""
        return self._narrowed(condition_of(condition, method="or_where"), "or_where", Either)

    def subtype(self, cls: type) -> Pattern:
        """Events of this stage are instances of the class."""
        if not isinstance(cls, type):
            raise refuse(f"subtype({cls!r:.100}): this is no class", "give the class itself: subtype(Login)")
        return self._narrowed(OfClass(cls), "subtype", Both)

    def until(self, condition: Where) -> Pattern:
        """The loop ends before an event that fulfils this."""
        last = self._last
        if last.maximum is not None:
            raise refuse(f"until: stage {last.name!r} is not a loop", "put one_or_more() or times_or_more(n) before until(...)")
        if last.until is not None:
            raise refuse(f"until: stage {last.name!r} has a condition already", "give one: until(a | b)")
        return self._with(until=condition_of(condition, method="until"))

    # --- how many ----------------------------------------------------------------------------------------------------------

    def times(self, least: int, most: int | None = None, *, within: Duration | None = None) -> Pattern:
        """Just so many events, or from so many to so many. `within`: less time than this since the event before."""
        most = least if most is None else most
        if type(least) is not int or type(most) is not int or least < 0 or most < max(least, 1):
            raise refuse(f"times({least!r}, {most!r})", "give numbers: times(3), or times(2, 4) with the smaller one first")
        self._check_repeatable("times")
        return self._with(
            minimum=max(least, 1), maximum=most, repeated=True, optional=least == 0 or self._last.optional,
            loop_within_ms=_ms(within),
        )  # fmt: skip

    def times_or_more(self, least: int, *, within: Duration | None = None) -> Pattern:
        """So many events or more."""
        if type(least) is not int or least < 1:
            raise refuse(f"times_or_more({least!r})", "give a number from 1 on")
        self._check_repeatable("times_or_more")
        return self._with(minimum=least, maximum=None, repeated=True, loop_within_ms=_ms(within))

    def one_or_more(self, *, within: Duration | None = None) -> Pattern:
        """One event or more."""
        self._check_repeatable("one_or_more")
        return self._with(minimum=1, maximum=None, repeated=True, loop_within_ms=_ms(within))

    def optional(self) -> Pattern:
        """The stage may be left out."""
        last = self._last
        if last.link.negative:
            raise refuse(
                f"optional: stage {last.name!r} forbids events", "leave optional() out: what is forbidden need not occur anyway"
            )
        if last.optional:
            raise refuse(f"optional: stage {last.name!r} is optional already", "leave the second optional() out")
        if len(self.stages) > 1 and self.stages[-2].greedy:
            raise refuse(
                f"optional: stage {last.name!r} follows the greedy stage {self.stages[-2].name!r}",
                "drop greedy(), or write two patterns, one with and one without the optional stage",
            )
        return self._with(optional=True)

    def greedy(self) -> Pattern:
        """The loop takes all it can: what it could take does not end it."""
        last = self._last
        if isinstance(last, Group):
            raise refuse("greedy: a group cannot be greedy", "make the stages in the group greedy")
        if last.link.negative or not last.repeated:
            raise refuse(f"greedy: stage {last.name!r} takes one event", "put one_or_more() or times(...) before greedy()")
        if last.inner is Link.FOLLOWED_BY_ANY:
            raise refuse(
                f"greedy: stage {last.name!r} allows combinations",
                "drop allow_combinations() or greedy(): they contradict each other",
            )
        return self._with(greedy=True)

    def consecutive(self) -> Pattern:
        """The events of the loop come one right after another."""
        return self._inside("consecutive", Link.NEXT)

    def allow_combinations(self) -> Pattern:
        """The loop may leave out events that it could take: a match for each combination."""
        if self._last.greedy:
            raise refuse("allow_combinations: the stage is greedy", "drop allow_combinations() or greedy()")
        return self._inside("allow_combinations", Link.FOLLOWED_BY_ANY)

    # --- time --------------------------------------------------------------------------------------------------------------

    def within(
        self,
        duration: Duration | None = None,
        between: Literal["first_and_last", "previous_and_current"] = "first_and_last",
        *,
        seconds: float | None = None,
        minutes: float | None = None,
    ) -> Pattern:
        """Less time than this from the first event to the last; or from the event before to that of the stage written last."""
        given = [d for d in (duration, seconds, None if minutes is None else minutes * 60) if d is not None]
        if len(given) != 1:
            raise refuse("within: one duration is needed", "give within(timedelta(minutes=10)), seconds= or minutes=")
        ms = to_ms(given[0], what="within")
        if ms <= 0:
            raise refuse(f"within({given[0]!r})", "give a duration above zero")
        if between == "previous_and_current":
            if len(self.stages) == 1 and not self._last.repeated:
                raise refuse("within: the first stage has no event before it", "leave between= out, or say it of a later stage")
            return self._with(within_ms=ms)
        if between != "first_and_last":
            raise refuse(f"within(between={between!r})", 'choose "first_and_last" or "previous_and_current"')
        return replace(self, within_ms=ms if self.within_ms is None else min(ms, self.within_ms))

    def skipping(self, skip: SkipStrategy) -> Pattern:
        """The same pattern with another skip strategy."""
        return replace(self, skip=skip)

    # --- as a whole --------------------------------------------------------------------------------------------------------

    def check(self) -> Pattern:
        """Itself, if it is complete and legal: done by every step that takes a pattern."""
        check_pattern(self.stages, self.skip, self.within_ms)
        return self

    def to_json(self) -> str:
        """As JSON, for rules. Conditions are expressions over columns."""
        from penstock.cep.rules.json_form import pattern_to_data

        return msgspec.json.encode(pattern_to_data(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Pattern:
        """The pattern that a JSON text gives. `PlanError` says what is wrong with it."""
        from penstock.cep.rules.change import decoded
        from penstock.cep.rules.json_form import pattern_from_data

        return pattern_from_data(decoded(text))

    def describe(self) -> str:
        parts = [
            f"{'begin' if not number else stage.link.value} {stage.name}{_many(stage)}"
            for number, stage in enumerate(self.stages)
        ]
        if self.within_ms is not None:
            parts.append(f"within {self.within_ms} ms")
        return ", ".join([*parts, f"skip {self.skip.describe()}"])

    @property
    def _last(self) -> Stage:
        return self.stages[-1]

    def _with(self, **changes: Any) -> Pattern:
        return replace(self, stages=(*self.stages[:-1], replace(self._last, **changes)))

    def _then(self, stage: str | Pattern, link: Link) -> Pattern:
        new = _stage(stage, link)
        check_new(self.stages, new)
        grouped = stage.within_ms if isinstance(stage, Pattern) else None
        within = min((ms for ms in (self.within_ms, grouped) if ms is not None), default=None)
        return replace(self, stages=(*self.stages, new), within_ms=within)

    def _narrowed(self, condition: Any, method: str, join: Any) -> Pattern:
        last = self._last
        if isinstance(last, Group):
            raise refuse(f"{method}: a group has no condition of its own", "give its stages conditions")
        return self._with(where=condition if last.where is None else join(last.where, condition))

    def _check_repeatable(self, method: str) -> None:
        last = self._last
        if last.link.negative:
            raise refuse(
                f"{method}: stage {last.name!r} forbids events", "one event that fulfils the condition is one too many anyway"
            )
        if last.repeated:
            raise refuse(
                f"{method}: stage {last.name!r} says already how often it occurs", "give one of times, times_or_more, one_or_more"
            )

    def _inside(self, method: str, link: Link) -> Pattern:
        last = self._last
        if not last.repeated:
            raise refuse(f"{method}: stage {last.name!r} takes one event", f"put one_or_more() or times(...) before {method}()")
        if last.inner is not Link.FOLLOWED_BY:
            raise refuse(
                f"{method}: stage {last.name!r} is {last.inner.value} inside already",
                "give one of consecutive, allow_combinations",
            )
        return self._with(inner=link)


def _ms(duration: Duration | None) -> Milliseconds | None:
    return None if duration is None else to_ms(duration, what="within")


def _stage(given: str | Pattern, link: Link) -> Stage:
    if isinstance(given, Pattern):
        if link.negative:
            raise refuse(
                "a group of stages cannot be forbidden", "forbid single events: not_next and not_followed_by take a name"
            )
        return Group(name=f"group({', '.join(stage.name for stage in given.stages)})", link=link, stages=given.stages)
    name: object = given
    if not isinstance(name, str) or not name:
        raise refuse(f"{given!r:.100} is no stage", 'give a name, as in followed_by("big"), or a pattern as a group')
    return Stage(name=given, link=link)


def _many(stage: Stage) -> str:
    text = ""
    if stage.repeated:
        text = f"{{{stage.minimum},{'' if stage.maximum is None else stage.maximum}}}"
        text += {Link.NEXT: " consecutive", Link.FOLLOWED_BY_ANY: " combinations"}.get(stage.inner, "")
    return text + (" greedy" if stage.greedy else "") + (" optional" if stage.optional else "")
