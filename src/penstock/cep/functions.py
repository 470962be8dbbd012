"""What a person implements to take matches: a function of a match, or a `PatternFunction`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.contexts import ProcessContext, RuntimeContext
from penstock.functions import Call, Function, OutputTag, call_of, life_cycle, method_call

T = TypeVar("T")
U = TypeVar("U")

Match = dict[str, list[T]]
"""By stage, its events in order. A stage that took none is left out."""


class PatternContext(ProcessContext):
    """The context of a match: its key, its time, side outputs; with rules, whose match it is."""

    __slots__ = ("key", "rule", "rule_version")

    def __init__(self) -> None:
        super().__init__()
        self.key: Any = None
        """The key of the events; None without one."""
        self.rule: str | None = None
        """The id of the rule that has matched; None for a pattern of the program."""
        self.rule_version: int | None = None


@dataclass(frozen=True, slots=True)
class RuleMatch(Generic[T]):
    """A match of a rule: whose it is, and its events by stage."""

    rule: str
    version: int
    key: Any
    events: Match[T]


class PatternFunction(Function, Generic[T, U]):
    """Sees each match, and each partial match whose time is over.

    >>> class Alerts(PatternFunction):
    ...     def process_match(self, match, ctx):
    ...         yield ctx.key, len(match["failed"])
    ...     def process_timed_out(self, match, ctx):
    ...         ctx.output(OutputTag("unfinished"), match)
    """

    def process_match(self, match: Match[T], ctx: PatternContext) -> Iterable[U] | None:
        raise NotImplementedError

    def process_timed_out(self, match: Match[T], ctx: PatternContext) -> None:
        """A partial match that was not complete in time: what there is of it. Its results go to side outputs."""


class PatternBody(Function):
    """What is done with matches: `select` a record of each, `flat_select` any number, or `process` them."""

    def __init__(
        self, kind: str, function: Any, timed_out: Any = None, timed_out_tag: str | None = None, *, of_rules: bool = False
    ) -> None:
        self.kind = kind
        self.function = function
        self.timed_out = timed_out
        self.timed_out_tag = timed_out_tag
        self.of_rules = of_rules
        self.automata: dict[tuple[str, int], Any] = {}
        """Of rules, by id and version: kept as long as the function is."""

    @property
    def wants_timed_out(self) -> bool:
        if self.kind == "process":
            return type(self.function).process_timed_out is not PatternFunction.process_timed_out
        return self.timed_out_tag is not None

    def calls(self) -> tuple[Call, ...]:
        """How the person's functions will be called."""
        if self.kind == "process":
            return (
                method_call(self.function, "process_match", "match", "ctx", several=True),
                method_call(self.function, "process_timed_out", "match", "ctx", optional=True),
                *life_cycle(self.function),
            )
        found = (call_of(self.function, self.kind, "match", several=self.kind == "flat_select"),)
        if self.timed_out is None:
            return found
        return *found, call_of(self.timed_out, "timed_out", "match", several=self.kind == "flat_select")

    def open(self, context: RuntimeContext) -> None:
        for part in (self.function, self.timed_out):
            if isinstance(part, Function):
                part.open(context)

    def close(self) -> None:
        for part in (self.function, self.timed_out):
            if isinstance(part, Function):
                part.close()

    def of_match(self, match: Match[Any], ctx: PatternContext) -> Any:
        """The records that a match makes, or None."""
        if self.kind == "process":
            return self.function.process_match(match, ctx)
        given = self._named(match, ctx)
        return [self.function(given)] if self.kind == "select" else self.function(given)

    def of_timed_out(self, match: Match[Any], ctx: PatternContext) -> None:
        if self.kind == "process":
            self.function.process_timed_out(match, ctx)
            return
        tag: OutputTag[Any] = OutputTag(str(self.timed_out_tag))
        given = self._named(match, ctx)
        made = given if self.timed_out is None else self.timed_out(given)
        several = self.kind == "flat_select" and self.timed_out is not None
        for value in (made or ()) if several else (made,):
            ctx.output(tag, value)

    def _named(self, match: Match[Any], ctx: PatternContext) -> Any:
        """With rules a match says whose it is."""
        if not self.of_rules:
            return match
        assert ctx.rule is not None
        assert ctx.rule_version is not None
        return RuleMatch(ctx.rule, ctx.rule_version, ctx.key, match)
