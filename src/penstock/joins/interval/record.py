"""The interval join record by record: a keyed function of both sides, with state and timers.

For each key and side a map from timestamps to the records that have them. A timer at a record's end removes it, and gives those
without a partner where they are results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.contexts import RuntimeContext
from penstock.errors import PlanError
from penstock.functions import Call, Function, KeyedCoProcessFunction, OutputTag, call_of, life_cycle, method_call
from penstock.ids import Milliseconds
from penstock.joins.functions import JoinContext
from penstock.joins.keys import is_null
from penstock.joins.results import Result
from penstock.joins.spec import LEFT, RIGHT, IntervalSpec, Side
from penstock.state.descriptors import MapState
from penstock.windows.step import no_timestamp

Kept = list[tuple[bool, Any]]
"""(has it found a partner, the record), in order of arrival."""


class JoinBody(Function):
    """What is called for two records: `join(left, right)` or a plain function, for one result; `process(left, right, ctx)` for
    any number."""

    def __init__(self, function: Any) -> None:
        if isinstance(function, type):
            raise PlanError(f"{function.__name__}: this is a class", hint=f"give an instance: {function.__name__}()")
        self.function = function
        self.several = callable(getattr(function, "process", None))
        single = getattr(function, "join", None) or function
        if not self.several and not callable(single):
            raise PlanError(
                f"{function!r} is not a join function",
                hint="give a function of the left and the right record, or an instance of a JoinFunction or ProcessJoinFunction",
            )

    def calls(self) -> tuple[Call, ...]:
        if self.several:
            return (method_call(self.function, "process", "left", "right", "ctx", several=True), *life_cycle(self.function))
        return (call_of(self.function, "join", "left", "right"), *life_cycle(self.function))

    def results(self, left: Any, right: Any, ctx: JoinContext) -> Any:
        if self.several:
            return self.function.process(left, right, ctx) or ()
        return (getattr(self.function, "join", self.function)(left, right),)


class IntervalJoinFunction(KeyedCoProcessFunction[Any, Any, Any, Result]):
    """`types`: of the records of both sides, as state keeps them."""

    def __init__(self, spec: IntervalSpec, body: JoinBody, types: tuple[Any, Any] = (None, None)) -> None:
        self.spec = spec
        self.body = body
        self.function = body.function
        self.left = self._kept(types[LEFT])
        self.right = self._kept(types[RIGHT])
        self._join_ctx: JoinContext | None = None

    @staticmethod
    def _kept(given: Any) -> MapState[int, Any]:
        return MapState(int, None if given is None else list[tuple[bool, given]])

    def function_calls(self) -> tuple[Call, ...]:
        return self.body.calls()

    def open(self, context: RuntimeContext) -> None:
        self._context = context
        if isinstance(self.function, Function):
            self.function.open(context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def process1(self, value: Any, ctx: Any) -> Iterator[Result]:
        return self._arrived(LEFT, value, ctx)

    def process2(self, value: Any, ctx: Any) -> Iterator[Result]:
        return self._arrived(RIGHT, value, ctx)

    def _arrived(self, side: Side, value: Any, ctx: Any) -> Iterator[Result]:
        spec, time = self.spec, ctx.timestamp
        if time is None:
            raise no_timestamp(self._context.step, value)
        if time < ctx.current_watermark:
            self._set_late(side, value, ctx)
            return
        mine, others = (self.left, self.right) if side == LEFT else (self.right, self.left)
        lower, upper = spec.bounds(side)
        found = False
        near = () if is_null(ctx.key) else others
        for other_time in sorted(other for other in near if time + lower <= other <= time + upper):
            kept: Kept = others[other_time]
            found = True
            if spec.outer(RIGHT if side == LEFT else LEFT) and not all(met for met, _ in kept):
                others[other_time] = [(True, other) for _, other in kept]
            for _, other in kept:
                if side == LEFT:
                    yield from self._joined(value, time, other, other_time, ctx)
                else:
                    yield from self._joined(other, other_time, value, time, ctx)
        mine[time] = [*(mine.get(time) or ()), (found, value)]
        ctx.timers.register_event_time(time + spec.keep_ms(side))

    def on_timer(self, timestamp: Milliseconds, ctx: Any) -> Iterator[Result]:
        """What has its end here goes; what may have come with this very time meanwhile waits for a timer of its own."""
        for side, mine in ((LEFT, self.left), (RIGHT, self.right)):
            time = timestamp - self.spec.keep_ms(side)
            kept: Kept | None = mine.get(time)
            if kept is None:
                continue
            del mine[time]
            if self.spec.outer(side):
                for met, value in kept:
                    if met:
                        continue
                    if side == LEFT:
                        yield from self._joined(value, time, None, None, ctx, at=timestamp)
                    else:
                        yield from self._joined(None, None, value, time, ctx, at=timestamp)

    def _joined(
        self,
        left: Any,
        left_time: Milliseconds | None,
        right: Any,
        right_time: Milliseconds | None,
        ctx: Any,
        at: Milliseconds | None = None,
    ) -> Iterator[Result]:
        joined = JoinContext(ctx)
        joined.left_timestamp, joined.right_timestamp = left_time, right_time
        if at is None:
            assert left_time is not None
            assert right_time is not None
            at = max(left_time, right_time)
        joined.timestamp = at
        for result in self.body.results(left, right, joined):
            yield Result(result, at)

    def _set_late(self, side: Side, value: Any, ctx: Any) -> None:
        tag = self.spec.late[side]
        self._context.count(("late_left", "late_right")[side])
        if tag is None:
            self._context.count("late_dropped")
        else:
            ctx.output(OutputTag(tag), value)
