"""What a person implements: functions with a life cycle, state and timers.

Plain functions and lambdas do wherever a class with a single method would. State is declared on the class (see
`penstock.state.descriptors`); anything else an instance keeps in its fields is a cache: it may be gone in the next epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.contexts import KeyedContext, OnTimerContext, ProcessContext, RuntimeContext

K = TypeVar("K")
I = TypeVar("I")  # noqa: E741 - the input
O = TypeVar("O")  # noqa: E741 - the output
A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True)  # no slots: `OutputTag[int]("late")` sets an attribute on the instance
class OutputTag(Generic[T]):
    """Names a side output. Two tags of the same name are the same output."""

    name: str

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise PlanError(f"an OutputTag needs a name, not {self.name!r}", hint='for example OutputTag("late")')


class Function:
    """The life cycle that all function classes share."""

    def open(self, context: RuntimeContext) -> None:
        """Called once in a worker before the first record."""

    def close(self) -> None:
        """Called when the worker is done with the function."""


class MapFunction(Function, Generic[I, O]):
    def map(self, value: I) -> O:
        raise NotImplementedError


class FlatMapFunction(Function, Generic[I, O]):
    def flat_map(self, value: I) -> Iterable[O]:
        raise NotImplementedError


class FilterFunction(Function, Generic[I]):
    def filter(self, value: I) -> bool:
        raise NotImplementedError


class ReduceFunction(Function, Generic[T]):
    def reduce(self, left: T, right: T) -> T:
        raise NotImplementedError


class AggregateFunction(Function, Generic[I, A, O]):
    """Aggregation with an accumulator of its own type."""

    def create_accumulator(self) -> A:
        raise NotImplementedError

    def add(self, value: I, accumulator: A) -> A:
        raise NotImplementedError

    def result(self, accumulator: A) -> O:
        raise NotImplementedError

    def merge(self, left: A, right: A) -> A:
        raise NotImplementedError


class ProcessFunction(Function, Generic[I, O]):
    """Sees each record with its context; may write to side outputs."""

    def process(self, value: I, ctx: ProcessContext) -> Iterable[O] | None:
        raise NotImplementedError


class KeyedProcessFunction(Function, Generic[K, I, O]):
    """Sees each record of a key with the key's state and timers."""

    def process(self, value: I, ctx: KeyedContext[K]) -> Iterable[O] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K]) -> Iterable[O] | None:
        """A timer of this key is due."""
        return None


def function_location(function: Any) -> str:
    """`name (file:line)` of a user's function, for messages."""
    target = function
    if not hasattr(target, "__code__"):
        for name in ("process", "map", "flat_map", "filter", "reduce", "add", "on_record", "assign", "evict_before", "__call__"):
            code = getattr(getattr(type(target), name, None), "__code__", None)
            if code is not None:
                return f"{type(target).__qualname__}.{name} ({code.co_filename}:{code.co_firstlineno})"
        return f"{type(target).__qualname__}"
    code = target.__code__
    return f"{getattr(target, '__qualname__', '?')} ({code.co_filename}:{code.co_firstlineno})"
