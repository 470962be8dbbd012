"""The join of two whole streams: every record meets all of its key, whenever they come.

Records may be changes: `+I` and `+U` add a row to its side, `-U` and `-D` take an equal one away. Rows are kept as long as a ttl
says. How many partners a row has is counted where that decides what is a result: those that are forgotten count as well, for
they are in results that stay. A row is forgotten so long after it came, whatever it has met since.

Law: the results, applied as changes, are at any time the join of the rows that both sides have, if no row is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

from penstock.changes import ANY_CHANGES, APPENDS, Changes, RowKind
from penstock.contexts import RuntimeContext
from penstock.functions import Call, Function, KeyedCoProcessFunction
from penstock.joins.functions import JoinContext
from penstock.joins.interval.record import JoinBody
from penstock.joins.keyed_steps import Changed
from penstock.joins.keys import is_null
from penstock.joins.results import Result
from penstock.joins.spec import LEFT, RIGHT, JoinKind, Side, outer
from penstock.state.descriptors import MapState, Ttl
from penstock.timing.durations import Duration, to_ms


def ttl_of(after: Duration | None, time: Literal["event", "processing"] = "event") -> Ttl | None:
    """A time to live as it is given to joins; None: for ever."""
    return None if after is None else Ttl(timedelta(milliseconds=to_ms(after, what="the time to live of a join")), time=time)


RegularKind = JoinKind | Literal["semi", "anti"]
"""`semi`: left rows that have a partner, once; `anti`: those that have none."""

_INSERT, _DELETE = RowKind.INSERT.code, RowKind.DELETE.code
_TAKE_AWAY = (RowKind.UPDATE_BEFORE.code, _DELETE)

Row = tuple[Any, int]
"""A row and how many partners it has."""


class RegularJoinFunction(KeyedCoProcessFunction[Any, Any, Any, Result]):
    """`types`: of the rows of both sides, as state keeps them."""

    def __init__(self, body: JoinBody | None, how: RegularKind, ttl: Ttl | None, types: tuple[Any, Any]) -> None:
        self.body = body
        self.function = None if body is None else body.function
        self.how = how
        self.ttl = ttl
        self.left: MapState[int, Row] = self._rows(types[LEFT])
        self.right: MapState[int, Row] = self._rows(types[RIGHT])

    def _rows(self, given: Any) -> MapState[int, Row]:
        return MapState(int, None if given is None else tuple[given, int], ttl=self.ttl)

    def function_calls(self) -> tuple[Call, ...]:
        return () if self.body is None else self.body.calls()

    def accepts(self, side: Side) -> Changes:
        return ANY_CHANGES

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        if self.how == "inner" or (self.how == "semi" and inputs[RIGHT] == APPENDS):
            return APPENDS.union(*inputs)
        return APPENDS.union({RowKind.DELETE}, *inputs)

    def of_what(self) -> dict[str, str]:
        """How many partners a row has is counted for some joins only."""
        return dict.fromkeys(("left", "right"), f"join; {self.how}")

    def describe(self) -> dict[str, str]:
        kept = "for ever" if self.ttl is None else f"for {self.ttl.ms} ms of {self.ttl.time} time"
        return {"join": f"{self.how}, of all records of a key", "kept": f"rows of both sides, {kept}"}

    def open(self, context: RuntimeContext) -> None:
        self._context = context
        if isinstance(self.function, Function):
            self.function.open(context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def process1(self, value: Changed, ctx: Any) -> Iterator[Result]:
        return self._changed(LEFT, value, ctx)

    def process2(self, value: Changed, ctx: Any) -> Iterator[Result]:
        return self._changed(RIGHT, value, ctx)

    def _changed(self, side: Side, change: Changed, ctx: Any) -> Iterator[Result]:
        mine: Any = self.left if side == LEFT else self.right
        others: Any = self.right if side == LEFT else self.left
        partners: list[tuple[int, Row]] = [] if is_null(ctx.key) else sorted(others.items())
        if change.kind in _TAKE_AWAY:
            found = next(((place, met) for place, (row, met) in sorted(mine.items()) if row == change.value), None)
            if found is None:  # it has expired, or was never added
                self._context.count("not_found")
                return
            place, met = found
            del mine[place]
        else:
            met = len(partners)
            mine[max(mine, default=-1) + 1] = (change.value, met)
        if self.how in ("semi", "anti"):
            yield from self._filtered(side, change, met, partners, ctx)
        else:
            yield from self._paired(side, change, met, partners, ctx)
        step = -1 if change.kind in _TAKE_AWAY else 1
        if self._counts(RIGHT if side == LEFT else LEFT):
            for place, (row, count) in partners:
                others.amend(place, (row, count + step))

    def _counts(self, side: Side) -> bool:
        """Does it matter how many partners the rows of a side have?"""
        return side == LEFT if self.how in ("semi", "anti") else outer(self.how, side)  # type: ignore[arg-type]

    def _paired(self, side: Side, change: Changed, met: int, partners: list[tuple[int, Row]], ctx: Any) -> Iterator[Result]:
        how: Any = self.how
        other: Side = RIGHT if side == LEFT else LEFT
        away = change.kind in _TAKE_AWAY
        kind = change.kind if how == "inner" else _DELETE if away else _INSERT
        if not met and outer(how, side):
            yield from self._results(side, change.value, None, kind, ctx)
        for _, (row, found) in partners:
            alone = outer(how, other) and found == (1 if away else 0)
            if alone and not away:
                yield from self._results(other, row, None, _DELETE, ctx)
            yield from self._results(side, change.value, row, kind, ctx)
            if alone and away:
                yield from self._results(other, row, None, _INSERT, ctx)

    def _filtered(self, side: Side, change: Changed, met: int, partners: list[tuple[int, Row]], ctx: Any) -> Iterator[Result]:
        semi, away = self.how == "semi", change.kind in _TAKE_AWAY
        if side == LEFT:
            if bool(met) == semi:
                yield Result(change.value, ctx.timestamp, change.kind)
            return
        for _, (row, found) in partners:
            if found == (1 if away else 0):
                yield Result(row, ctx.timestamp, _DELETE if semi == away else _INSERT)

    def _results(self, side: Side, value: Any, partner: Any, kind: int, ctx: Any) -> Iterator[Result]:
        assert self.body is not None
        left, right = (value, partner) if side == LEFT else (partner, value)
        joined = JoinContext(ctx)
        if ctx.timestamp is not None:
            joined.timestamp = ctx.timestamp
        for result in self.body.results(left, right, joined):
            yield Result(result, None, kind)
