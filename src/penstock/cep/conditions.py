"""What an event must be to be taken: leaves (a column expression, a Python function, a class) joined by and, or, not.

Laws:
- A condition is evaluated from left to right and no further than needed: behind an `and` are only events that passed.
- One without a function of the match so far (`iterative`) depends on the event alone, and is evaluated once for each event.
- One of column expressions alone is evaluated for whole batches (`in_bulk`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.errors import PlanError
from penstock.functions import function_location
from penstock.plan.expressions.expression import Expression
from penstock.plan.expressions.nodes import Node
from penstock.plan.expressions.text import node_text


@dataclass(frozen=True, slots=True)
class OfColumns:
    """A column expression that is true."""

    node: Node

    def describe(self) -> str:
        return node_text(self.node)


@dataclass(frozen=True, slots=True)
class OfEvent:
    """A function of the event."""

    function: Callable[[Any], Any]

    def describe(self) -> str:
        return function_location(self.function)


@dataclass(frozen=True, slots=True)
class OfMatch:
    """A function of the event and of the match so far."""

    function: Callable[[Any, Any], Any]

    def describe(self) -> str:
        return function_location(self.function)


@dataclass(frozen=True, slots=True)
class OfClass:
    """An instance of a class."""

    cls: type

    def describe(self) -> str:
        return f"a {self.cls.__name__}"


@dataclass(frozen=True, slots=True)
class Soon:
    """The event comes less than so long after the one before it in the match."""

    within_ms: int

    def describe(self) -> str:
        return f"less than {self.within_ms} ms after the event before"


@dataclass(frozen=True, slots=True)
class Both:
    left: Condition
    right: Condition

    def describe(self) -> str:
        return f"({self.left.describe()} and {self.right.describe()})"


@dataclass(frozen=True, slots=True)
class Either:
    left: Condition
    right: Condition

    def describe(self) -> str:
        return f"({self.left.describe()} or {self.right.describe()})"


Condition = OfColumns | OfEvent | OfMatch | OfClass | Soon | Both | Either


def condition_of(given: Any, *, method: str) -> Condition:
    """What a person gave to `where` and the like."""
    if isinstance(given, Expression):
        return OfColumns(given.node)
    if not callable(given) or isinstance(given, type):
        raise PlanError(
            f"{method}({given!r:.100}): this is no condition",
            hint='give an expression such as col("amount") < 1, or a function: lambda event: event["amount"] < 1',
        )
    return OfMatch(given) if _takes_match(given) else OfEvent(given)


def _takes_match(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return False
    required = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(required) > 2:
        raise PlanError(
            f"a condition takes the event, or the event and the match so far, not {len(required)} arguments",
            detail=f"condition: {function_location(function)}",
            hint="write lambda event: ..., or lambda event, match: ...",
        )
    return len(required) == 2


def leaves(condition: Condition) -> Iterator[OfColumns | OfEvent | OfMatch | OfClass | Soon]:
    if isinstance(condition, Both | Either):
        yield from leaves(condition.left)
        yield from leaves(condition.right)
    else:
        yield condition


def is_iterative(condition: Condition) -> bool:
    """Does it depend on the match so far?"""
    return any(isinstance(leaf, OfMatch | Soon) for leaf in leaves(condition))


def in_bulk(condition: Condition) -> bool:
    return all(isinstance(leaf, OfColumns) for leaf in leaves(condition))


def why_not_in_bulk(condition: Condition) -> str:
    """For explain: what keeps a condition from being evaluated for whole batches."""
    for leaf in leaves(condition):
        if isinstance(leaf, OfMatch):
            return f"{leaf.describe()} looks at the match so far"
        if isinstance(leaf, OfEvent):
            return f"{leaf.describe()} is a Python function"
        if isinstance(leaf, OfClass):
            return f"{leaf.describe()} is asked of a Python object"
        if isinstance(leaf, Soon):
            return "it depends on the event before it in the match"
    return ""


def bulk_part(condition: Condition) -> Condition | None:
    """What can be evaluated in bulk, and must be true if the condition is: the conjuncts over columns."""
    if in_bulk(condition):
        return condition
    if not isinstance(condition, Both):
        return None
    left, right = bulk_part(condition.left), bulk_part(condition.right)
    return Both(left, right) if left is not None and right is not None else left if right is None else right
