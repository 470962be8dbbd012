"""Connected streams: two streams of different types that one step takes, each record by the method for its side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

from penstock.api.joining import check_alike
from penstock.api.stream import DataStream, batch_options
from penstock.errors import PlanError
from penstock.functions import (
    BroadcastBatchFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    MapFunction,
)
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.plan.pairing import BOTH_SIDES
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.runtime.operators.connected.broadcast import BroadcastProcess, KeyedBroadcastProcess
from penstock.runtime.operators.connected.broadcast_batches import BroadcastBatches
from penstock.runtime.operators.connected.co_stateless import CoProcess, CoStateless
from penstock.timing.timestamps import Unit

T = TypeVar("T")
U = TypeVar("U")
O = TypeVar("O")  # noqa: E741 - the output
K = TypeVar("K")


class ConnectedStreams(Generic[T, U]):
    """Two streams, for a step that takes both.

    >>> from penstock import StreamEnvironment
    >>> env = StreamEnvironment(executor="inline")
    >>> words, numbers = env.from_collection(["a", "b"]), env.from_collection([1, 2])
    >>> sorted(words.connect(numbers).map(str.upper, str).execute_and_collect())
    ['1', '2', 'A', 'B']
    """

    def __init__(self, first: DataStream[T], second: DataStream[U]) -> None:
        if first._env is not second._env:
            raise PlanError("streams of two environments cannot be connected", hint="read both sources in one environment")
        self._first = first
        self._second = second

    def map(
        self,
        first: Callable[[T], O] | MapFunction[T, O],
        second: Callable[[U], O] | MapFunction[U, O],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[O]:
        """One record out for each record in, by the function for its side."""
        return self._then(self._stateless("map", first, second, errors), name, "co-map")

    def flat_map(
        self,
        first: Callable[[T], Iterable[O]] | FlatMapFunction[T, O],
        second: Callable[[U], Iterable[O]] | FlatMapFunction[U, O],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[O]:
        """Any number of records out for each record in, by the function for its side."""
        return self._then(self._stateless("flat_map", first, second, errors), name, "co-flat_map")

    def process(
        self,
        function: CoProcessFunction[T, U, O],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """A function with a method for the records of each side, which sees them with their context, in one order."""
        check_instance(function)
        return self._then(CoProcess(body=function, errors=errors), name, "co-process", previous_names)

    def _stateless(self, what: Any, first: Any, second: Any, errors: ErrorPolicy) -> CoStateless:
        for which, function in (("first", first), ("second", second)):
            if not callable(function) and not callable(getattr(function, what, None)):
                raise PlanError(
                    f"{what}: what was given for the {which} stream is not a function: {function!r}",
                    hint=f"give a function for each side, {what}(first, second): functions, lambdas or objects with {what}()",
                )
            if isinstance(function, type) and callable(getattr(function, what, None)):
                raise PlanError(f"{what}: {function.__name__} is a class", hint=f"give an instance: {function.__name__}()")
        exchange = self._first._exchange
        keyed = exchange is not None and exchange.kind == "key_by"
        key_type = exchange.key_type if exchange is not None else None
        return CoStateless(what=what, first=first, second=second, keyed=keyed, key_type=key_type, errors=errors)

    def _then(self, definition: Definition, name: str | None, label: str, previous_names: Sequence[str] = ()) -> DataStream[Any]:
        env = self._first._env
        inputs = self._first._input(), self._second._input()
        return DataStream(env, env._add(definition, *inputs, name=name, label=label, previous_names=previous_names))


class KeyedConnectedStreams(ConnectedStreams[T, U], Generic[K, T, U]):
    """Two streams that are keyed alike: state and timers of a key are shared by both sides.

    >>> from penstock import StreamEnvironment, ValueState
    >>> from penstock.functions import KeyedCoProcessFunction
    >>> class Paid(KeyedCoProcessFunction):
    ...     order = ValueState(str)
    ...     def process1(self, order, ctx):
    ...         self.order.update(order[1])
    ...     def process2(self, payment, ctx):
    ...         yield f"{self.order.value}: {payment[1]}"
    >>> env = StreamEnvironment(executor="inline")
    >>> orders, payments = env.from_collection([(1, "tea")]), env.from_collection([(1, "3 EUR")])
    >>> orders.key_by(0).connect(payments.key_by(0)).process(Paid()).execute_and_collect()
    ['tea: 3 EUR']
    """

    def process(
        self,
        function: KeyedCoProcessFunction[K, T, U, O] | CoProcessFunction[T, U, O],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """A function with a method for the records of each side, with state and timers for each key."""
        check_instance(function)
        exchange = self._first._exchange
        assert exchange is not None
        definition = KeyedCoProcess(body=function, key_type=exchange.key_type, key_fields=exchange.key_fields, errors=errors)
        return self._then(definition, name, "co-process", previous_names)


class BroadcastStream(DataStream[T]):
    """A stream whose records reach every partition of the next step."""


class BroadcastConnectedStreams(ConnectedStreams[T, U]):
    """A stream, and a broadcast one that controls what is done with it."""

    def process(  # type: ignore[override]
        self,
        function: BroadcastProcessFunction[T, U, O],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """A function with state that the broadcast records change, in all partitions alike, and the others read."""
        check_instance(function)
        return self._then(BroadcastProcess(body=function, errors=errors), name, "broadcast", previous_names)

    def map_batches(
        self,
        function: BroadcastBatchFunction[U],
        *,
        format: Literal["arrow", "pandas"] = "arrow",
        schema: type[O] | None = None,
        columns: Iterable[str] | None = None,
        timestamp: str | None = None,
        unit: Unit = "ms",
        aligned: bool = False,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """Vectorised: whole batches of the stream that is not broadcast. Options: those of `DataStream.map_batches`."""
        check_instance(function)
        options = batch_options(format, schema, columns, timestamp, unit, aligned)
        return self._then(BroadcastBatches(body=function, **options), name, "broadcast", previous_names)


class KeyedBroadcastConnectedStreams(BroadcastConnectedStreams[T, U], Generic[K, T, U]):
    """A keyed stream, and a broadcast one that controls what is done with it."""

    def process(  # type: ignore[override]
        self,
        function: KeyedBroadcastProcessFunction[K, T, U, O],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """A function with state and timers for each key, and state that the broadcast records change, in all partitions alike."""
        check_instance(function)
        exchange = self._first._exchange
        assert exchange is not None
        keys = {"key_type": exchange.key_type, "key_fields": exchange.key_fields}
        return self._then(KeyedBroadcastProcess(body=function, errors=errors, **keys), name, "broadcast", previous_names)


def connected(first: DataStream[Any], second: DataStream[Any]) -> Any:
    """What two streams are together. Sides that do not go together are refused here, or when a step is made of them."""
    from penstock.api.keyed import KeyedStream

    if not isinstance(second, DataStream):
        raise PlanError(f"connect({second!r}): this is not a stream", hint="a stream is connected with one other stream")
    if isinstance(first, BroadcastStream):
        raise PlanError(
            "connect: the first stream is broadcast",
            hint="the broadcast stream is given last, stream.connect(control.broadcast()), and only one of the two is broadcast",
        )
    if isinstance(second, BroadcastStream):
        return (KeyedBroadcastConnectedStreams if isinstance(first, KeyedStream) else BroadcastConnectedStreams)(first, second)
    keyed = [isinstance(stream, KeyedStream) for stream in (first, second)]
    if keyed[0] != keyed[1]:
        which, other = ("first", "second") if keyed[0] else ("second", "first")
        raise PlanError(f"connect: the {which} stream is keyed, the {other} is not", hint=BOTH_SIDES)
    if not isinstance(first, KeyedStream) or not isinstance(second, KeyedStream):
        return ConnectedStreams(first, second)
    check_alike(first, second, "connect")
    return KeyedConnectedStreams(first, second)


def check_instance(function: Any) -> None:
    if isinstance(function, type):
        raise PlanError(f"process({function.__name__}): this is a class", hint=f"give an instance: {function.__name__}()")
