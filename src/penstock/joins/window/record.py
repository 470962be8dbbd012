"""Both sides as one stream of records that say where they are from, in windows; a function sees each window's records by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.contexts import RuntimeContext
from penstock.functions import Call, Function, call_of, life_cycle
from penstock.joins.functions import JoinContext
from penstock.joins.interval.record import JoinBody
from penstock.joins.keys import is_null
from penstock.joins.spec import LEFT, RIGHT, JoinKind, Side, outer
from penstock.plan.exchange import KeySelector
from penstock.runtime.fields import record_getter
from penstock.windows.functions import WindowFunction

OneSided = tuple[int, Any, Any]
"""The side, and the record in its place; the other one is None."""


@dataclass(frozen=True)
class OfSide:
    """Makes a record say where it is from."""

    side: Side

    def __call__(self, value: Any) -> OneSided:
        return (LEFT, value, None) if self.side == LEFT else (RIGHT, None, value)


def record_of(value: OneSided) -> Any:
    side, left, right = value
    return left if side == LEFT else right


@dataclass(frozen=True)
class KeyOfSide:
    """The key of such a record, by what its side is keyed by."""

    selectors: tuple[KeySelector, KeySelector]

    def __call__(self, value: OneSided) -> Any:
        record, selector = record_of(value), self.selectors[value[0]]
        if callable(selector):
            return selector(record)
        parts = tuple(record_getter([record], field, "join")(record) for field in selector)
        return parts[0] if len(parts) == 1 else parts


class WindowJoinFunction(WindowFunction[Any, OneSided, Any]):
    """Every left record with every right one of a window."""

    def __init__(self, body: JoinBody, how: JoinKind) -> None:
        self.body = body
        self.function = body.function
        self.how = how

    def function_calls(self) -> tuple[Call, ...]:
        return self.body.calls()

    def open(self, context: RuntimeContext) -> None:
        if isinstance(self.function, Function):
            self.function.open(context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def process(self, values: list[OneSided], ctx: Any) -> Iterator[Any]:
        left, right = by_side(values)
        joined = JoinContext(ctx)
        joined.timestamp = ctx.timestamp_ms
        null = is_null(ctx.key)
        if outer(self.how, LEFT) and (null or not right):
            for mine in left:
                yield from self.body.results(mine, None, joined)
        if outer(self.how, RIGHT) and (null or not left):
            for theirs in right:
                yield from self.body.results(None, theirs, joined)
        if not null:
            for mine in left:
                for theirs in right:
                    yield from self.body.results(mine, theirs, joined)


class CoGroup(WindowFunction[Any, OneSided, Any]):
    """What a function of both sides' records makes of a window."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def function_calls(self) -> tuple[Call, ...]:
        return (call_of(self.function, "co_group", "left", "right", several=True), *life_cycle(self.function))

    def open(self, context: RuntimeContext) -> None:
        if isinstance(self.function, Function):
            self.function.open(context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def process(self, values: list[OneSided], ctx: Any) -> Any:
        co_group: Callable[[list[Any], list[Any]], Any] = getattr(self.function, "co_group", self.function)
        return co_group(*by_side(values))


def by_side(values: list[OneSided]) -> tuple[list[Any], list[Any]]:
    return [left for side, left, _ in values if side == LEFT], [right for side, _, right in values if side == RIGHT]


__all__ = ["CoGroup", "KeyOfSide", "OfSide", "OneSided", "WindowJoinFunction", "by_side", "record_of"]
