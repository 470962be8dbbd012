"""Windowed streams: what to compute of each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.api.stream import DataStream
from penstock.errors import PlanError
from penstock.functions import AggregateFunction, OutputTag, ReduceFunction
from penstock.plan.definition import ErrorPolicy
from penstock.runtime.operators.operator import method_of
from penstock.timing.durations import Duration
from penstock.windows.aggregates import Aggregate
from penstock.windows.arrow_function import ArrowFunction
from penstock.windows.assigners import WindowAssigner
from penstock.windows.by_field import ExtremeOf, Field, SumOf
from penstock.windows.evictors import Evictor
from penstock.windows.functions import WindowFunction
from penstock.windows.incremental import Folding, Incremental, Reducing
from penstock.windows.lower import aggregation_of, check_function, spec_of, window_step
from penstock.windows.spec import WindowSpec
from penstock.windows.step import WindowBody
from penstock.windows.triggers import Trigger
from penstock.windows.window import TimeWindow

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")


class WindowedStream(Generic[K, T]):
    """A stream whose records are put into windows. Each method computes something of every window.

    `process=` names a `WindowFunction` that sees the one result of each firing, with its window. `state_type` is the type of
    what is kept for each window, or a `ValueState` that also says what it was before. `previous_names`: what the step was called.
    """

    def __init__(self, stream: DataStream[T], spec: WindowSpec, key_names: tuple[str, ...]) -> None:
        self._stream = stream
        self._spec = spec
        self._key_names = key_names

    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        *,
        process: WindowFunction[K, T, Any] | None = None,
        name: str | None = None,
        state_type: Any = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[Any]:
        """Combine the records of a window, two at a time."""
        return self._incremental(
            Reducing(method_of(function, "reduce")), process, "reduce", name, previous_names, state_type, errors
        )

    def fold(
        self,
        initial: U,
        function: Callable[[U, T], U],
        *,
        process: WindowFunction[K, U, Any] | None = None,
        name: str | None = None,
        state_type: Any = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[Any]:
        """Combine the records of a window, beginning with an initial value of another type."""
        return self._incremental(Folding(initial, function), process, "fold", name, previous_names, state_type, errors)

    def aggregate(
        self,
        *aggregates: AggregateFunction[T, Any, Any] | Aggregate,
        process: WindowFunction[K, Any, Any] | None = None,
        name: str | None = None,
        accumulator_type: Any = None,
        errors: ErrorPolicy = "fail",
        columnar: bool = True,
        previous_names: Sequence[str] = (),
        **columns: Aggregate,
    ) -> DataStream[Any]:
        """An `AggregateFunction`; or any number of declared aggregates, such as `avg("temperature")` or `total=agg.sum("price")`.

        >>> from penstock import StreamEnvironment, TumblingWindows, Watermarks, avg
        >>> readings = [{"room": "attic", "at": at, "celsius": 20.0 + at} for at in (1, 2, 61)]
        >>> rooms = StreamEnvironment(executor="inline").from_collection(
        ...     readings, watermarks=Watermarks.monotonous(timestamp="at", unit="s")
        ... )
        >>> means = rooms.key_by("room").window(TumblingWindows(minutes=1)).aggregate(avg("celsius"))
        >>> [(row["window_start"], row["avg_celsius"]) for row in means.execute_and_collect()]
        [(0, 21.5), (60000, 81.0)]

        Of declared aggregates the result is a dict: the key's fields, `window_start`, `window_end`, and a column for each. Where
        that is possible they are computed over columns (`explain` tells); `columnar=False` forbids it.
        """
        incremental = aggregation_of(aggregates, columns, self._key_names, tolerant=errors != "fail")
        return self._incremental(incremental, process, "aggregate", name, previous_names, accumulator_type, errors, columnar)

    def apply(
        self,
        function: Callable[[K, TimeWindow, pa.RecordBatch], pa.RecordBatch | pa.Table | list[Any] | None],
        *,
        name: str | None = None,
        state_type: Any = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[Any]:
        """A function of the key, the window and its records as an Arrow batch; it returns a batch, a table or a list."""
        if isinstance(function, type) or not callable(function):
            raise PlanError(f"apply({function!r}): this is not a function", hint="give a function(key, window, batch)")
        return self._then(
            WindowBody(function=ArrowFunction(function), state_type=state_type), "apply", name, previous_names, errors
        )

    def process(
        self,
        function: WindowFunction[K, T, U],
        *,
        name: str | None = None,
        state_type: Any = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """A function of all records of a window; state holds them until the window is over. `state_type`: that of a record."""
        check_function(function, "process")
        return self._then(WindowBody(function=function, state_type=state_type), "process", name, previous_names, errors)

    def sum(
        self, field: Field = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The first record of the window with `field` replaced by the sum."""
        return self._incremental(Reducing(SumOf(field)), None, "sum", name, previous_names, state_type)

    def min(
        self, field: Field = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The first record of the window with `field` replaced by the least."""
        return self._incremental(
            Reducing(ExtremeOf(field, least=True, whole=False)), None, "min", name, previous_names, state_type
        )

    def max(
        self, field: Field = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The first record of the window with `field` replaced by the greatest."""
        return self._incremental(
            Reducing(ExtremeOf(field, least=False, whole=False)), None, "max", name, previous_names, state_type
        )

    def min_by(
        self, field: Field = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The record of the window whose `field` is the least (the first of equals)."""
        return self._incremental(
            Reducing(ExtremeOf(field, least=True, whole=True)), None, "min_by", name, previous_names, state_type
        )

    def max_by(
        self, field: Field = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The record of the window whose `field` is the greatest (the first of equals)."""
        return self._incremental(
            Reducing(ExtremeOf(field, least=False, whole=True)), None, "max_by", name, previous_names, state_type
        )

    def _incremental(
        self,
        incremental: Incremental,
        process: Any,
        label: str,
        name: str | None,
        previous_names: Sequence[str],
        state_type: Any,
        errors: ErrorPolicy = "fail",
        columnar: bool = True,
    ) -> DataStream[Any]:
        if process is not None:
            check_function(process, "process=")
        body = WindowBody(incremental=incremental, function=process, state_type=state_type)
        return self._then(body, label, name, previous_names, errors, columnar)

    def _then(
        self,
        body: WindowBody,
        label: str,
        name: str | None,
        previous_names: Sequence[str],
        errors: ErrorPolicy,
        columnar: bool = True,
    ) -> DataStream[Any]:
        exchange = self._stream._exchange
        assert exchange is not None
        definition = window_step(self._spec, body, exchange, label=label, errors=errors, columnar=columnar)
        return self._stream._then(definition, name, label, previous_names)


def windowed(
    stream: DataStream[T],
    assigner: WindowAssigner,
    trigger: Trigger | None,
    evictor: Evictor | None,
    allowed_lateness: Duration,
    late: OutputTag[T] | None,
    names: tuple[str, ...],
) -> WindowedStream[Any, T]:
    """The stream that `window(...)` gives."""
    return WindowedStream(stream, spec_of(assigner, trigger, evictor, allowed_lateness, late), names)
