"""An observer sees what any operator takes, invokes and emits, and changes nothing; each operator's own time is measured."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from penstock import (
    CollectionSource,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    SessionWindows,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    Watermarks,
    col,
    count,
)
from penstock.executors.inline import InlineExecutor
from penstock.runtime.operators.observer import Invocation, Observer, StateChange, TimeKind
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.task import Task
from penstock.testing import execute_inline, run_inline

R = TypeVar("R")
LARGE = OutputTag[Any]("large")


class Seen(Observer):
    """Counts what it sees of a step, in all of its tasks."""

    def __init__(self) -> None:
        self.records_in = self.records_out = self.changed = self.closed = 0
        self.calls: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self.emitted: list[Any] = []
        self.keys: set[Any] = set()
        self.timers: list[tuple[int, str, bool]] = []

    def on_batch(self, port: int | Ports, batch: Any, proceed: Callable[[], None]) -> None:
        self.records_in += len(batch)
        proceed()

    def on_time(self, kind: TimeKind, time: int | None, proceed: Callable[[], None]) -> None:
        self.times[kind] += 1
        proceed()

    def on_call(self, invocation: Invocation, proceed: Callable[[], R]) -> R:
        self.calls[invocation.kind] += 1
        result = proceed()
        if invocation.encoded is not None:
            self.keys.add(invocation.key)
        self.emitted += [(value, tag) for value, _, tag in invocation.emitted]
        return result

    def on_timer(self, time: int, domain: str, deleted: bool) -> None:
        self.timers.append((time, domain, deleted))

    def on_emit(self, tag: str | None, batch: Any) -> None:
        self.records_out += len(batch) if tag is None else 0

    def on_changes(self, changes: list[StateChange]) -> None:
        self.changed += len(changes)

    def on_close(self) -> None:
        self.closed += 1


class Totals(KeyedProcessFunction[Any, Any, Any]):
    total: ValueState[int] = ValueState(int, default=0)

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        if not self.total.value:
            ctx.timers.register_event_time(row["at"] + 50)
        self.total.update(self.total.value + row["n"])
        if row["n"] > 15:
            ctx.output(LARGE, row["n"])
        yield {"key": row["key"], "n": self.total.value}

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield {"key": ctx.key, "n": -1}


class Same(ProcessFunction[Any, Any]):
    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield row


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


ROWS = [{"key": "abc"[n % 3], "n": n, "at": n * 10} for n in range(20)]


def every_kind_of_step() -> DataStream[Any]:
    env = StreamEnvironment("observed", parallelism=2, max_records_per_epoch=8)
    rows = env.from_source(CollectionSource(ROWS), watermarks=Watermarks.monotonous(timestamp="at"), name="rows")
    mapped = rows.map(lambda row: {**row, "n": row["n"] + 1}, name="map")
    flat = mapped.flat_map(lambda row: [row, row], name="flat_map").process(Same(), name="process")
    chosen = flat.filter(lambda row: row["n"] > 2, name="filter").filter(col("n") < 100, name="expression")
    batched: DataStream[Any] = chosen.map_batches(same, aligned=True, name="batches")
    keyed = chosen.union(batched, name="union").key_by("key")
    totals = keyed.process(Totals(), name="totals")
    seconds = keyed.window(TumblingWindows(seconds=0.05)).fold(0, lambda n, _: n + 1, name="aligned")
    sessions = keyed.window(SessionWindows(gap=0.02)).fold(0, lambda n, _: n + 1, name="sessions")
    columns = keyed.window(TumblingWindows(seconds=0.05)).aggregate(count(), name="columns")
    out = [totals, totals.side_output(LARGE), seconds, sessions, columns]
    return out[0].map(repr, name="of-totals").union(*(one.map(repr, name=f"o{n}") for n, one in enumerate(out[1:])))


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Seen]:
    """What is seen of each step of whatever runs inline meanwhile."""
    seen: dict[str, Seen] = defaultdict(Seen)

    def observe(operator: Operator) -> Observer:
        return seen[operator.step]

    task: Callable[..., Task] = partial(Task, observe=observe)
    monkeypatch.setattr("penstock.testing.running.InlineExecutor", lambda: InlineExecutor(task))
    return seen


def test_every_kind_of_step_is_observed(observed: dict[str, Seen]) -> None:
    assert run_inline(every_kind_of_step())
    records = ("map", "flat_map", "process", "filter", "of-totals", "o0", "o1", "o2", "o3")
    assert {step: set(one.calls) for step, one in observed.items() if one.calls} == {
        **{step: {"record"} for step in records},
        "batches": {"batch"},
        "totals": {"record", "timer"},
        "aligned": {"window"},
        "sessions": {"record", "timer"},
    }
    for step, one in observed.items():
        assert one.times["clock"] == one.closed > 0, step
        assert one.times["end"] > 0, step
        if step == "rows":
            assert one.records_out == len(ROWS)
        else:
            assert one.records_in > 0, step
            assert one.times["watermark"] > 0, step
    for step in ("totals", "aligned", "sessions", "columns"):
        assert observed[step].changed > 0, step
    assert observed["totals"].keys == observed["sessions"].keys == observed["aligned"].keys == set("abc")
    assert {domain for _, domain, _ in observed["totals"].timers} == {"event"}


def test_what_is_seen_is_what_happens(observed: dict[str, Seen]) -> None:
    metrics: dict[str, tuple[int, int]] = {}
    stream = every_kind_of_step()
    stream.print(name="out")
    for record in execute_inline(stream._env).history:
        for step, (came, went) in record.steps.items():
            known = metrics.get(step, (0, 0))
            metrics[step] = (known[0] + came, known[1] + went)
    for step, one in observed.items():
        if step != "rows":
            assert (one.records_in, one.records_out) == metrics[step], step
    for step in ("map", "flat_map", "process", "filter", "totals", "aligned", "sessions"):
        one = observed[step]
        assert sum(tag is None for _, tag in one.emitted) == one.records_out, step
    assert sum(tag == "large" for _, tag in observed["totals"].emitted) == observed["o0"].records_in > 0


def test_observing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run_inline(every_kind_of_step())
    task: Callable[..., Task] = partial(Task, observe=lambda operator: Observer())
    monkeypatch.setattr("penstock.testing.running.InlineExecutor", lambda: InlineExecutor(task))
    assert run_inline(every_kind_of_step()) == plain


@pytest.mark.parametrize("errors", ["skip", "dead_letter"])
def test_errors_are_what_they_are_unobserved(errors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [3, 0, 2, -2, 1, -3, 0, 0, 6, -1, 2, 3, -6, 1]

    def program() -> DataStream[Any]:
        env = StreamEnvironment("errors", parallelism=1, max_records_per_epoch=5)
        numbered = env.from_collection(numbers)
        mapped = numbered.map(lambda n: 6 // n, name="map", errors=errors)
        kept = mapped.filter(lambda n: bool(6 // (n - 2)), name="filter", errors=errors)

        def several(n: int) -> Iterator[int]:
            yield n
            yield 6 // (n + 2)

        return kept.flat_map(several, name="several", errors=errors).key_by(abs).process(Fussy(), name="keyed", errors=errors)

    plain = run_inline(program())
    assert len(plain) > 5
    task: Callable[..., Task] = partial(Task, observe=lambda operator: Observer())
    monkeypatch.setattr("penstock.testing.running.InlineExecutor", lambda: InlineExecutor(task))
    assert run_inline(program()) == plain


class Fussy(KeyedProcessFunction[Any, Any, Any]):
    def process(self, n: int, ctx: Any) -> Iterator[float]:
        yield n
        yield 6 / (n - 3)


# --- time ----------------------------------------------------------------------------------------------------------------------


def slow(seconds: float) -> Callable[[Any], Any]:
    def wait(value: Any) -> Any:
        time.sleep(seconds)
        return value

    return wait


class SlowAtTheEnd(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timers.register_event_time(10**6)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        time.sleep(0.02)


def busy(stream: DataStream[Any]) -> dict[str, float]:
    """The seconds that each step was busy, in all epochs."""
    stream.print(name="out")
    found: dict[str, float] = defaultdict(float)
    for record in execute_inline(stream._env).history:
        for step, share in record.busy.items():
            assert 0 <= share <= 1
            found[step] += share * record.run_seconds * stream._env.config.parallelism
        assert sum(record.busy.values()) <= 1
    return found


@pytest.mark.parametrize("which", ["first", "second", "third"])
def test_the_slow_step_of_a_chain_is_the_busy_one(which: str) -> None:
    env = StreamEnvironment("chain", parallelism=1)
    stream: DataStream[Any] = env.from_collection(range(50), name="numbers")
    for name in ("first", "second", "third"):
        stream = stream.map(slow(0.004) if name == which else lambda value: value, name=name)
    seconds = busy(stream)
    assert max(seconds, key=seconds.__getitem__) == which
    assert seconds[which] >= 0.2
    assert sum(seconds.values()) - seconds[which] < 0.1


def test_a_source_that_reads_slowly_is_busy() -> None:
    env = StreamEnvironment("source", parallelism=1)

    class Slowly(CollectionSource):
        def reader(self) -> Any:
            time.sleep(0.2)
            return super().reader()

    seconds = busy(env.from_source(Slowly(list(range(20))), name="numbers").map(lambda n: n, name="map"))
    assert max(seconds, key=seconds.__getitem__) == "numbers"
    assert seconds["numbers"] >= 0.2
    assert seconds["map"] < 0.1


def test_timers_and_a_second_stage_count() -> None:
    env = StreamEnvironment("timers", parallelism=2)
    numbers = env.from_source(
        CollectionSource(range(10)), watermarks=Watermarks.monotonous(timestamp=lambda n: n), name="numbers"
    )
    seconds = busy(numbers.key_by(lambda n: n).process(SlowAtTheEnd(), name="timers").map(lambda n: n, name="after"))
    assert max(seconds, key=seconds.__getitem__) == "timers"
    assert seconds["timers"] >= 0.2
