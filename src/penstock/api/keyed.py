"""Keyed streams: records by key, with state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from penstock.api.connected import (
    BroadcastStream,
    ConnectedStreams,
    KeyedBroadcastConnectedStreams,
    KeyedConnectedStreams,
    connected,
)
from penstock.api.joined import Join, TemporalJoin
from penstock.api.joining import IntervalJoin, TwoStreams
from penstock.api.patterns import PatternStream, RuleStream, pattern_stream, rule_stream
from penstock.api.stream import DataStream
from penstock.api.windowed import WindowedStream, windowed
from penstock.api.windowed_joins import CoGrouped
from penstock.cep.pattern import Pattern
from penstock.cep.step import TimeDomain, WhenFull
from penstock.errors import PlanError
from penstock.functions import AggregateFunction, KeyedProcessFunction, OutputTag, ReduceFunction
from penstock.joins.keyed_steps import UpdatingProcess
from penstock.joins.regular.first_within import FirstWithin
from penstock.joins.regular.record import ttl_of
from penstock.joins.regular.rows_of_keys import Deduplicate, TopN
from penstock.plan.definition import ErrorPolicy
from penstock.plan.exchange import Exchange
from penstock.runtime.operators.keyed import KeyedProcess
from penstock.runtime.operators.operator import method_of
from penstock.runtime.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce, RollingSum
from penstock.timing.durations import Duration
from penstock.windows.assigners import GlobalWindows, WindowAssigner
from penstock.windows.evictors import Evictor
from penstock.windows.lower import count_windows, key_names
from penstock.windows.triggers import Trigger

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")


class KeyedStream(DataStream[T], Generic[K, T]):
    """A stream whose records are brought together by key.

    `previous_names` of a step: what it was called; its state is still known by that.
    """

    _exchange: Exchange

    def process(  # type: ignore[override]
        self,
        function: KeyedProcessFunction[K, T, U],
        *,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """A function with state and timers for each key."""
        if isinstance(function, type):
            raise PlanError(f"process({function.__name__}): this is a class", hint=f"give an instance: {function.__name__}()")
        return self._keyed(function, "process", name, previous_names, errors)

    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        *,
        name: str | None = None,
        state_type: Any = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[T]:
        """Combine each record with the result so far, and emit the new result."""
        return self._keyed(RollingReduce(method_of(function, "reduce"), state_type), "reduce", name, previous_names)

    def fold(
        self,
        initial: U,
        function: Callable[[U, T], U],
        *,
        name: str | None = None,
        state_type: Any = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """Like `reduce`, from an initial value of another type."""
        return self._keyed(RollingFold(initial, function, state_type), "fold", name, previous_names)

    def aggregate(
        self,
        aggregate: AggregateFunction[T, A, U],
        *,
        name: str | None = None,
        accumulator_type: Any = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[U]:
        """Add each record to the key's accumulator, and emit its result."""
        return self._keyed(RollingAggregate(aggregate, accumulator_type), "aggregate", name, previous_names)

    def sum(
        self, field: str | int = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The record with `field` replaced by the running sum."""
        return self._keyed(RollingSum(field, state_type), "sum", name, previous_names)

    def min(
        self, field: str | int = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The first record of the key with `field` replaced by the least so far."""
        return self._keyed(RollingExtreme(field, least=True, whole=False, state_type=state_type), "min", name, previous_names)

    def max(
        self, field: str | int = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The first record of the key with `field` replaced by the greatest so far."""
        return self._keyed(RollingExtreme(field, least=False, whole=False, state_type=state_type), "max", name, previous_names)

    def min_by(
        self, field: str | int = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The record whose `field` is the least so far (the first of equals)."""
        return self._keyed(RollingExtreme(field, least=True, whole=True, state_type=state_type), "min_by", name, previous_names)

    def max_by(
        self, field: str | int = 0, *, name: str | None = None, state_type: Any = None, previous_names: Sequence[str] = ()
    ) -> DataStream[T]:
        """The record whose `field` is the greatest so far (the first of equals)."""
        return self._keyed(RollingExtreme(field, least=False, whole=True, state_type=state_type), "max_by", name, previous_names)

    @overload  # type: ignore[override]
    def connect(self, other: KeyedStream[K, U]) -> KeyedConnectedStreams[K, T, U]: ...

    @overload
    def connect(self, other: BroadcastStream[U]) -> KeyedBroadcastConnectedStreams[K, T, U]: ...

    def connect(self, other: DataStream[Any]) -> ConnectedStreams[T, Any]:
        """Two streams that are keyed alike, for a step that takes both: they share the state and the timers of a key. Or the
        other is broadcast, to control what is done with this one."""
        found: ConnectedStreams[T, Any] = connected(self, other)
        return found

    # --- windows -----------------------------------------------------------------------------------------------------------

    def window(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: Duration = 0,
        late: OutputTag[T] | None = None,
    ) -> WindowedStream[K, T]:
        """Put the records of each key into windows.

        A record within `allowed_lateness` after the end of its window updates it, and the window is emitted again. Beyond that
        it goes to the side output `late`; without one it is dropped, and counted.
        """
        return windowed(self, assigner, trigger, evictor, allowed_lateness, late, key_names(self._exchange))

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[K, T]:
        """Windows of `size` records of a key; with `slide`, the last `size` records, every `slide` records."""
        return self.window(GlobalWindows(), **count_windows(size, slide))

    # --- patterns ----------------------------------------------------------------------------------------------------------

    def pattern(  # type: ignore[override]
        self,
        pattern: Pattern,
        *,
        late: OutputTag[T] | None = None,
        time: TimeDomain = "event",
        ties: Callable[[T], Any] | None = None,
        state_type: Any = None,
        max_partial_matches: int = 10_000,
        when_full: WhenFull = "fail",
    ) -> PatternStream[T]:
        """Look for a pattern in the events of each key; `select`, `flat_select` or `process` take its matches.

        - `time="event"`: events are taken in order of time, those of one time by `ties` (gives what to sort by), or as
          they arrive; what comes too late goes to the side output `late`. `time="processing"`: as they arrive.
        - `state_type`: the type of the events, for those that are kept.
        - `max_partial_matches` of a key: with more, the job fails or, with `when_full="drop_oldest"`, drops the oldest.
        """
        return pattern_stream(
            self,
            pattern,
            late=late,
            time=time,
            ties=ties,
            state_type=state_type,
            max_partial_matches=max_partial_matches,
            when_full=when_full,
        )

    # --- joins -------------------------------------------------------------------------------------------------------------

    def interval_join(self, other: KeyedStream[K, U]) -> IntervalJoin[T, U]:
        """Pairs of records of one key whose times are near: `a.interval_join(b).between(lower, upper)`, then `select(...)`."""
        return IntervalJoin(TwoStreams(self, other, "interval_join"))

    def join(self, other: KeyedStream[K, U]) -> Join[T, U]:
        """Records of one key of both streams: of the whole streams, or with `window(...)` those of one window."""
        return Join(TwoStreams(self, other, "join"))

    def co_group(self, other: KeyedStream[K, U]) -> CoGrouped[T, U]:
        """All records of a key and window, of both streams: `a.co_group(b).window(...).apply(f)`."""
        return CoGrouped(TwoStreams(self, other, "co_group"))

    def temporal_join(self, versions: KeyedStream[K, U]) -> TemporalJoin[T, U]:
        """Each record with the version of the other stream that was valid at its event time.

        Every record of `versions` is the row of its key from its timestamp on; a `-D` ends it.
        """
        return TemporalJoin(TwoStreams(self, versions, "temporal_join"))

    def deduplicate(
        self,
        *,
        keep: Literal["first", "last"] = "first",
        within: Duration | None = None,
        time: Literal["event", "processing"] = "event",
        record_type: Any = None,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[T]:
        """One record of each key: the first, or the last, which is an update of the one before.

        `within`, with `"first"`: a record is a duplicate only if it is less than this from one that was given, before or after
        it, in event time (or comes so soon after it, in processing time). With `"last"`: a key is forgotten so long after its
        last record.
        """
        if keep not in ("first", "last"):
            raise PlanError(f"deduplicate(keep={keep!r})", hint='choose "first" or "last"')
        known = ttl_of(within, time)
        near = keep == "first" and known is not None and known.time == "event"
        function = FirstWithin(known.ms) if near and known else Deduplicate(keep, known, record_type)
        return self._updating(function, "deduplicate", name, previous_names)

    def top_n(
        self,
        n: int,
        by: str | int | Callable[[T], Any],
        *,
        largest: bool = True,
        within: Duration | None = None,
        time: Literal["event", "processing"] = "event",
        record_type: Any = None,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[T]:
        """The `n` records of each key with the largest (or smallest) values, as they change: `+I` comes in, `-D` goes out."""
        if n < 1:
            raise PlanError(f"top_n({n!r})", hint="say how many records of each key: a number of at least 1")
        return self._updating(TopN(n, by, largest, ttl_of(within, time), record_type), "top_n", name, previous_names)

    def _updating(self, function: Any, label: str, name: str | None, previous_names: Sequence[str]) -> DataStream[Any]:
        exchange = self._exchange
        definition = UpdatingProcess(body=function, key_type=exchange.key_type, key_fields=exchange.key_fields, label=label)
        return self._then(definition, name, label, previous_names)

    def patterns(
        self,
        rules: DataStream[Any],
        *,
        rejected: OutputTag[Any] | None = None,
        late: OutputTag[T] | None = None,
        time: TimeDomain = "event",
        ties: Callable[[T], Any] | None = None,
        state_type: Any = None,
        max_partial_matches: int = 10_000,
        when_full: WhenFull = "fail",
    ) -> RuleStream[T]:
        """Look for the patterns of rules, which a stream adds, changes and removes by id while the job runs.

        A record of `rules` is an object, or its JSON: `{"rule": id, "version": 2, "pattern": {...}, "on_change": "keep"}`, or
        `{"rule": id, "remove": true}`; what is malformed goes to the side output `rejected`. The rest: as of `pattern`.
        """
        return rule_stream(
            self,
            rules,
            rejected,
            late=late,
            time=time,
            ties=ties,
            state_type=state_type,
            max_partial_matches=max_partial_matches,
            when_full=when_full,
        )

    def _keyed(
        self, function: Any, label: str, name: str | None, previous_names: Sequence[str], errors: ErrorPolicy = "fail"
    ) -> DataStream[Any]:
        exchange = self._exchange
        definition = KeyedProcess(
            body=function, key_type=exchange.key_type, key_fields=exchange.key_fields, label=label, errors=errors
        )
        return self._then(definition, name, label, previous_names)
