"""The temporal join: a keyed function of records and of versions.

Laws:
- A record waits until the watermark has reached its timestamp; then it meets the newest version that is not later than it, of
  those that have come by then.
- A version is kept until the watermark has reached a newer one. `-D` ends a row: from its time on there is none. `-U` says
  nothing.
- A record or version that comes behind the watermark is late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from penstock.changes import ANY_CHANGES, APPENDS, Changes, RowKind
from penstock.contexts import RuntimeContext
from penstock.functions import Call, Function, KeyedCoProcessFunction, OutputTag
from penstock.ids import Milliseconds
from penstock.joins.functions import JoinContext
from penstock.joins.interval.record import JoinBody
from penstock.joins.keyed_steps import Changed
from penstock.joins.keys import is_null
from penstock.joins.results import Result
from penstock.joins.spec import LEFT, RIGHT, Side
from penstock.state.descriptors import MapState
from penstock.windows.step import no_timestamp


def described(keeps: bool, late: tuple[str | None, str | None]) -> dict[str, str]:
    """For explain."""
    where = ["dropped, and counted" if tag is None else f"to the side output {tag!r}, and counted" for tag in late]
    return {
        "join": f"{'left' if keeps else 'inner'}, with the version as of event time",
        "late records": f"left: {where[0]}; versions: {where[1]}",
    }


def accepted(side: Side) -> Changes:
    """Versions come and go; a record is joined once."""
    return APPENDS if side == LEFT else ANY_CHANGES


_GONE = RowKind.DELETE.code
_BEFORE = RowKind.UPDATE_BEFORE.code


class TemporalJoinFunction(KeyedCoProcessFunction[Any, Any, Any, Result]):
    """`keeps`: records without a version are results too; `types`: of records and versions, as state keeps them."""

    def __init__(self, body: JoinBody, *, keeps: bool, late: tuple[str | None, str | None], types: tuple[Any, Any]) -> None:
        self.body = body
        self.function = body.function
        self.keeps = keeps
        self.late = late
        record: Any = types[0]
        version: Any = types[1]
        self.waiting: MapState[int, Any] = MapState(int, None if record is None else list[record])
        self.versions: MapState[int, Any] = MapState(int, None if version is None else tuple[bool, version | None])

    def function_calls(self) -> tuple[Call, ...]:
        return self.body.calls()

    def accepts(self, side: Side) -> Changes:
        return accepted(side)

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS

    def of_what(self) -> dict[str, str]:
        return {}

    def describe(self) -> dict[str, str]:
        return described(self.keeps, self.late)

    def open(self, context: RuntimeContext) -> None:
        self._context = context
        if isinstance(self.function, Function):
            self.function.open(context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def process1(self, value: Changed, ctx: Any) -> Iterator[Result]:
        time = ctx.timestamp
        if time is None:
            raise no_timestamp(self._context.step, value.value)
        if time < ctx.current_watermark:
            self._set_late(LEFT, value, ctx)
            return
        self.waiting[time] = [*(self.waiting.get(time) or ()), value.value]
        ctx.timers.register_event_time(time)
        yield from ()

    def process2(self, value: Changed, ctx: Any) -> Iterator[Result]:
        time = ctx.timestamp
        if time is None:
            raise no_timestamp(self._context.step, value.value)
        if time < ctx.current_watermark:
            self._set_late(RIGHT, value, ctx)
        elif value.kind != _BEFORE:
            gone = value.kind == _GONE
            self.versions[time] = (gone, None if gone else value.value)
            ctx.timers.register_event_time(max(time, ctx.current_watermark + 1))
        yield from ()

    def _set_late(self, side: Side, value: Changed, ctx: Any) -> None:
        tag = self.late[side]
        self._context.count(("late_left", "late_right")[side])
        if tag is None:
            self._context.count("late_dropped")
        else:
            ctx.output(OutputTag(tag), value.value)

    def on_timer(self, timestamp: Milliseconds, ctx: Any) -> Iterator[Result]:
        times = sorted(self.versions)
        place = bisect_right(times, timestamp)
        kept = self.waiting.get(timestamp)
        if kept is not None:
            gone, version, since = (True, None, None)
            if place and not is_null(ctx.key):
                since = times[place - 1]
                gone, version = self.versions[since]
            del self.waiting[timestamp]
            for value in kept:
                if not gone or self.keeps:
                    joined = JoinContext(ctx)
                    joined.left_timestamp, joined.right_timestamp = timestamp, None if gone else since
                    joined.timestamp = timestamp
                    for result in self.body.results(value, version, joined):
                        yield Result(result, timestamp)
        for old in times[: max(0, place - 1)]:
            del self.versions[old]
        if place and self.versions[times[place - 1]][0]:
            del self.versions[times[place - 1]]
