"""What a person implements: functions with a life cycle, state and timers.

Plain functions and lambdas do wherever a class with a single method would. State is declared on the class (see
`penstock.state.descriptors`); anything else an instance keeps in its fields is a cache: it may be gone in the next epoch.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from penstock.diagnosis.tracebacks import is_ours
from penstock.errors import PlanError

if TYPE_CHECKING:
    from penstock.contexts import KeyedBroadcastContext, KeyedContext, OnTimerContext, ProcessContext, RuntimeContext

__all__ = [
    "AggregateFunction",
    "AsyncFunction",
    "BroadcastBatchFunction",
    "BroadcastProcessFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "MapFunction",
    "OutputTag",
    "ProcessFunction",
    "ReduceFunction",
]

K = TypeVar("K")
I = TypeVar("I")  # noqa: E741 - the input
J = TypeVar("J")
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


class AsyncFunction(Generic[I, O]):
    """Asks another system about a record, or about several: many such calls are awaited at once.

    A client is made in `open`, where an event loop runs; it is kept, with the loop, while the worker lives. `open` and `close`
    may be `async`.
    """

    def open(self, context: RuntimeContext) -> Awaitable[None] | None:
        """Called once in a worker before the first record."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Called when the worker is done with the function."""
        return None

    async def async_invoke(self, value: I) -> O:
        raise NotImplementedError

    def timeout(self, value: I) -> O:
        """The answer to take when the step's `timeout=` is over. Without this method the record is treated as the step's
        `errors=` say."""
        raise TimeoutError


class KeyedProcessFunction(Function, Generic[K, I, O]):
    """Sees each record of a key with the key's state and timers.

    >>> from penstock import StreamEnvironment, ValueState
    >>> class Numbered(KeyedProcessFunction):
    ...     seen = ValueState(int, 0)  # one for each key
    ...     def process(self, word, ctx):
    ...         self.seen.update(self.seen.value + 1)
    ...         yield f"{word} {self.seen.value}"
    >>> words = StreamEnvironment(executor="inline").from_collection(["to", "be", "to"])
    >>> sorted(words.key_by(lambda word: word).process(Numbered()).execute_and_collect())
    ['be 1', 'to 1', 'to 2']
    """

    def process(self, value: I, ctx: KeyedContext[K]) -> Iterable[O] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K]) -> Iterable[O] | None:
        """A timer of this key is due."""
        return None


class CoProcessFunction(Function, Generic[I, J, O]):
    """Sees the records of two streams. On streams that are keyed alike it may have state and set timers, as a
    `KeyedCoProcessFunction`, whose contexts know the type of the key."""

    def process1(self, value: I, ctx: ProcessContext) -> Iterable[O] | None:
        """A record of the first stream."""
        raise NotImplementedError

    def process2(self, value: J, ctx: ProcessContext) -> Iterable[O] | None:
        """A record of the second stream."""
        raise NotImplementedError


class KeyedCoProcessFunction(Function, Generic[K, I, J, O]):
    """Sees the records of two streams, with the state and timers that both share for each key."""

    def process1(self, value: I, ctx: KeyedContext[K]) -> Iterable[O] | None:
        """A record of the first stream."""
        raise NotImplementedError

    def process2(self, value: J, ctx: KeyedContext[K]) -> Iterable[O] | None:
        """A record of the second stream."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K]) -> Iterable[O] | None:
        """A timer of this key is due."""
        return None


class BroadcastProcessFunction(Function, Generic[I, J, O]):
    """Sees the records of a stream, and those of a broadcast one, which reach every partition.

    What is declared as `BroadcastMapState` is the same in all partitions: `process_broadcast` changes it, and must do so in the
    same way everywhere, by the record and what is there already; `process` only reads it.
    """

    def process(self, value: I, ctx: ProcessContext) -> Iterable[O] | None:
        """A record of the stream that is not broadcast."""
        raise NotImplementedError

    def process_broadcast(self, value: J, ctx: ProcessContext) -> Iterable[O] | None:
        """A record of the broadcast stream; every partition is given it."""
        raise NotImplementedError


class BroadcastBatchFunction(Function, Generic[J]):
    """As `BroadcastProcessFunction`, for whole batches: a vectorised function with state that a broadcast stream changes.

    A batch ends where a broadcast record comes, so all its rows are of the time between two of them.
    """

    def map_batch(self, batch: Any) -> Any:
        """A `pyarrow.RecordBatch` or a pandas frame, as `map_batches` says, of the stream that is not broadcast."""
        raise NotImplementedError

    def process_broadcast(self, value: J, ctx: ProcessContext) -> None:
        """A record of the broadcast stream; every partition is given it. It changes state, and emits nothing."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function, Generic[K, I, J, O]):
    """As `BroadcastProcessFunction`, for a keyed stream: with state and timers for each key beside the broadcast state."""

    def process(self, value: I, ctx: KeyedContext[K]) -> Iterable[O] | None:
        """A record of the keyed stream."""
        raise NotImplementedError

    def process_broadcast(self, value: J, ctx: KeyedBroadcastContext[K]) -> Iterable[O] | None:
        """A record of the broadcast stream; every partition is given it. There is no key: `ctx.apply_to_keyed_state` goes
        through all keys."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K]) -> Iterable[O] | None:
        """A timer of this key is due."""
        return None


@dataclass(frozen=True, slots=True)
class Call:
    """How a step calls a function of a person's. `method`: what is called; None if the function has no such method. `several`: it
    may give any number of records, so that it may be a generator."""

    function: Any
    name: str
    method: Callable[..., Any] | None
    arguments: tuple[str, ...]
    optional: bool = False
    several: bool = False
    awaited: bool | None = False
    """What it gives is awaited; None: it is called in a thread of its own."""

    @property
    def expected(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


@runtime_checkable
class CallsFunctions(Protocol):
    """A source, a sink or a function of ours that calls functions of a person's."""

    def function_calls(self) -> tuple[Call, ...]:
        """How it calls them."""
        ...


def call_of(function: Any, name: str, *arguments: str, several: bool = False, awaited: bool | None = False) -> Call:
    """A call of the method of that name, or of the function itself if it is a plain one."""
    method = getattr(function, name, None)
    found = method if callable(method) else function if callable(function) else None
    return Call(function, name, found, arguments, several=several, awaited=awaited)


def method_call(function: Any, name: str, *arguments: str, optional: bool = False, several: bool = False) -> Call:
    """A call of a method that the function must have, unless it is optional."""
    method = getattr(function, name, None)
    return Call(function, name, method if callable(method) else None, arguments, optional, several)


def life_cycle(function: Any, *, awaited: bool = False) -> tuple[Call, ...]:
    """The calls that all function classes may get. `awaited`: they may be coroutines too."""
    if not isinstance(function, Function | AsyncFunction):
        return ()
    calls = method_call(function, "open", "context", optional=True), method_call(function, "close", optional=True)
    return tuple(replace(call, awaited=inspect.iscoroutinefunction(call.method)) for call in calls) if awaited else calls


def aggregate_calls(function: Any) -> tuple[Call, ...]:
    """How an `AggregateFunction` is called; `merge` only where windows merge."""
    return (
        method_call(function, "create_accumulator"),
        method_call(function, "add", "value", "accumulator"),
        method_call(function, "result", "accumulator"),
        method_call(function, "merge", "left", "right", optional=True),
        *life_cycle(function),
    )


# --- what a function is called in messages ---------------------------------------------------------------------------------

_METHODS = (
    *("process", "process1", "process2", "process_broadcast", "map", "flat_map", "filter", "reduce", "fold"),
    *("add", "map_batch", "apply", "async_invoke", "on_record", "assign", "evict_before", "__call__"),
    *("join", "co_group"),
)


def function_location(function: Any) -> str:
    """`name (file:line)` of a user's function, for messages. Of one inside ours (reduce, fold, a split): the user's own."""
    given = users_function(function)
    if given is None:
        return str(getattr(function, "__qualname__", type(function).__qualname__))
    if isinstance(given, type):
        return _class_location(given)
    if not hasattr(given, "__code__"):
        for name in _METHODS:
            method = getattr(type(given), name, None)
            code = getattr(method, "__code__", None)
            if code is not None and not is_ours(code.co_filename):
                return f"{type(given).__qualname__}.{name} ({code.co_filename}:{code.co_firstlineno})"
        return getattr(given, "__qualname__", None) or _class_location(type(given))  # a builtin has a name
    code = given.__code__
    return f"{getattr(given, '__qualname__', '?')} ({code.co_filename}:{code.co_firstlineno})"


def users_function(function: Any) -> Any:
    """The function itself, or what the user gave to a `partial`, or to a function of ours; None if it is ours altogether."""
    while isinstance(function, partial):
        function = function.args[0] if _is_ours(function.func) and function.args else function.func
    if not _is_ours(function if isinstance(function, type) or hasattr(function, "__code__") else type(function)):
        return function
    for name in ("function", "aggregate", "selector", "gap_of", "delta", "field"):
        given = getattr(function, name, None)
        if isinstance(given, Mapping):
            given = next(iter(given.values()), None)
        if given is not None and not isinstance(given, str | int | tuple):
            return users_function(given)
    return None


def _is_ours(thing: Any) -> bool:
    module = str(getattr(thing, "__module__", ""))
    return module.startswith("penstock.") and not module.startswith("penstock.testing.")


def _class_location(kind: type) -> str:
    try:
        _, line = inspect.getsourcelines(kind)
        return f"{kind.__qualname__} ({inspect.getsourcefile(kind)}:{line})"
    except (OSError, TypeError):  # a builtin, or typed in
        return kind.__qualname__
