"""Joins of two keyed streams by windows, by version, and as a whole, as they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from penstock.api.joining import Columns, TwoStreams, check_tags
from penstock.api.stream import DataStream
from penstock.errors import PlanError
from penstock.functions import OutputTag
from penstock.joins.columns import JoinedColumns
from penstock.joins.functions import CoGroupFunction, JoinFunction, ProcessJoinFunction
from penstock.joins.interval.record import JoinBody
from penstock.joins.keyed_steps import JoinProcess
from penstock.joins.records import SelectColumns
from penstock.joins.regular.record import RegularJoinFunction, RegularKind, ttl_of
from penstock.joins.spec import JoinKind
from penstock.joins.temporal.record import TemporalJoinFunction
from penstock.joins.temporal.step import ColumnarTemporalJoin
from penstock.joins.window.record import CoGroup, KeyOfSide, OfSide, WindowJoinFunction, record_of
from penstock.joins.window.step import ColumnarWindowJoin, why_not_over_columns
from penstock.plan.definition import ErrorPolicy
from penstock.plan.schema import Schema
from penstock.timing.durations import Duration
from penstock.windows.assigners import AlignedWindows, WindowAssigner
from penstock.windows.evictors import Evictor
from penstock.windows.functions import WindowFunction
from penstock.windows.lower import spec_of, window_step
from penstock.windows.step import WindowBody
from penstock.windows.triggers import Trigger

L = TypeVar("L")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - the output

Types = tuple[Any, Any]
_SIDES: OutputTag[Any] = OutputTag("late of both sides")


class JoinEnds(Generic[L, R]):
    """What can be made of records that are joined. `types`: of the records of both sides, for the state."""

    _streams: TwoStreams

    def select(
        self,
        left: Columns | None = None,
        right: Columns | None = None,
        *,
        types: Types = (None, None),
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[dict[str, Any]]:
        """Columns of both sides: lists of names, or dicts from names to new names; without any, all columns of both."""
        columns = self._streams.columns(left, right)
        return self._made(JoinBody(SelectColumns(columns)), columns, types, name, "fail", previous_names)

    def apply(
        self,
        function: Callable[[L, R], O] | JoinFunction[L, R, O],
        *,
        types: Types = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """One result of each pair, by a function of the left and the right record."""
        return self._made(JoinBody(function), None, types, name, errors, previous_names)

    def process(
        self,
        function: ProcessJoinFunction[L, R, O],
        *,
        types: Types = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """Any number of results of each pair, by a function that also sees their times."""
        if not callable(getattr(function, "process", None)):
            raise PlanError(
                f"{function!r} is not a ProcessJoinFunction",
                hint="give an instance of a class with process(self, left, right, ctx); or a plain function to apply(...)",
            )
        return self._made(JoinBody(function), None, types, name, errors, previous_names)

    def _made(
        self,
        body: JoinBody,
        columns: JoinedColumns | None,
        types: Types,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        raise NotImplementedError

    def _process(
        self,
        body: Any,
        columns: JoinedColumns | None,
        label: str,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        exchange = self._streams.left._exchange
        definition = JoinProcess(
            body=body,
            key_type=exchange.key_type,
            key_fields=exchange.key_fields,
            label=label.replace("_", " "),
            errors=errors,
            schema_of=None if columns is None else SchemaOf(columns),
            why="a function sees the records" if columns is None else "rows are kept one by one",
        )
        return self._streams.then(definition, name, label, previous_names)


class SchemaOf:
    """What is known of the results of columns."""

    def __init__(self, columns: JoinedColumns) -> None:
        self._columns = columns

    def __call__(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return self._columns.schema((inputs[0], inputs[1]))


# --- whole streams ---------------------------------------------------------------------------------------------------------


class Join(JoinEnds[L, R]):
    """What `join(...)` gives: all records of a key, of both sides, whenever they come; or, with `window`, those of one window.

    Results of outer joins, and of streams that update, are changes.
    """

    def __init__(self, streams: TwoStreams, how: JoinKind = "inner", ttl: Any = None) -> None:
        self._streams = streams
        self._how = how
        self._ttl = ttl

    def left(self) -> Join[L, R | None]:
        """Left records without a partner are results too, until one comes."""
        return Join(self._streams, "left", self._ttl)

    def right(self) -> Join[L | None, R]:
        """Right records without a partner are results too, until one comes."""
        return Join(self._streams, "right", self._ttl)

    def full(self) -> Join[L | None, R | None]:
        """Records of both sides without a partner are results too, until one comes."""
        return Join(self._streams, "full", self._ttl)

    def ttl(self, after: Duration, *, time: Literal["event", "processing"] = "event") -> Join[L, R]:
        """Forget a row so long after it came; without this, all rows are kept for ever."""
        return Join(self._streams, self._how, ttl_of(after, time))

    def semi(self, *, types: Types = (None, None), name: str | None = None, previous_names: Sequence[str] = ()) -> DataStream[L]:
        """Left records that have a partner, once each."""
        return self._filtered("semi", types, name, previous_names)

    def anti(self, *, types: Types = (None, None), name: str | None = None, previous_names: Sequence[str] = ()) -> DataStream[L]:
        """Left records that have no partner, until one comes."""
        return self._filtered("anti", types, name, previous_names)

    def window(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: Duration = 0,
    ) -> WindowJoin[L, R]:
        """Records that are in one window."""
        if self._ttl is not None:
            raise PlanError("join with both ttl(...) and window(...)", hint="a window is dropped when it is over: leave ttl out")
        return WindowJoin(self._streams, (assigner, trigger, evictor, allowed_lateness), self._how)

    def _filtered(self, how: RegularKind, types: Types, name: str | None, previous_names: Sequence[str]) -> DataStream[Any]:
        if self._how != "inner":
            raise PlanError(f"a join cannot be {self._how} and {how}", hint=f"leave {self._how}() out")
        body = RegularJoinFunction(None, how, self._ttl, types)
        return self._process(body, None, f"{how}_join", name, "fail", previous_names)

    def _made(
        self,
        body: JoinBody,
        columns: JoinedColumns | None,
        types: Types,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        return self._process(
            RegularJoinFunction(body, self._how, self._ttl, types), columns, "join", name, errors, previous_names
        )


# --- versions --------------------------------------------------------------------------------------------------------------


class TemporalJoin(JoinEnds[L, R]):
    """What `temporal_join(...)` gives: each record with the version of the other stream that was valid at its event time."""

    def __init__(self, streams: TwoStreams, *, keeps: bool = False, late: tuple[str | None, str | None] = (None, None)) -> None:
        self._streams = streams
        self._keeps = keeps
        self._late = late

    def left(self) -> TemporalJoin[L, R | None]:
        """Records for which there is no version are results too."""
        return TemporalJoin(self._streams, keeps=True, late=self._late)

    def late(self, *, left: OutputTag[Any] | None = None, right: OutputTag[Any] | None = None) -> TemporalJoin[L, R]:
        """Side outputs of records and of versions that come behind the watermark; without one they are dropped."""
        return TemporalJoin(self._streams, keeps=self._keeps, late=check_tags(left, right))

    def select(
        self,
        left: Columns | None = None,
        right: Columns | None = None,
        *,
        types: Types = (None, None),
        columnar: bool = True,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[dict[str, Any]]:
        """Columns of both sides: lists of names, or dicts from names to new names; without any, all columns of both.

        Records stay columns, and are matched in bulk; `columnar=False` joins record by record, which gives the same.
        """
        if not columnar:
            return super().select(left, right, types=types, name=name, previous_names=previous_names)
        columns = self._streams.columns(left, right)
        definition = ColumnarTemporalJoin(columns=columns, keeps=self._keeps, late=self._late, **self._streams.keys)
        return self._streams.then(definition, name, "temporal_join", previous_names)

    def _made(
        self,
        body: JoinBody,
        columns: JoinedColumns | None,
        types: Types,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        function = TemporalJoinFunction(body, keeps=self._keeps, late=self._late, types=types)
        return self._process(function, columns, "temporal_join", name, errors, previous_names)


# --- windows ---------------------------------------------------------------------------------------------------------------

Windows = tuple[WindowAssigner, Trigger | None, Evictor | None, Duration]


class InWindows:
    """Both sides of a join as one stream, in windows."""

    def __init__(self, streams: TwoStreams, windows: Windows, late: tuple[str | None, str | None]) -> None:
        self._streams = streams
        self._windows = windows
        self._late = late

    def then(
        self,
        function: WindowFunction[Any, Any, Any],
        label: str,
        types: Types,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        left, right = self._streams.left, self._streams.right
        key = KeyOfSide((_selector(left), _selector(right)))
        sides = [
            DataStream(side._env, side._step, side._tag).map(OfSide(number), name=None if name is None else f"{name}/{which}")  # type: ignore[arg-type]
            for number, which, side in ((0, "left", left), (1, "right", right))
        ]
        both: DataStream[Any] = sides[0].union(sides[1], name=None if name is None else f"{name}/both")
        keyed = both.key_by(key, key_type=left._exchange.key_type)
        of_left: Any = types[0]
        of_right: Any = types[1]
        state_type = None if types == (None, None) else tuple[int, of_left | None, of_right | None]
        assigner, trigger, evictor, lateness = self._windows
        definition = window_step(
            spec_of(assigner, trigger, evictor, lateness, None if self._late == (None, None) else _SIDES),
            WindowBody(function=function, state_type=state_type),
            keyed._exchange,
            label=label.partition("_")[2] if label.startswith("window_") else label,
            errors=errors,
            columnar=False,
        )
        made = keyed._then(definition, name, label, previous_names)
        return made if self._late == (None, None) else WithLateSides(made, self._late)


class WithLateSides(DataStream[Any]):
    """Results of a join in windows, with a side output of late records for each side."""

    def __init__(self, made: DataStream[Any], late: tuple[str | None, str | None]) -> None:
        super().__init__(made._env, made._step)
        self._late = late

    def side_output(self, tag: OutputTag[Any]) -> DataStream[Any]:
        if tag.name not in self._late:
            return super().side_output(tag)
        late = DataStream(self._env, self._step).side_output(_SIDES)
        return late.filter(IsOf(tuple(side for side, name in enumerate(self._late) if name == tag.name))).map(record_of)


class IsOf:
    """Is a record of one of these sides?"""

    def __init__(self, sides: tuple[int, ...]) -> None:
        self._sides = sides

    def __call__(self, value: Any) -> bool:
        return value[0] in self._sides


class WindowJoin(JoinEnds[L, R]):
    """What `join(...).window(...)` gives: pairs of records of one key and window. Their time is the window's last moment."""

    def __init__(
        self, streams: TwoStreams, windows: Windows, how: JoinKind = "inner", late: tuple[str | None, str | None] = (None, None)
    ) -> None:
        self._streams = streams
        self._windows = windows
        self._how = how
        self._late = late

    def left(self) -> WindowJoin[L, R | None]:
        """Left records of windows without a right one are results too."""
        return WindowJoin(self._streams, self._windows, "left", self._late)

    def right(self) -> WindowJoin[L | None, R]:
        """Right records of windows without a left one are results too."""
        return WindowJoin(self._streams, self._windows, "right", self._late)

    def full(self) -> WindowJoin[L | None, R | None]:
        """Records of windows that the other side has none in are results too."""
        return WindowJoin(self._streams, self._windows, "full", self._late)

    def late(self, *, left: OutputTag[Any] | None = None, right: OutputTag[Any] | None = None) -> WindowJoin[L, R]:
        """Side outputs of the late records of either side; without one they are dropped. All are counted."""
        return WindowJoin(self._streams, self._windows, self._how, check_tags(left, right))

    def select(
        self,
        left: Columns | None = None,
        right: Columns | None = None,
        *,
        types: Types = (None, None),
        columnar: bool = True,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[dict[str, Any]]:
        """Columns of both sides: lists of names, or dicts from names to new names; without any, all columns of both.

        In tumbling and sliding windows without trigger, evictor and lateness records stay columns, and are matched in bulk;
        `columnar=False` joins record by record, which gives the same.
        """
        assigner, trigger, evictor, lateness = self._windows
        plain = trigger is None and evictor is None and not lateness
        if not columnar or why_not_over_columns(assigner, plain=plain) is not None:
            return super().select(left, right, types=types, name=name, previous_names=previous_names)
        assert isinstance(assigner, AlignedWindows)
        columns = self._streams.columns(left, right)
        definition = ColumnarWindowJoin(assigner=assigner, columns=columns, how=self._how, late=self._late, **self._streams.keys)
        return self._streams.then(definition, name, "window_join", previous_names)

    def _made(
        self,
        body: JoinBody,
        columns: JoinedColumns | None,
        types: Types,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        function = WindowJoinFunction(body, self._how)
        windows = InWindows(self._streams, self._windows, self._late)
        return windows.then(function, "window_join", types, name, errors, previous_names)


class CoGrouped(Generic[L, R]):
    """What `co_group(...)` gives: with `window`, the records of each key and window, of both sides."""

    def __init__(self, streams: TwoStreams) -> None:
        self._streams = streams

    def window(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: Duration = 0,
    ) -> WindowedCoGroup[L, R]:
        """Records that are in one window."""
        return WindowedCoGroup(self._streams, (assigner, trigger, evictor, allowed_lateness))


class WindowedCoGroup(Generic[L, R]):
    """What `co_group(...).window(...)` gives."""

    def __init__(self, streams: TwoStreams, windows: Windows, late: tuple[str | None, str | None] = (None, None)) -> None:
        self._streams = streams
        self._windows = windows
        self._late = late

    def late(self, *, left: OutputTag[Any] | None = None, right: OutputTag[Any] | None = None) -> WindowedCoGroup[L, R]:
        """Side outputs of the late records of either side; without one they are dropped. All are counted."""
        return WindowedCoGroup(self._streams, self._windows, check_tags(left, right))

    def apply(
        self,
        function: Callable[[list[L], list[R]], Any] | CoGroupFunction[L, R, O],
        *,
        types: Types = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[Any]:
        """Any number of results of each window, by a function of the left and the right records, either of which may be none."""
        if isinstance(function, type) or not (callable(function) or callable(getattr(function, "co_group", None))):
            raise PlanError(
                f"apply({function!r}): this is not a function", hint="give a function of two lists, or a CoGroupFunction"
            )
        windows = InWindows(self._streams, self._windows, self._late)
        return windows.then(CoGroup(function), "co_group", types, name, errors, previous_names)


def _selector(stream: Any) -> Any:
    return stream._exchange.selector
