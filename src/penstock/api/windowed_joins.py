"""Joins and co-groups of two keyed streams in windows, as they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from penstock.api.join_ends import JoinEnds, Types
from penstock.api.joining import Columns, TwoStreams, check_tags
from penstock.api.stream import DataStream
from penstock.errors import PlanError
from penstock.functions import OutputTag
from penstock.joins.columns import JoinedColumns
from penstock.joins.functions import CoGroupFunction
from penstock.joins.interval.record import JoinBody
from penstock.joins.spec import JoinKind, outer_as
from penstock.joins.window.record import CoGroup, KeyOfSide, OfSide, WindowJoinFunction, record_of
from penstock.joins.window.step import ColumnarWindowJoin, why_not_over_columns
from penstock.plan.definition import ErrorPolicy
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

_SIDES: OutputTag[Any] = OutputTag("late of both sides")

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
        return WindowJoin(self._streams, self._windows, outer_as(self._how, "left"), self._late)

    def right(self) -> WindowJoin[L | None, R]:
        """Right records of windows without a left one are results too."""
        return WindowJoin(self._streams, self._windows, outer_as(self._how, "right"), self._late)

    def full(self) -> WindowJoin[L | None, R | None]:
        """Records of windows that the other side has none in are results too."""
        return WindowJoin(self._streams, self._windows, outer_as(self._how, "full"), self._late)

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
