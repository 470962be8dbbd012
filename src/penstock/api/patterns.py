"""Streams with a pattern: what is done with its matches is the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api.stream import DataStream
from penstock.cep.compiling import compile_pattern
from penstock.cep.functions import Match, PatternBody, PatternFunction, RuleMatch
from penstock.cep.pattern import Pattern
from penstock.cep.rules.step import RulesStep
from penstock.cep.step import KeyedPatterns, PatternStep, TimeDomain, WhenFull
from penstock.errors import PlanError
from penstock.functions import OutputTag
from penstock.plan.definition import ErrorPolicy

if TYPE_CHECKING:
    from penstock.api.connected import BroadcastStream
    from penstock.api.keyed import KeyedStream

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


class PatternStream(Generic[T]):
    """The matches of a pattern in a stream. A match is a dict: by stage, the list of its events.

    >>> from penstock import Pattern, StreamEnvironment, Watermarks, col
    >>> logins = StreamEnvironment(executor="inline").from_collection(
    ...     [{"user": "ann", "ok": ok, "at": at} for at, ok in enumerate([False, False, True])],
    ...     watermarks=Watermarks.monotonous(timestamp="at"))
    >>> guessed = Pattern.begin("failed").where(~col("ok")).times(2).consecutive().next("in").where(col("ok"))
    >>> logins.key_by("user").pattern(guessed).select(lambda match: match["in"][0]["user"]).execute_and_collect()
    ['ann']
    """

    def __init__(
        self, stream: KeyedStream[Any, T], step: Callable[..., KeyedPatterns], rules: BroadcastStream[Any] | None = None
    ) -> None:
        self._stream = stream
        self._step = step
        """Makes the definition, given what is done with matches."""
        self._rules = rules

    def select(
        self,
        function: Callable[[Match[T]], U],
        *,
        timed_out: OutputTag[Any] | None = None,
        timed_out_function: Callable[[Match[T]], Any] | None = None,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """A record for each match. Partial matches that time out go to the side output `timed_out`, as they are or as
        `timed_out_function` makes them."""
        return self._body("select", function, timed_out, timed_out_function, name, errors, previous_names)

    def flat_select(
        self,
        function: Callable[[Match[T]], Iterable[U]],
        *,
        timed_out: OutputTag[Any] | None = None,
        timed_out_function: Callable[[Match[T]], Iterable[Any]] | None = None,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """Any number of records for each match."""
        return self._body("flat_select", function, timed_out, timed_out_function, name, errors, previous_names)

    def process(
        self,
        function: PatternFunction[T, U],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """A function that sees each match with its context, and each partial match that times out."""
        if not isinstance(function, PatternFunction):
            raise PlanError(
                f"{function!r:.100} is not a PatternFunction",
                hint="give an instance of a class with process_match(self, match, ctx)",
            )
        return self._then(PatternBody("process", function), name, errors, previous_names)

    def _body(
        self, kind: str, function: Any, tag: OutputTag[Any] | None, timed_out: Any, name: str | None, errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:  # fmt: skip
        if not callable(function):
            raise PlanError(f"{kind}({function!r:.100}): this is not a function", hint="give a function of a match")
        if timed_out is not None and tag is None:
            raise PlanError("timed_out_function without timed_out", hint='say where its results go: timed_out=OutputTag("late")')
        body = PatternBody(kind, function, timed_out, None if tag is None else tag.name, of_rules=self._rules is not None)
        return self._then(body, name, errors, previous_names)

    def _then(self, body: PatternBody, name: str | None, errors: ErrorPolicy, previous_names: Sequence[str]) -> DataStream[Any]:
        stream, rules = self._stream, self._rules
        inputs = (stream._input(),) if rules is None else (stream._input(), rules._input())
        label = "pattern" if rules is None else "rules"
        definition = self._step(body=body, errors=errors)
        return DataStream(
            stream._env, stream._env._add(definition, *inputs, name=name, label=label, previous_names=previous_names)
        )


class RuleStream(PatternStream[T]):
    """The matches of rules in a stream: functions of `select` and `flat_select` get a `RuleMatch`."""

    if TYPE_CHECKING:

        def select(  # type: ignore[override]
            self, function: Callable[[RuleMatch[T]], U], **options: Any
        ) -> DataStream[U]: ...

        def flat_select(  # type: ignore[override]
            self, function: Callable[[RuleMatch[T]], Iterable[U]], **options: Any
        ) -> DataStream[U]: ...


def pattern_stream(stream: KeyedStream[Any, T], pattern: Pattern, **options: Any) -> PatternStream[T]:
    if not isinstance(pattern, Pattern):
        raise PlanError(f"pattern({pattern!r:.100})", hint='give a pattern: Pattern.begin("first").where(...)')
    return PatternStream(
        stream, partial(PatternStep, pattern=pattern, automaton=compile_pattern(pattern), **_given(stream, **options))
    )


def rule_stream(
    stream: KeyedStream[Any, T], rules: DataStream[Any], rejected: OutputTag[Any] | None, **options: Any
) -> RuleStream[T]:
    from penstock.api.connected import BroadcastStream

    if not isinstance(rules, DataStream):
        raise PlanError(f"patterns({rules!r:.100}): this is not a stream", hint="give a stream of rules")
    if rules._env is not stream._env:
        raise PlanError("rules of another environment", hint="read both sources in one environment")
    everywhere = rules if isinstance(rules, BroadcastStream) else rules.broadcast()
    tag = None if rejected is None else rejected.name
    return RuleStream(stream, partial(RulesStep, rejected=tag, **_given(stream, **options)), everywhere)


def _given(
    stream: KeyedStream[Any, Any],
    *,
    late: OutputTag[Any] | None,
    time: TimeDomain,
    ties: Callable[[Any], Any] | None,
    state_type: Any,
    max_partial_matches: int,
    when_full: WhenFull,
) -> dict[str, Any]:
    """What a step is told besides its pattern."""
    exchange = stream._exchange
    return {
        "key_type": exchange.key_type,
        "key_fields": exchange.key_fields,
        "event_type": state_type,
        "late": None if late is None else late.name,
        "time": time,
        "ties": ties,
        "max_partial_matches": max_partial_matches,
        "when_full": when_full,
    }
