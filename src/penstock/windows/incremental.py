"""Aggregation as records come: a window holds an accumulator instead of its records.

Laws:
- None is the accumulator of an empty window; `add` makes the first one.
- A record is never changed: an accumulator that begins as a record is a copy of it, for the record may be in other windows.
- `merges`: accumulators of two windows can be made one. Otherwise windows that merge keep their records.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.functions import AggregateFunction, Call, aggregate_calls, call_of
from penstock.ids import Milliseconds
from penstock.windows.functions import WindowContext

_ATOMS = frozenset((int, float, str, bytes, bool, type(None)))


class Incremental:
    """What windows aggregate by. `function` is the user's, for messages."""

    function: Any
    merges: bool = True
    timed: bool = False
    """It matters when a value was: `add_at` is called."""

    def calls(self) -> tuple[Call, ...]:
        """How it calls the user's function, if there is one."""
        return ()

    def add(self, accumulator: Any, value: Any) -> Any:
        raise NotImplementedError

    def add_at(self, accumulator: Any, value: Any, time: Milliseconds) -> Any:
        return self.add(accumulator, value)

    def merge(self, left: Any, right: Any) -> Any:
        raise NotImplementedError

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def emitted(self, accumulator: Any, ctx: WindowContext[Any]) -> Any:
        """The result, as the window emits it."""
        return self.result(accumulator)


@dataclass(frozen=True)
class Reducing(Incremental):
    """`reduce(f)`."""

    function: Callable[[Any, Any], Any]

    def calls(self) -> tuple[Call, ...]:
        return (call_of(self.function, "reduce", "left", "right"),)

    def add(self, accumulator: Any, value: Any) -> Any:
        return own(value) if accumulator is None else self.function(accumulator, value)

    def merge(self, left: Any, right: Any) -> Any:
        return self.function(left, right)


@dataclass(frozen=True)
class Folding(Incremental):
    """`fold(initial, f)`: two folds cannot be made one."""

    initial: Any
    function: Callable[[Any, Any], Any]
    merges = False

    def calls(self) -> tuple[Call, ...]:
        return (call_of(self.function, "fold", "result", "value"),)

    def add(self, accumulator: Any, value: Any) -> Any:
        return self.function(own(self.initial) if accumulator is None else accumulator, value)


@dataclass(frozen=True)
class Aggregating(Incremental):
    """`aggregate(AggregateFunction)`."""

    function: AggregateFunction[Any, Any, Any]

    def calls(self) -> tuple[Call, ...]:
        return aggregate_calls(self.function)

    @property
    def merges(self) -> bool:  # type: ignore[override]
        return getattr(type(self.function), "merge", AggregateFunction.merge) is not AggregateFunction.merge

    def add(self, accumulator: Any, value: Any) -> Any:
        function = self.function
        return function.add(value, function.create_accumulator() if accumulator is None else accumulator)

    def merge(self, left: Any, right: Any) -> Any:
        return self.function.merge(left, right)

    def result(self, accumulator: Any) -> Any:
        return self.function.result(accumulator)


def own(value: Any) -> Any:
    """The value, such that changing it in place changes nothing else."""
    return value if type(value) in _ATOMS else copy.deepcopy(value)
