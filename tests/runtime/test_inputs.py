"""Steps of several inputs: what of them is called for which record, in what order, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from penstock import CollectionSource, DataStream, ListState, OutputTag, StreamEnvironment, Ttl, ValueState, Watermarks
from penstock.config import NO_RESTART
from penstock.errors import UserCodeError
from penstock.functions import KeyedCoProcessFunction
from penstock.ids import StepId
from penstock.plan.definition import Definition, ErrorPolicy, Takes
from penstock.records import Batch, Records
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.runtime.operators.operator import DEAD_LETTERS, Operator
from penstock.runtime.services import Services

Event = tuple[str, int]
"""A key and a time."""

OTHER = OutputTag[Any]("other")


class Notes(KeyedCoProcessFunction[str, Event, Event, Any]):
    """Notes what it sees of a key: all of it is in the state that both sides share."""

    seen: ListState[str] = ListState(str)
    short = ValueState(int, default=0, ttl=Ttl(timedelta(milliseconds=15), time="event"))

    def process1(self, value: Event, ctx: Any) -> Iterator[Any]:
        self.seen.add(f"a{value[1]}@{ctx.current_watermark}" if value[1] % 10 else f"a{value[1]}")
        self.short.update(self.short.value + 1)
        ctx.timers.register_event_time(value[1] + 7)
        if value[1] < 0:
            raise ValueError("before all time")
        yield from ()

    def process2(self, value: Event, ctx: Any) -> Iterator[Any]:
        self.seen.add(f"b{value[1]}")
        ctx.output(OTHER, (ctx.key, ctx.timestamp, self.short.value))
        if value[1] < 0:
            raise ValueError("before all time")
        yield ctx.key, list(self.seen)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.seen.add(f"t{timestamp}")
        yield from ()


def met(streams: list[DataStream[Any]], errors: ErrorPolicy = "fail") -> DataStream[Any]:
    return joined([stream.key_by(0) for stream in streams], KeyedCoProcess(body=Notes(), errors=errors))


def joined(streams: list[DataStream[Any]], definition: Definition) -> DataStream[Any]:
    env = streams[0]._env
    inputs = (stream._input() for stream in streams)
    return DataStream(env, env._add(definition, *inputs, name="met", label="met"))


def two(env: StreamEnvironment, first: list[Event], second: list[Event], timed: bool = True) -> list[DataStream[Event]]:
    by_time: Watermarks[Any] | None = Watermarks.monotonous(timestamp=lambda event: event[1]) if timed else None
    return [
        env.from_source(CollectionSource(values), watermarks=by_time, name=name)
        for name, values in (("first", first), ("second", second))
    ]


def environment(**settings: Any) -> StreamEnvironment:
    return StreamEnvironment("inputs", executor="inline", restart=NO_RESTART, **settings)


@pytest.mark.parametrize("records", [1, 3, 1000])  # a record's place is the time just before it: that of a50 is 20
def test_both_sides_share_state_and_timers_in_order_of_time(records: int) -> None:
    env = environment(max_records_per_epoch=records)
    streams = two(env, [("x", 10), ("x", 20), ("x", 21), ("x", 50)], [("x", 15), ("x", 25), ("x", 30), ("x", 60)])
    shown = met(streams)
    assert shown.execute_and_collect()[-1] == (
        "x",
        ["a10", "b15", "a20", "b25", "t17", "a21@19", "a50", "b30", "t27", "t28", "b60"],
    )


def test_side_outputs_and_state_that_expires() -> None:
    env = environment()
    streams = two(env, [("x", 10), ("x", 20)], [("x", 12), ("x", 30), ("x", 60), ("x", 90)])
    shown = met(streams).side_output(OTHER)
    assert shown.execute_and_collect() == [("x", 12, 1), ("x", 30, 2), ("x", 60, 2), ("x", 90, 0)]


def test_records_without_times_are_taken_as_they_come() -> None:
    env = environment()
    streams = two(env, [("x", 10), ("y", 10)], [("x", 20), ("y", 20)], timed=False)
    shown = sorted(met(streams).execute_and_collect())
    assert [(key, sorted(seen)) for key, seen in shown] == [("x", ["a10", "b20"]), ("y", ["a10", "b20"])]


def test_a_side_without_time_holds_time_back_and_nothing_else() -> None:
    env = environment()
    first, _ = two(env, [("x", 10), ("x", 20)], [])
    untimed = env.from_source(CollectionSource([("x", 15)]), name="untimed")
    ((_, seen),) = met([first, untimed]).execute_and_collect()
    assert seen[-1] == "b15"
    assert not any(one.startswith("t") for one in seen)


def test_an_error_names_the_function_of_the_side() -> None:
    env = environment()
    streams = two(env, [("x", 10)], [("x", -1)])
    with pytest.raises(UserCodeError, match="step 'met': ValueError: before all time") as caught:
        met(streams).execute_and_collect()
    assert "Notes" in caught.value.detail
    assert "record: ('x', -1)" in caught.value.detail


def test_dead_letters_of_both_sides() -> None:
    env = environment()
    streams = two(env, [("x", -5), ("x", 10)], [("x", -1), ("x", 15)])
    letters = met(streams, "dead_letter").side_output(OutputTag[Any](DEAD_LETTERS))
    assert [letter.record for letter in letters.execute_and_collect()] == [("x", -5), ("x", -1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagging(Definition):
    """Says of each record of its first input what the last one of its second was."""

    sees_order: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "tagging"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=False), Takes(broadcast=True)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return TaggingOperator(step, services, inputs)


class TaggingOperator(Operator):
    last: Any = None

    def on_input(self, port: int, batch: Batch) -> None:
        if port == 1:
            self.last = batch.values()[-1]
        else:
            self.outputs.emit(Records([(value, self.last) for value in batch.values()], batch.timestamps, batch.ticks))


@pytest.mark.parametrize("settings", [{}, {"parallelism": 2}])
def test_an_operator_that_takes_runs_of_one_input(settings: dict[str, Any]) -> None:
    """The first input is of the same stage, the second comes through an exchange."""
    env = environment(**settings)
    first, second = two(env, [("x", time) for time in (5, 12, 14, 22, 40)], [("rule", 10), ("rule", 20), ("rule", 30)])
    tagged = joined([first.rebalance().map(lambda event: event), second.broadcast()], Tagging())
    found = sorted(tagged.map(lambda pair: (pair[0][1], pair[1] and pair[1][1])).execute_and_collect())
    assert found == [(5, None), (12, 10), (14, 20), (22, 20), (40, 30)]
