"""What the laws promise and the engine does not do yet. Each test is strict: whoever mends one takes its mark away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import KeyedProcessFunction, StreamEnvironment, ValueState, Watermarks
from penstock.config import NO_RESTART
from penstock.testing import End, KeyedHarness, ScriptedSource, run_inline


class TimerThenCount(KeyedProcessFunction[Any, int, Any]):
    """How many records had come when the timer fired."""

    count = ValueState(int, default=0)

    def process(self, value: int, ctx: Any) -> None:
        self.count.update(self.count.value + 1)
        ctx.timers.register_event_time(5)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        yield self.count.value


@pytest.mark.xfail(
    reason="BoundedClock announces a watermark at the end of each batch only, so the cut decides where timers fire"
)
def test_bounded_watermarks_do_not_depend_on_the_cut() -> None:
    found = []
    for cut in (1, 2, None):
        env = StreamEnvironment("cut", parallelism=1)
        source = ScriptedSource([1, 10, 11, 12, End()], cut=cut)
        stream = env.from_source(source, watermarks=Watermarks.monotonous(timestamp=lambda n: n))
        found.append(run_inline(stream.key_by(lambda n: 0).process(TimerThenCount(), name="count")))
    assert found[0] == found[1] == found[2]


class Periodic(KeyedProcessFunction[Any, int, Any]):
    def process(self, value: int, ctx: Any) -> None:
        ctx.timers.register_event_time(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        if timestamp > 10_000:
            raise RuntimeError("this would never end")
        yield timestamp
        ctx.timers.register_event_time(timestamp + 10)


@pytest.mark.xfail(
    strict=True, reason="at the end of bounded input an event-time timer that sets itself again fires until the end of time"
)
def test_a_periodic_timer_lets_bounded_input_come_to_its_end() -> None:
    with KeyedHarness(Periodic(), key=lambda n: 0) as harness:
        harness.send(1, 1)
        harness.end()


class EmitsItsState(KeyedProcessFunction[Any, int, Any]):
    bag: ValueState[list[int]] = ValueState(list[int], default=[])

    def process(self, value: int, ctx: Any) -> Iterator[list[int]]:
        self.bag.value.append(value)
        yield self.bag.value


@pytest.mark.xfail(strict=True, reason="a mutable value of state that is emitted goes on changing until its batch is sent")
def test_emitted_values_do_not_change_afterwards() -> None:
    env = StreamEnvironment("alias", parallelism=1)
    stream = env.from_source(ScriptedSource([1, 2, 3, End()]))
    assert run_inline(stream.key_by(lambda n: 0).process(EmitsItsState(), name="bag")) == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.xfail(
    strict=True, reason="a value of a class that cannot be found by name is written and only refused when it is read"
)
def test_untyped_state_refuses_what_it_could_not_read_back() -> None:
    @dataclass
    class Local:
        n: int

    class Keeps(KeyedProcessFunction[Any, int, Any]):
        last: ValueState[Any] = ValueState()

        def process(self, value: int, ctx: Any) -> None:
            self.last.update(Local(value))

    env = StreamEnvironment("local", parallelism=1, restart=NO_RESTART)
    stream = env.from_source(ScriptedSource([1, End()]))
    with pytest.raises(Exception, match="Local"):
        run_inline(stream.key_by(lambda n: 0).process(Keeps(), name="keeps"))
