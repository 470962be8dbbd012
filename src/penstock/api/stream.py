"""Streams: each method adds a step to the program and returns a new stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from penstock.api.async_steps import AsyncSteps
from penstock.api.need_keys import NeedKeys
from penstock.changes import RowKind
from penstock.connectors.printing.sink import PrintSink
from penstock.connectors.protocol import Sink
from penstock.diagnosis.tracebacks import calling_line, folding
from penstock.errors import PlanError, did_you_mean
from penstock.experimental import experimental
from penstock.functions import (
    Call,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    call_of,
)
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.plan.exchange import Exchange, no_key
from penstock.plan.expressions.expression import Expression
from penstock.plan.nodes import Input
from penstock.plan.schemas import schema_of
from penstock.records import DICT_ROW, RowType
from penstock.runtime.operators.changes import AsChanges, AsChangesByField, ChangesAsRows
from penstock.runtime.operators.expressions import Filter, Project, outputs_of
from penstock.runtime.operators.map_batches import MapBatches
from penstock.runtime.operators.operator import DEAD_LETTERS, DeadLetter
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.stateless import StatelessKind, per_record
from penstock.runtime.operators.union import Union
from penstock.timing.timestamps import Unit, check_unit

if TYPE_CHECKING:
    from penstock.api.connected import BroadcastConnectedStreams, BroadcastStream, ConnectedStreams
    from penstock.api.environment import StreamEnvironment
    from penstock.api.keyed import KeyedStream
    from penstock.api.loop import Loop
    from penstock.api.patterns import PatternStream
    from penstock.api.windowed import WindowedStream
    from penstock.cep.pattern import Pattern
    from penstock.timing.durations import Duration
    from penstock.windows.assigners import WindowAssigner
    from penstock.windows.evictors import Evictor
    from penstock.windows.triggers import Trigger

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class DataStream(AsyncSteps[T], NeedKeys):
    """A stream of records of type T."""

    def __init__(self, env: StreamEnvironment, step: StepId, tag: str | None = None, exchange: Exchange | None = None) -> None:
        self._env = env
        self._step = step
        self._tag = tag
        self._exchange = exchange

    # --- record by record --------------------------------------------------------------------------------------------------

    def map(
        self, function: Callable[[T], U] | MapFunction[T, U], *, name: str | None = None, errors: ErrorPolicy = "fail"
    ) -> DataStream[U]:
        """One record out for each record in."""
        return self._stateless("map", function, name, errors)

    def flat_map(
        self,
        function: Callable[[T], Iterable[U]] | FlatMapFunction[T, U],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]:
        """Any number of records out for each record in."""
        return self._stateless("flat_map", function, name, errors)

    def filter(
        self,
        function: Callable[[T], bool] | FilterFunction[T] | Expression,
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[T]:
        """Only the records for which the function, or an expression such as `col("amount") > 100`, is true."""
        if isinstance(function, Expression):
            return self._then(Filter(condition=function.node, errors=errors, where=calling_line()), name, "filter")
        return self._stateless("filter", function, name, errors)

    def process(self, function: ProcessFunction[T, U], *, name: str | None = None, errors: ErrorPolicy = "fail") -> DataStream[U]:
        """A function that sees each record with its context, and can write to side outputs."""
        if not callable(getattr(function, "process", None)):
            raise PlanError(
                f"{function!r} is not a ProcessFunction", hint="give an instance of a class with process(self, value, ctx)"
            )
        return self._stateless("process", function, name, errors)

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        format: Literal["arrow", "pandas"] = "arrow",
        schema: type[U] | None = None,
        columns: Iterable[str] | None = None,
        timestamp: str | None = None,
        unit: Unit = "ms",
        aligned: bool = False,
        name: str | None = None,
    ) -> DataStream[U]:
        """Vectorised: a function of whole batches.

        - `format`: the function gets a `pyarrow.RecordBatch`, or with `"pandas"` a DataFrame. It returns a RecordBatch, a Table,
          a DataFrame, a list of records, or None; it may drop, reorder and repeat rows.
        - `schema`: the type of the rows that it returns, a dataclass or the like with a field for each column it needs; dicts
          if it is left out.
        - `columns`: the only columns that the function gets; a file source then reads no others.

        On a stream with timestamps a row keeps that of the row it came from. What says where it came from travels with it: the
        index of a DataFrame; in a RecordBatch a last column, `_penstock_row`, which is taken out again. A function that loses it
        (a merge, a group_by, a new table) is refused, unless

        - `timestamp` names the column of the result that holds the time, whole numbers being in `unit`, or
        - `aligned=True` promises a row for each row, in the same order: the function then sees its columns and nothing else.
        """
        options = batch_options(format, schema, columns, timestamp, unit, aligned)
        return self._then(MapBatches(body=function, **options), name, "map_batches")

    # --- by columns ----------------------------------------------------------------------------------------------------------

    def select(
        self, *columns: str | Expression, name: str | None = None, errors: ErrorPolicy = "fail", **computed: Any
    ) -> DataStream[dict[str, Any]]:
        """Records with these columns only: names, expressions, and computed ones by their new name.

        >>> from penstock import StreamEnvironment, col
        >>> sales = StreamEnvironment(executor="inline").from_collection([{"user": "ann", "price": 3, "n": 2}])
        >>> sales.select("user", col("price").alias("each"), total=col("price") * col("n")).execute_and_collect()
        [{'user': 'ann', 'each': 3, 'total': 6}]

        A column that is to be called `name` or `errors` is given by `.alias(...)`.
        """
        return self._then(
            Project(outputs=outputs_of(columns, computed, name), errors=errors, where=calling_line()), name, "select"
        )

    def with_columns(
        self, *columns: Expression, name: str | None = None, errors: ErrorPolicy = "fail", **computed: Any
    ) -> DataStream[dict[str, Any]]:
        """Records with columns added, or replaced: `stream.with_columns(total=col("price") * col("n"))`."""
        outputs = outputs_of(columns, computed, name)
        definition = Project(outputs=outputs, keeps_others=True, errors=errors, where=calling_line())
        return self._then(definition, name, "with_columns")

    # --- changes -----------------------------------------------------------------------------------------------------------

    @overload
    def as_changes(self, kind: str, *, name: str | None = None, errors: ErrorPolicy = "fail") -> DataStream[dict[str, Any]]: ...

    @overload
    def as_changes(
        self, kind: Callable[[T], RowKind | str], *, name: str | None = None, errors: ErrorPolicy = "fail"
    ) -> DataStream[T]: ...

    @experimental
    def as_changes(self, kind: Any, *, name: str | None = None, errors: ErrorPolicy = "fail") -> DataStream[Any]:
        """Rows that say what they change become changes: the stream updates from here on.

        `kind` is the field that holds `"+I"`, `"-U"`, `"+U"` or `"-D"` (or a `RowKind`, or its code), and is taken out of the
        row; or a function that returns one of these.
        """
        if isinstance(kind, str):
            return self._then(AsChangesByField(field=kind, errors=errors), name, "as_changes")
        if isinstance(kind, type) or not (callable(kind) or callable(getattr(kind, "kind", None))):
            raise PlanError(f"as_changes({kind!r})", hint="name a field, or give a function that returns a RowKind")
        return self._then(AsChanges(body=kind, errors=errors), name, "as_changes")

    @experimental
    def changes_as_rows(self, kind: str = "kind", *, name: str | None = None) -> DataStream[dict[str, Any]]:
        """Each change as an ordinary row, with its kind in a field: `"+I"`, `"-U"`, `"+U"` or `"-D"`."""
        return self._then(ChangesAsRows(field=kind), name, "changes_as_rows")

    # --- shape of the graph ------------------------------------------------------------------------------------------------

    @overload
    def key_by(self, key: Callable[[T], K], /, *, key_type: Any = None, name: str | None = None) -> KeyedStream[K, T]: ...

    @overload
    def key_by(self, *fields: str | int, key_type: Any = None, name: str | None = None) -> KeyedStream[Any, T]: ...

    def key_by(self, *selector: Any, key_type: Any = None, name: str | None = None) -> KeyedStream[Any, T]:
        """Bring the records of each key together.

        Column or field names (or tuple positions) are the fast way; a function works too.

        `key_type` is needed for keys that are dataclasses and the like. `name` is accepted for the reader's sake.
        """
        from penstock.api.keyed import KeyedStream

        if not selector:
            raise PlanError("key_by needs a key", hint='for example key_by("room") or key_by(lambda r: r.room)')
        if callable(selector[0]):
            if len(selector) > 1:
                raise PlanError("key_by takes one function, or any number of field names", hint="let the function return a tuple")
            exchange = Exchange(kind="key_by", selector=selector[0], key_type=key_type)
        else:
            if not all(isinstance(field, str | int) and not isinstance(field, bool) for field in selector):
                raise PlanError(
                    f"key_by{selector!r}: a field is a name or a tuple position", hint='for example key_by("room", "floor")'
                )
            self._has_columns(selector)
            exchange = Exchange(kind="key_by", selector=tuple(selector), key_type=key_type)
        self._no_exchange("key_by")
        return KeyedStream(self._env, self._step, self._tag, exchange)

    def window(self, *arguments: Any, **options: Any) -> Any:
        """Windows are of keyed streams."""
        raise PlanError(
            "window needs a keyed stream",
            hint='bring the records together first: key_by("room").window(...); or use window_all(...)',
        )

    def window_all(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: Duration = 0,
        late: OutputTag[T] | None = None,
    ) -> WindowedStream[None, T]:
        """Put all records into windows, whatever their key: one task does the work. Arguments: those of `KeyedStream.window`."""
        from penstock.api.windowed import windowed

        return windowed(self.key_by(no_key), assigner, trigger, evictor, allowed_lateness, late, ())

    def count_window_all(self, size: int, slide: int | None = None) -> WindowedStream[None, T]:
        """Windows of `size` records, whatever their key; with `slide`, the last `size` records, every `slide` records."""
        from penstock.windows.assigners import GlobalWindows
        from penstock.windows.lower import count_windows

        return self.window_all(GlobalWindows(), **count_windows(size, slide))

    def pattern(self, pattern: Pattern, **options: Any) -> PatternStream[T]:
        """Look for a pattern in all records, whatever their key: one task does the work. Options: as of `KeyedStream.pattern`."""
        return self.key_by(no_key).pattern(pattern, **options)

    def union(self, *others: DataStream[T], name: str | None = None) -> DataStream[T]:
        """The records of several streams of the same type, in one."""
        for other in others:
            if other._env is not self._env:
                raise PlanError("streams of two environments cannot be united", hint="read both sources in one environment")
        inputs = (stream._input() for stream in (self, *others))
        return DataStream(self._env, self._env._add(Union(), *inputs, name=name, label="union"))

    @overload
    def connect(self, other: BroadcastStream[U]) -> BroadcastConnectedStreams[T, U]: ...

    @overload
    def connect(self, other: DataStream[U]) -> ConnectedStreams[T, U]: ...

    def connect(self, other: DataStream[U]) -> ConnectedStreams[T, U]:
        """Two streams of different types, for a step that takes both: keyed alike, or neither of them; or the other is broadcast,
        to control what is done with this one."""
        from penstock.api.connected import connected

        found: ConnectedStreams[T, U] = connected(self, other)
        return found

    def iterate(
        self,
        *,
        max_rounds: int | None = None,
        turns: int = 1_000,
        record_type: Any = None,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> Loop[T]:
        """Begin a loop: build its body on what this returns, and say with `close_with` what comes back.

        - `max_rounds`: how often a record may go through the body; what would come back after that is in `leftovers()`.
        - `turns`: how often what comes back is sent through the body in one epoch, at most; the rest waits for the next.
        - `record_type`: the type of the records, which are kept as state between epochs. Without it they are kept as they are,
          for which they must be plain values, dataclasses and the like.
        """
        from penstock.api.loop import iterated

        return iterated(
            self, max_rounds=max_rounds, turns=turns, record_type=record_type, name=name, previous_names=previous_names
        )

    def rebalance(self) -> DataStream[T]:
        """Spread the records evenly over the partitions of the next step."""
        self._no_exchange("rebalance")
        return DataStream(self._env, self._step, self._tag, Exchange(kind="rebalance"))

    def broadcast(self) -> BroadcastStream[T]:
        """Send every record to all partitions of the next step."""
        from penstock.api.connected import BroadcastStream

        self._no_exchange("broadcast")
        return BroadcastStream(self._env, self._step, self._tag, Exchange(kind="broadcast"))

    def side_output(self, tag: OutputTag[U]) -> DataStream[U]:
        """What the step wrote to a side output with `ctx.output(tag, ...)`."""
        if self._tag is not None or self._exchange is not None:
            raise PlanError("side_output belongs directly after the step that writes it", hint="keep that stream in a variable")
        return DataStream(self._env, self._step, tag.name)

    def dead_letters(self) -> DataStream[DeadLetter]:
        """The records this step rejected; the step needs `errors="dead_letter"`."""
        if self._env._graph.nodes[self._step].definition.errors != "dead_letter":
            raise PlanError(f"step {self._step!r} has no dead letters", hint='give the step errors="dead_letter"')
        return DataStream(self._env, self._step, DEAD_LETTERS)

    def split(
        self, selector: Callable[[T], str | Iterable[str]] | Mapping[str, Callable[[T], bool]], *, name: str | None = None
    ) -> SplitStream[T]:
        """Name one or more outputs for each record; `select` picks them.

        A function returns the name(s) of a record's outputs; a mapping gives a predicate for each name.

        >>> from penstock import StreamEnvironment
        >>> numbers = StreamEnvironment(executor="inline").from_collection([1, 2, 3])
        >>> numbers.split(lambda n: "odd" if n % 2 else "even").select("odd").execute_and_collect()
        [1, 3]
        """
        return SplitStream(self.process(_Split(selector), name=name))

    # --- tables ------------------------------------------------------------------------------------------------------------

    def enrich(
        self,
        table: Any,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        columns: Iterable[str] | Mapping[str, str] | None = None,
        how: Literal["left", "inner"] = "left",
        function: Callable[[T, dict[str, Any] | None], U] | None = None,
        refresh: Duration | None = None,
        format: str | None = None,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[Any]:
        """Each record with the rows of a table that have its key: a table that fits into every worker's memory.

        - `table`: a pyarrow Table, a path of files (Parquet unless the ending or `format` says otherwise), a Spark DataFrame, or
          a function that returns a pyarrow Table.
        - `on`: columns that both have; a dict where the table calls them otherwise. Null is no key.
        - `columns`: of the table, with new names if a dict; all but the key without.
        - `how`: `"left"` keeps records without a row, `"inner"` does not.
        - `refresh`: how old the table may get; `Job.refresh` asks for it. Which version an epoch used is in its manifest.
        - `function`: gives the result, of the record and the row as a dict (None: there is none), in place of columns.

        >>> import pyarrow as pa
        >>> from penstock import StreamEnvironment
        >>> people = pa.table({"id": [1, 2], "name": ["ann", "bob"]})
        >>> visits = StreamEnvironment(executor="inline").from_collection([{"id": 2, "page": "a"}, {"id": 3, "page": "b"}])
        >>> visits.enrich(people, on="id").execute_and_collect()
        [{'id': 2, 'page': 'a', 'name': 'bob'}, {'id': 3, 'page': 'b', 'name': None}]
        """
        from penstock.joins.static.lower import enrich_step

        definition = enrich_step(table, on, columns, how, function, refresh, format, errors)
        return self._then(definition, name, "enrich")

    # --- ends --------------------------------------------------------------------------------------------------------------

    def sink_to(self, sink: Sink, *, name: str | None = None, previous_names: Sequence[str] = ()) -> None:
        """Write the stream to a sink. `previous_names`: what it was called; the target still knows it."""
        if isinstance(sink, type) or not isinstance(sink, Sink):
            raise PlanError(
                f"{sink!r} is not a sink",
                hint="for example FileSink(...) or PrintSink(); your own has all that penstock.connectors.protocol.Sink has",
            )
        self._env._add(SinkStep(sink=sink), self._input(), name=name, label="sink", previous_names=previous_names)

    def print(self, prefix: str = "", *, name: str | None = None) -> None:
        """Print each record on the driver when its epoch is committed."""
        self.sink_to(PrintSink(prefix), name=name)

    @folding
    def execute_and_collect(self, **settings: Any) -> list[T]:
        """Run the program and return this stream's records. For bounded input."""
        from penstock.connectors.collecting.sink import CollectSink

        sink = CollectSink()
        self.sink_to(sink)
        self._env.execute(**settings)
        return list(sink.results())

    # --- plumbing ----------------------------------------------------------------------------------------------------------

    def _stateless(self, what: StatelessKind, function: Any, name: str | None, errors: ErrorPolicy) -> DataStream[Any]:
        if not callable(function) and not callable(getattr(function, what, None)):
            raise PlanError(
                f"{what}({function!r}): this is not a function",
                hint=f"give a function, a lambda, or an object with a method {what}()",
            )
        if isinstance(function, type) and callable(getattr(function, what, None)):
            raise PlanError(f"{what}({function.__name__}): this is a class", hint=f"give an instance: {function.__name__}()")
        return self._then(per_record(what, function, errors), name, what)

    def _then(self, definition: Definition, name: str | None, label: str, previous_names: Sequence[str] = ()) -> DataStream[Any]:
        step = self._env._add(definition, self._input(), name=name, label=label, previous_names=previous_names)
        return DataStream(self._env, step)

    def _input(self) -> Input:
        return Input(step=self._step, tag=self._tag, exchange=self._exchange)

    def _has_columns(self, selector: Sequence[str | int]) -> None:
        """Refuse a key that steps before have dropped."""
        schema = schema_of(self._env._graph, self._input(), self._env._schemas, ask=False)
        for name in selector:
            if schema is not None and isinstance(name, str) and name not in schema:
                raise PlanError(
                    f"key_by({name!r}): the records of step {self._step!r} have no such column",
                    detail=f"at: {calling_line()}\ncolumns: {', '.join(schema.names)}",
                    hint=did_you_mean(name, schema.names) or "keep the column in the select(...) before",
                )

    def _no_exchange(self, what: str) -> None:
        if self._exchange is not None:
            raise PlanError(f"{what} directly after {self._exchange.kind}", hint="one exchange is enough: leave the first out")


def batch_options(
    format: str, schema: Any, columns: Iterable[str] | None, timestamp: str | None, unit: Unit, aligned: bool
) -> dict[str, Any]:
    """The options of `map_batches`, checked, as its definition has them."""
    if format not in ("arrow", "pandas"):
        raise PlanError(f"map_batches(format={format!r})", hint='choose "arrow" or "pandas"')
    if isinstance(columns, str):
        raise PlanError(f"map_batches(columns={columns!r})", hint=f"give a list: columns=[{columns!r}]")
    if aligned and timestamp is not None:
        raise PlanError("map_batches with both timestamp= and aligned=True", hint="times are in a column, or stay as they are")
    check_unit(unit, timestamp)
    return {
        "as_pandas": format == "pandas",
        "row": DICT_ROW if schema is None else RowType(schema),
        "columns": None if columns is None else tuple(columns),
        "timestamp": timestamp,
        "unit": unit,
        "aligned": aligned,
    }


class _Split(ProcessFunction[Any, Any]):
    """Sends each record to the side outputs its selector names."""

    def __init__(self, selector: Any) -> None:
        self.selector = selector

    def function_calls(self) -> tuple[Call, ...]:
        if isinstance(self.selector, Mapping):
            return tuple(call_of(accepts, "accepts", "value") for accepts in self.selector.values())
        return (call_of(self.selector, "selector", "value", several=True),)

    def process(self, value: Any, ctx: Any) -> None:
        if isinstance(self.selector, Mapping):
            names: Iterable[str] = [name for name, accepts in self.selector.items() if accepts(value)]
        else:
            chosen = self.selector(value)
            names = (chosen,) if isinstance(chosen, str) else chosen or ()
        for name in names:
            ctx.output(OutputTag(name), value)


class SplitStream(Generic[T]):
    """The outputs of `split`."""

    def __init__(self, stream: DataStream[T]) -> None:
        self._stream = stream

    def select(self, *names: str) -> DataStream[T]:
        """The records of one output, or of several together."""
        if not names:
            raise PlanError("select needs a name", hint='for example select("even")')
        outputs: list[DataStream[T]] = [self._stream.side_output(OutputTag(name)) for name in names]
        return outputs[0] if len(outputs) == 1 else outputs[0].union(*outputs[1:])
