"""A value of another type is refused in the epoch that writes it, and nothing of that epoch is committed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import (
    AggregateFunction,
    AggregatingState,
    CollectSink,
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    StreamEnvironment,
    TumblingWindows,
    ValueState,
    WindowFunction,
)
from penstock.config import NO_RESTART
from penstock.errors import PenstockError, PlanError, StateError, StateTypeError, UserCodeError
from penstock.ids import Epoch
from penstock.jobs.manifest import load_manifest
from penstock.state.encoding.codecs import PICKLE
from penstock.storage import open_storage
from penstock.testing import End, Record, ScriptedSource, Watermark, execute_inline, scripted_watermarks

GOOD, BAD = 1, 13
"""Records: with 13 each function writes something that does not fit."""


@dataclass
class Item:
    price: float


@dataclass
class Cart:
    items: list[Item] = field(default_factory=list)


def source(*records: int, cut: int = 2) -> Any:
    env = StreamEnvironment("types", parallelism=1, restart=NO_RESTART)
    script = [Record(n, 10 * at) for at, n in enumerate(records, 1)]
    return env.from_source(
        ScriptedSource([*script, Watermark(10_000), End()], cut=cut), watermarks=scripted_watermarks(), name="in"
    )


class Writing(KeyedProcessFunction[str, int, int]):
    """Writes to its state what the test says, and emits the record."""

    def __init__(self, state: Any, write: Callable[[Any, int], None]) -> None:
        self.kept = state
        self.write = write

    def process(self, value: int, ctx: Any) -> Iterable[int]:
        self.write(self.kept, value)
        return (value,)


class Collected(AggregateFunction[Any, list[Any], int]):
    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return [*accumulator, value]

    def result(self, accumulator: list[Any]) -> int:
        return len(accumulator)

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return left + right


def text_if_bad(value: int) -> Any:
    return "text" if value == BAD else value


def float_text(value: int) -> Any:
    return "text" if value == BAD else float(value)


def append_in_place(state: Any, value: int) -> None:
    if state.value is None:
        state.update([])
    state.value.append(text_if_bad(value))


HOUR = timedelta(hours=1)
KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any, int], None], str]] = {
    "value": (lambda: ValueState(int), lambda s, n: s.update(text_if_bad(n)), ""),
    "value with ttl": (lambda: ValueState(int, ttl=HOUR), lambda s, n: s.update(text_if_bad(n)), ""),
    "value of tuples": (lambda: ValueState(tuple[int, float]), lambda s, n: s.update((n, float_text(n))), "[1]"),
    "value of records": (
        lambda: ValueState(Cart),
        lambda s, n: s.update(Cart([Item(1.0), Item(float_text(n))])),
        ".items[1].price",
    ),
    "optional": (lambda: ValueState(int | None), lambda s, n: s.update(text_if_bad(n)), ""),
    "in place": (lambda: ValueState(list[int]), append_in_place, "[1]"),
    "in place, default": (lambda: ValueState(list[int], []), lambda s, n: s.value.append(text_if_bad(n)), "[1]"),
    "list": (lambda: ListState(int), lambda s, n: s.add(text_if_bad(n)), ""),
    "list with ttl": (lambda: ListState(int, ttl=HOUR), lambda s, n: s.extend([text_if_bad(n)]), ""),
    "list of records": (lambda: ListState(Item), lambda s, n: s.add(Item(float_text(n))), ".price"),
    "list, replaced": (lambda: ListState(int), lambda s, n: s.update([n, text_if_bad(n)]), ""),
    "map values": (lambda: MapState(str, int), lambda s, n: s.put("m", text_if_bad(n)), ""),
    "map values with ttl": (lambda: MapState(str, int, ttl=HOUR), lambda s, n: s.put("m", text_if_bad(n)), ""),
    "map records": (lambda: MapState(str, Item), lambda s, n: s.put("m", Item(float_text(n))), ".price"),
    "reducing": (lambda: ReducingState(int, lambda a, b: text_if_bad(b)), lambda s, n: s.add(n), ""),
    "aggregating": (lambda: AggregatingState(Collected(), list[int]), lambda s, n: s.add(text_if_bad(n)), "[1]"),
    "aggregating, ttl": (lambda: AggregatingState(Collected(), list[int], ttl=HOUR), lambda s, n: s.add(text_if_bad(n)), "[1]"),
}


def entries(storage: Path) -> tuple[int, int]:
    """The last committed epoch, and how many entries its state files have."""
    last = max(int(name.stem) for name in (storage / "epochs").glob("*.json"))
    chains = load_manifest(open_storage(storage), Epoch(last)).state.chains
    return last, sum(ref.entries for stage in chains for chain in stage for ref in chain)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_epoch_is_committed(kind: str, tmp_path: Path) -> None:
    declared, write, path = KINDS[kind]
    before = source(GOOD, BAD, cut=1)
    before.key_by(lambda n: "k").process(Writing(declared(), write), name="step").sink_to(CollectSink())
    execute_inline(before._env, storage=str(tmp_path / "storage"), epochs=1)
    committed = entries(tmp_path / "storage")

    stream = source(GOOD, BAD, cut=1)
    stream.key_by(lambda n: "k").process(Writing(declared(), write), name="step").sink_to(CollectSink())
    with pytest.raises(StateTypeError) as caught:
        execute_inline(stream._env, storage=str(tmp_path / "storage2"), epochs=5)
    text = str(caught.value)
    assert f"the last committed epoch is {committed[0]}" in "".join(caught.value.__notes__)
    assert entries(tmp_path / "storage2") == committed
    assert "state 'kept' of step 'step'" in text
    assert "key: 'k'" in text
    assert "'text'" in text
    assert "type str, expected" in text
    assert path in text
    assert re.search(r"function: Writing.process \(\S*test_state_types.py:\d+\)", text)

    execute_inline(_reading(declared, tmp_path / "storage2"), storage=str(tmp_path / "storage2"), epochs=2)


def _reading(declared: Callable[[], Any], storage: Path) -> StreamEnvironment:
    """The same job, mended: it can read what is committed."""

    def read(state: Any, _: int) -> None:
        assert state.get("m") is not None if isinstance(declared(), MapState) else state is not None
        for name in ("value", "__iter__"):
            found = getattr(state, name, None)
            if callable(found):
                list(found())

    stream = source(GOOD, GOOD, cut=1)
    stream.key_by(lambda n: "k").process(Writing(declared(), read), name="step").sink_to(CollectSink())
    env: StreamEnvironment = stream._env
    return env


def test_a_write_of_another_class_names_the_line_and_the_record() -> None:
    stream = source(GOOD, BAD)
    stream.key_by(lambda n: "k").process(Writing(ValueState(int), lambda s, n: s.update(text_if_bad(n))), name="step").print()
    with pytest.raises(StateTypeError) as caught:
        execute_inline(stream._env)
    text = re.sub(r"\.py:\d+", ".py:N", re.sub(r"/\S*/", "", str(caught.value)))
    assert text.splitlines() == [
        "a value of another type was written to state 'kept' of step 'step': it is of type str, expected int",
        "  key: 'k'",
        "  function: Writing.process (test_state_types.py:N)",
        "  value: 'text'",
        "  raised at: test_state_types.py:N",
        "  record: 13",
        "  hint: write a value of the declared type, or declare the state with the type that you mean",
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("in place")])
@pytest.mark.parametrize("cut", [1, 5])
def test_records_that_write_it_are_set_aside(kind: str, cut: int) -> None:
    declared, write, _ = KINDS[kind]
    stream = source(GOOD, BAD, 2, BAD, 3, cut=cut)
    step = stream.key_by(lambda n: "k").process(Writing(declared(), write), name="step", errors="dead_letter")
    sink, letters = CollectSink(), CollectSink()
    step.sink_to(sink)
    step.dead_letters().sink_to(letters)
    execute_inline(stream._env)
    assert sink.results() == [GOOD, 2, 3]
    assert [letter.record for letter in letters.results()] == [BAD, BAD]
    assert all("StateTypeError" in letter.error for letter in letters.results())


def test_what_is_changed_in_place_is_not_a_records_fault() -> None:
    stream = source(GOOD, BAD)
    step = stream.key_by(lambda n: "k").process(Writing(ValueState(list[int]), append_in_place), name="step", errors="skip")
    step.sink_to(CollectSink())
    with pytest.raises(StateTypeError, match="changed in place"):
        execute_inline(stream._env)


def test_map_keys() -> None:
    stream = source(GOOD, BAD)
    step = stream.key_by(lambda n: "k").process(
        Writing(MapState(int, int), lambda s, n: s.put(text_if_bad(n), n)), name="step", errors="fail"
    )
    step.sink_to(CollectSink())
    with pytest.raises(StateTypeError) as caught:
        execute_inline(stream._env)
    text = str(caught.value)
    assert "state 'kept' of step 'step': 'text' of type str cannot be a key" in text
    assert "map key: 'text'" in text
    assert "record: 13" in text


@pytest.mark.parametrize(
    ("declared", "written", "kept"),
    [
        (int, np.int64(7), 7),
        (float, 7, 7.0),
        (float, np.float32(0.5), 0.5),
        (str, np.str_("a"), "a"),
        (bool, np.bool_(True), True),
    ],
)
@pytest.mark.parametrize("errors", ["fail", "skip"])
def test_numbers_are_what_they_will_be_at_once(declared: Any, written: Any, kept: Any, errors: str) -> None:
    seen: list[Any] = []

    def write(state: Any, n: int) -> None:
        state.update(written)
        seen.append(state.value)

    stream = source(GOOD)
    stream.key_by(lambda n: "k").process(Writing(ValueState(declared), write), errors=errors).sink_to(CollectSink())
    execute_inline(stream._env)
    assert [(type(one), one) for one in seen] == [(type(kept), kept)]


def test_map_keys_are_what_they_will_be_at_once() -> None:
    seen: list[Any] = []

    def write(state: Any, n: int) -> None:
        state.put(np.int64(n), n)
        seen.extend(state.keys())

    stream = source(GOOD)
    stream.key_by(lambda n: "k").process(Writing(MapState(int, int), write)).sink_to(CollectSink())
    execute_inline(stream._env)
    assert [type(key) for key in seen] == [int]


def test_untyped_and_pickled_states_take_what_they_can_keep() -> None:
    def write(state: Any, n: int) -> None:
        state.update((n, {n}, "text"))
        assert state.value == (n, {n}, "text")

    states: tuple[Any, ...] = (ValueState(), ValueState(int, codec=PICKLE))
    for state in states:
        stream = source(GOOD, BAD, cut=1)
        stream.key_by(lambda n: "k").process(Writing(state, write)).sink_to(CollectSink())
        execute_inline(stream._env)
    stream = source(GOOD)
    stream.key_by(lambda n: "k").process(Writing(states[0], lambda s, n: s.update(object())), name="step").sink_to(CollectSink())
    with pytest.raises(StateError, match=r"state 'kept' of step 'step': a value of type builtins.object") as caught:
        execute_inline(stream._env)
    assert "key: 'k'" in str(caught.value)


def test_none_is_cleared_not_written() -> None:
    stream = source(GOOD)
    stream.key_by(lambda n: "k").process(Writing(ValueState(int), lambda s, n: s.update(None)), name="step").sink_to(
        CollectSink()
    )
    with pytest.raises(StateTypeError, match=r"clear\(\) removes"):
        execute_inline(stream._env)


@pytest.mark.parametrize("state", [ValueState(int, default="none"), ValueState(list[int], default=(1,))])
def test_defaults_are_checked_when_the_step_is_built(state: Any) -> None:
    with pytest.raises(PlanError, match="the default of state 'kept' is not of its declared type"):
        source(GOOD).key_by(lambda n: "k").process(Writing(state, lambda s, n: None))


def test_fold_and_reduce() -> None:
    with pytest.raises(PlanError, match="the default of state 'result'"):
        source(GOOD).key_by(lambda n: "k").fold("", lambda a, n: a, state_type=int)
    stream = source(GOOD, BAD)
    stream.key_by(lambda n: "k").reduce(lambda a, b: text_if_bad(b), name="step", state_type=int).sink_to(CollectSink())
    with pytest.raises(StateTypeError, match="state 'result' of step 'step'"):
        execute_inline(stream._env)


class Remembering(WindowFunction[int, int, int]):
    last: ValueState[Any] = ValueState(int)

    def process(self, values: list[int], ctx: Any) -> Iterator[int]:
        self.last.update(text_if_bad(max(values)))
        yield max(values)


WINDOWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "aligned": (lambda w: w.reduce(lambda a, b: text_if_bad(b), name="step", state_type=int), "contents"),
    "aggregate": (lambda w: w.aggregate(Collected(), name="step", accumulator_type=list[str]), "contents"),
    "records": (lambda w: w.process(lambda values, ctx: values, name="step", state_type=str), "contents"),
    "function": (lambda w: w.process(Remembering(), name="step"), "last"),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows(kind: str, tmp_path: Path) -> None:
    build, name = WINDOWS[kind]
    stream = source(GOOD, BAD, cut=1 if kind in ("aggregate", "records") else 2)
    build(stream.key_by(lambda n: "k").window(TumblingWindows(timedelta(seconds=1)))).sink_to(CollectSink())
    with pytest.raises(StateTypeError, match=f"written to state '{name}' of step 'step'") as caught:
        execute_inline(stream._env, storage=str(tmp_path))
    assert "key: 'k'" in str(caught.value)
    assert entries(tmp_path)[1] == 0


def test_migrate_is_checked(tmp_path: Path) -> None:
    first = source(GOOD)
    first.key_by(lambda n: "k").process(Writing(ValueState(int), lambda s, n: s.update(n)), name="step").sink_to(CollectSink())
    execute_inline(first._env, storage=str(tmp_path), epochs=1)
    committed = entries(tmp_path)
    second = source(GOOD, 2)
    state: Any = ValueState(list[int], migrate=lambda n: (n,))
    second.key_by(lambda n: "k").process(Writing(state, lambda s, n: None), name="step").sink_to(CollectSink())
    with pytest.raises(UserCodeError, match="migrate= of state 'kept'") as caught:
        execute_inline(second._env, storage=str(tmp_path))
    assert "expected list" in str(caught.value)
    assert "value: (1,)" in str(caught.value)
    assert entries(tmp_path) == committed


def test_penstock_errors_stay_what_they_are() -> None:
    assert issubclass(StateTypeError, TypeError)
    assert issubclass(StateTypeError, PenstockError)
