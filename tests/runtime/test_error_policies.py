"""What a user's function does wrong: named with step, function and record; skipped or set aside where told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    AggregateFunction,
    CollectSink,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamEnvironment,
    ValueState,
)
from penstock.config import NO_RESTART
from penstock.errors import PenstockError, PlanError, UserCodeError
from penstock.ids import StepId
from penstock.testing import End, Record, ScriptedSource, Watermark, execute_inline, run_inline, scripted_watermarks

SIDE = OutputTag[Any]("side")
DATA = [Record("1", 10), Record("x", 20), Record("3", 30), Record("y", 40), Watermark(50), End()]


def source(parallelism: int = 2, cut: int | None = None) -> Any:
    env = StreamEnvironment("errors", parallelism=parallelism, restart=NO_RESTART)
    return env.from_source(ScriptedSource(DATA, cut=cut), watermarks=scripted_watermarks(), name="in")


class Parse(ProcessFunction[str, int]):
    def process(self, value: str, ctx: Any) -> Iterator[int]:
        ctx.output(SIDE, value)
        yield int(value)


class KeyedParse(KeyedProcessFunction[int, str, int]):
    total = ValueState(int, default=0)

    def process(self, value: str, ctx: Any) -> Iterator[int]:
        yield from ()
        self.total.update(self.total.value + int(value))
        yield int(value)


class BadTimer(KeyedProcessFunction[int, str, Any]):
    def process(self, value: str, ctx: Any) -> None:
        ctx.timers.register_event_time(ctx.timestamp)

    def on_timer(self, timestamp: int, ctx: Any) -> list[int]:
        if timestamp in (20, 40):
            raise ValueError(f"not at {timestamp}")
        return [timestamp]


STEPS: dict[str, Any] = {
    "map": lambda s, errors: s.map(int, name="step", errors=errors),
    "lambda": lambda s, errors: s.map(lambda v: int(v), name="step", errors=errors),
    "filter": lambda s, errors: s.filter(lambda v: int(v) > 0, name="step", errors=errors).map(int),
    "flat_map": lambda s, errors: s.flat_map(lambda v: (int(x) for x in v), name="step", errors=errors),
    "process": lambda s, errors: s.process(Parse(), name="step", errors=errors),
    "keyed process": lambda s, errors: s.key_by(lambda v: 0).process(KeyedParse(), name="step", errors=errors),
}


@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize("kind", STEPS)
def test_skip(kind: str, cut: int | None) -> None:
    assert run_inline(STEPS[kind](source(cut=cut), "skip")) == [1, 3]


@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize("kind", STEPS)
def test_dead_letters(kind: str, cut: int | None) -> None:
    stream = source(cut=cut)
    step = STEPS[kind](stream, "dead_letter")
    sink, letters = CollectSink(), CollectSink()
    step.sink_to(sink)
    rejecting = step if kind != "filter" else None
    if rejecting is None:
        from penstock.api.stream import DataStream

        rejecting = DataStream(step._env, StepId("step"))
    rejecting.dead_letters().sink_to(letters)
    result = execute_inline(stream._env)
    assert sink.results() == [1, 3]
    found = letters.results()
    assert [(letter.step, letter.record, letter.timestamp_ms) for letter in found] == [("step", "x", 20), ("step", "y", 40)]
    assert all("ValueError: invalid literal for int()" in letter.error for letter in found)
    assert sum(epoch.dead_letters for epoch in result.history) == 2
    assert (result.skipped, result.dead_letters) == (0, 2)


def test_what_a_rejected_record_wrote_to_side_outputs_goes_with_it() -> None:
    stream = source()
    step = stream.process(Parse(), name="step", errors="skip")
    side = CollectSink()
    step.side_output(SIDE).sink_to(side)
    assert run_inline(step) == [1, 3]
    assert side.results() == ["1", "3"]


@pytest.mark.parametrize("cut", [None, 1])
def test_timers(cut: int | None) -> None:
    assert run_inline(source(cut=cut).key_by(lambda v: 0).process(BadTimer(), name="step", errors="skip")) == [10, 30]
    stream = source(cut=cut)
    step = stream.key_by(lambda v: 0).process(BadTimer(), name="step", errors="dead_letter")
    letters = CollectSink()
    step.dead_letters().sink_to(letters)
    assert run_inline(step) == [10, 30]
    assert [letter.record for letter in letters.results()] == [{"timer": t, "domain": "event"} for t in (20, 40)]


def failure(stream: Any) -> str:
    with pytest.raises(PenstockError) as caught:
        run_inline(stream)
    assert "gave up after a failure" in "".join(caught.value.__notes__)
    text = re.sub(r"/\S*/", "", str(caught.value))
    return re.sub(r"\.py:\d+", ".py:N", text)


def lines(parts: list[str]) -> str:
    return "\n".join(parts)


HINT = 'hint: mend the function or the input; errors="skip" or errors="dead_letter" on the step let the others pass'


def test_messages_golden() -> None:
    assert failure(source().map(lambda v: int(v), name="step")) == lines(
        [
            "step 'step': ValueError: invalid literal for int() with base 10: 'x'",
            "  function: test_messages_golden.<locals>.<lambda> (test_error_policies.py:N)",
            "  raised at: test_error_policies.py:N",
            "  record: 'x'",
            f"  {HINT}",
        ]
    )
    assert failure(STEPS["keyed process"](source(), "fail")) == lines(
        [
            "step 'step': ValueError: invalid literal for int() with base 10: 'x' (key 0)",
            "  function: KeyedParse.process (test_error_policies.py:N)",
            "  raised at: test_error_policies.py:N",
            "  record: 'x'",
            f"  {HINT}",
        ]
    )
    assert failure(source().key_by(lambda v: 0).process(BadTimer(), name="step")) == lines(
        [
            "step 'step': ValueError: not at 20 (on_timer, key 0)",
            "  function: BadTimer.process (test_error_policies.py:N)",
            "  raised at: test_error_policies.py:N",
            "  record: 'the event-time timer at 20'",
            f"  {HINT}",
        ]
    )
    assert failure(source().map(str.strip, name="strip").key_by(lambda v: int(v)).reduce(max)) == lines(
        [
            "the key function of step 'strip' raised ValueError: invalid literal for int() with base 10: 'x'",
            "  function: test_messages_golden.<locals>.<lambda> (test_error_policies.py:N)",
            "  record: 'x'",
            "  hint: the function must return a key for every record; filter out records without one before key_by",
        ]
    )


class BadAggregate(AggregateFunction[str, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: str, accumulator: int) -> int:
        return accumulator + int(value)

    def result(self, accumulator: int) -> int:
        return accumulator


FAILING: dict[str, Any] = {
    "map": lambda s: s.map(lambda v: int(v), name="step"),
    "filter": lambda s: s.filter(lambda v: int(v), name="step"),
    "flat_map": lambda s: s.flat_map(lambda v: [int(v)], name="step"),
    "process": lambda s: s.process(Parse(), name="step"),
    "map_batches": lambda s: s.map_batches(lambda b: [int(v) for v in b["value"].to_pylist()], name="step"),
    "reduce": lambda s: s.key_by(lambda v: 0).reduce(lambda a, b: str(int(a) + int(b)), name="step"),
    "fold": lambda s: s.key_by(lambda v: 0).fold(0, lambda n, v: n + int(v), name="step"),
    "aggregate": lambda s: s.key_by(lambda v: 0).aggregate(BadAggregate(), name="step"),
}


@pytest.mark.parametrize("kind", FAILING)
def test_every_kind_names_its_step_the_place_and_the_record(kind: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        run_inline(FAILING[kind](source()))
    text = str(caught.value)
    assert text.startswith("step 'step': ValueError: invalid literal")
    assert re.search(r"raised at: \S*test_error_policies.py:\d+", text)
    assert "record: 'x'" in text or "a batch of 4 rows" in text


@pytest.mark.parametrize("kind", ["map", "filter", "key_by", "flat_map", "process"])
def test_stop_iteration_is_an_error_like_any_other(kind: str) -> None:
    def first_digit(value: str) -> str:
        return next(c for c in value if c.isdigit())

    class First(ProcessFunction[str, str]):
        def process(self, value: str, ctx: Any) -> list[str]:
            return [first_digit(value)]

    stream = source()
    step = {
        "map": lambda: stream.map(first_digit),
        "filter": lambda: stream.filter(first_digit),
        "key_by": lambda: stream.key_by(first_digit).reduce(max),
        "flat_map": lambda: stream.flat_map(lambda v: [first_digit(v)]),
        "process": lambda: stream.process(First()),
    }[kind]()
    with pytest.raises(UserCodeError, match="StopIteration"):
        run_inline(step)
    if kind == "map":
        assert run_inline(source().map(first_digit, errors="skip")) == ["1", "3"]
    if kind == "flat_map":
        assert run_inline(source().flat_map(lambda v: [first_digit(v)], errors="skip")) == ["1", "3"]


def test_timestamps_and_missing_fields() -> None:
    from penstock import Watermarks

    env = StreamEnvironment("t", parallelism=1, restart=NO_RESTART)
    stream = env.from_source(
        ScriptedSource(["x", End()]), watermarks=Watermarks.monotonous(timestamp=lambda v: int(v)), name="in"
    )
    with pytest.raises(UserCodeError, match=r"step 'in': ValueError: .*assigning timestamps"):
        run_inline(stream)
    with pytest.raises(PlanError, match="the record has no field 'n'"):
        run_inline(source().map(lambda v: {"m": v}).key_by("n").reduce(max))
    with pytest.raises(PlanError, match="cannot be a key"):
        run_inline(source().map(lambda v: [v]).key_by(lambda v: v).reduce(max))
