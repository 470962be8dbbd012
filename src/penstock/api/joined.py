"""Joins of two keyed streams as a whole, and by version, as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from penstock.api.join_ends import JoinEnds, Types
from penstock.api.joining import Columns, TwoStreams, check_tags
from penstock.api.stream import DataStream
from penstock.api.windowed_joins import WindowJoin
from penstock.errors import PlanError
from penstock.functions import OutputTag
from penstock.joins.columns import JoinedColumns
from penstock.joins.interval.record import JoinBody
from penstock.joins.regular.record import RegularJoinFunction, RegularKind, ttl_of
from penstock.joins.spec import JoinKind, outer_as
from penstock.joins.temporal.record import TemporalJoinFunction
from penstock.joins.temporal.step import ColumnarTemporalJoin
from penstock.plan.definition import ErrorPolicy
from penstock.timing.durations import Duration
from penstock.windows.assigners import WindowAssigner
from penstock.windows.evictors import Evictor
from penstock.windows.triggers import Trigger

L = TypeVar("L")
R = TypeVar("R")


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
        return Join(self._streams, outer_as(self._how, "left"), self._ttl)

    def right(self) -> Join[L | None, R]:
        """Right records without a partner are results too, until one comes."""
        return Join(self._streams, outer_as(self._how, "right"), self._ttl)

    def full(self) -> Join[L | None, R | None]:
        """Records of both sides without a partner are results too, until one comes."""
        return Join(self._streams, outer_as(self._how, "full"), self._ttl)

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
