"""lookup_join: records are joined with what another system has for their keys.

Law: in a batch a key is asked for once, and never while a call is in flight that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.config import LookupCache
from penstock.contexts import RuntimeContext
from penstock.errors import ReturnedValueError
from penstock.functions import Call, call_of, function_location, life_cycle
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.runtime.awaited.asking import PendingBatch, Question
from penstock.runtime.awaited.caller import AsyncCaller
from penstock.runtime.awaited.lookup_cache import ABSENT, UNKNOWN, KeptAnswers
from penstock.runtime.awaited.operator import AwaitedOperator, time_of
from penstock.runtime.awaited.terms import CallTerms
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.timing.durations import to_ms

How = Literal["inner", "left"]
"""Which records go on: those with a match; all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin(Definition):
    """Joins by a function from a list of keys to a mapping of those there are. `selector`: a field, several, or a function."""

    selector: Any
    body: Any
    how: How
    terms: CallTerms
    cache: LookupCache | None = None
    join: Callable[[Any, Any], Any] | None = None
    asks_outside: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "lookup_join"

    @property
    def method(self) -> str:
        """What the function is called by, if it is a class."""
        return "map" if self.terms.threads else "async_invoke"

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        calls = [call_of(self.body, self.method, "keys", awaited=None if self.terms.threads else True)]
        if callable(self.selector):
            calls.append(call_of(self.selector, "key", "value"))
        if self.join is not None:
            calls.append(call_of(self.join, "join", "value", "found"))
        return *calls, *life_cycle(self.body, awaited=True)

    def describe(self) -> dict[str, str]:
        fields = [self.selector] if isinstance(self.selector, str | int) else self.selector
        key = function_location(fields) if callable(fields) else ", ".join(map(str, fields))
        cache = "none"
        if self.cache is not None:
            ttl = "" if self.cache.ttl is None else f" for {to_ms(self.cache.ttl)} ms"
            cache = f"{self.cache.size} keys in each partition{ttl}"
        return {"join": f"{self.how}, by {key}", "calls": self.terms.describe(), "cache": cache}

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return LookupJoinOperator(step, services, self)


class LookupCaller(AsyncCaller):
    """A loader, with what is kept of its answers."""

    def __init__(self, definition: LookupJoin, *, in_place: bool) -> None:
        super().__init__(definition.body, definition.method, definition.terms, in_place=in_place)
        self._definition = definition
        self.kept: KeptAnswers | None = None

    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        if self._definition.cache is not None:
            self.kept = KeptAnswers(self._definition.cache)


Waiting = list[tuple[PendingBatch, list[int]]]
"""The rows that wait for a key."""


class LookupJoinOperator(AwaitedOperator):
    caller: LookupCaller

    def __init__(self, step: StepId, services: Services, definition: LookupJoin) -> None:
        super().__init__(step, services, lambda in_place: LookupCaller(definition, in_place=in_place), definition.errors)
        self.maker = self._join = definition.join
        self._selector = definition.selector
        self._key_of = key_getter(definition.selector)
        self._inner = definition.how == "inner"
        self._loading: dict[Hashable, Waiting] = {}
        self._rows_of: dict[Hashable, list[int]] = {}

    # --- questions ---------------------------------------------------------------------------------------------------------

    def prepared(self, pending: PendingBatch) -> None:
        """Which rows are of which key. What has no key has no match."""
        rows_of: dict[Hashable, list[int]] = {}
        for row, value in enumerate(pending.values):
            try:
                key = self._key_of(value)
                if key is None or (type(key) is tuple and None in key):
                    pending.answer(row, ABSENT)
                else:
                    rows_of.setdefault(key, []).append(row)
            except Exception as error:
                if self.errors == "fail":
                    raise self.user_error(error, self._selector, value, doing="the key") from error
                pending.refuse(row, error, self._selector)
        self._rows_of = rows_of

    def questions(self, pending: PendingBatch) -> Iterator[Question]:
        kept, wanted, hits = self.caller.kept, [], 0
        for key, rows in self._rows_of.items():
            found = UNKNOWN if kept is None else kept.find(key)
            if found is not UNKNOWN:
                hits += len(rows)
                for row in rows:
                    pending.answer(row, found)
            elif key in self._loading:
                self._loading[key].append((pending, rows))
            else:
                self._loading[key] = [(pending, rows)]
                wanted.append(key)
        if kept is not None:
            self.caller.count("cache-hits", hits)
            self.caller.count("cache-misses", sum(map(len, self._rows_of.values())) - hits)
            self.caller.count("cache-evictions", kept.take_evicted())
        size = self.caller.terms.batch or 1
        for start in range(0, len(wanted), size):
            yield SomeKeys(wanted[start : start + size], self._loading, self)

    # --- answers -----------------------------------------------------------------------------------------------------------

    def made(self, record: Any, answer: Any) -> list[Any]:
        if answer is ABSENT:
            if self._inner:
                return []
            answer = None
        return [(record, answer) if self._join is None else self._join(record, answer)]


class SomeKeys:
    """A call for some keys."""

    __slots__ = ("_loading", "_operator", "argument")

    def __init__(self, keys: list[Hashable], loading: dict[Hashable, Waiting], operator: LookupJoinOperator) -> None:
        self.argument = keys
        self._loading = loading
        self._operator = operator

    def answer(self, answer: Any) -> None:
        if not isinstance(answer, Mapping):
            raise ReturnedValueError(
                f"step {self._operator.step!r}: the function returned a {type(answer).__qualname__}, where a mapping is expected",
                detail=f"function: {function_location(self._operator.caller.function)}\nreturned: {answer!r:.300}",
                hint="it gets a list of keys, and returns a dict of what there is for them; keys without a match are left out",
            )
        kept = self._operator.caller.kept
        for key in self.argument:
            found = answer.get(key)
            found = ABSENT if found is None else found
            if kept is not None:
                kept.keep(key, found)
            for pending, rows in self._loading.pop(key):
                for row in rows:
                    pending.answer(row, found)

    def refuse(self, error: Exception) -> None:
        for key in self.argument:
            for pending, rows in self._loading.pop(key):
                for row in rows:
                    pending.refuse(row, error)

    def record(self) -> tuple[Any, int]:
        pending, rows = self._loading[self.argument[0]][0]
        return pending.values[rows[0]], time_of(pending.batch, rows[0])


def key_getter(selector: Any) -> Callable[[Any], Any]:
    """The key of a record: a field, several as a tuple, or what a function says."""
    if callable(selector):
        return selector  # type: ignore[no-any-return]
    if isinstance(selector, tuple):
        parts = [key_getter(field) for field in selector]
        return lambda record: tuple(part(record) for part in parts)

    def field(record: Any) -> Any:
        return record[selector] if isinstance(selector, int) or isinstance(record, dict) else getattr(record, selector)

    return field
