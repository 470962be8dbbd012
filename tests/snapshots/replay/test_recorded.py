"""An epoch of a step becomes a test case: it passes with the function as it was, and fails, readably, with another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import DataStream, KeyedStream, SessionWindows, StreamEnvironment, TumblingWindows, Watermarks, snapshots
from penstock.errors import ConfigError, CorruptFileError, StateError, UserCodeError
from penstock.state.encoding.json_values import from_plain, to_plain
from penstock.storage import open_storage
from penstock.testing import ScriptedSource, VirtualClock, execute_inline, replay_recorded, scripted_watermarks
from tests.runtime.random_programs import Interpreter, scripts
from tests.snapshots import shop
from tests.snapshots.replay.test_replay import SETTINGS, program
from tests.snapshots.replay.test_replay_random import random_settings


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("jobs") / "job"
    program(storage).execute()
    return storage


def recorded(job: Path, path: Path, step: str, epoch: int = 4, **options: Any) -> Path:
    snapshots.replay(job, epoch, env=program(job), step=step, record=str(path), **options)
    return path


class Slow(shop.Reminder):
    """Waits twice as long."""

    def process(self, order: shop.Order, ctx: Any) -> Iterator[str]:
        for text in super().process(order, ctx):
            ctx.timers.delete_event_time(order.time + 60_000)
            ctx.timers.register_event_time(order.time + 120_000)
            yield text.replace(":", " has spent")


def test_a_keyed_function(job: Path, tmp_path: Path) -> None:
    case = recorded(job, tmp_path / "case.json", "reminders")
    (first, *_) = replay_recorded(case, shop.Reminder())
    assert first.output
    assert first.state
    with pytest.raises(AssertionError) as caught:
        replay_recorded(case, Slow())
    text = str(caught.value)
    assert "not what was recorded in case.json, step 'reminders', epoch 4" in text
    assert "has spent" in text
    assert "timers:event of key" in text


@pytest.mark.parametrize("epoch", [2, 4, 6])
@pytest.mark.parametrize("step", ["tax", "something", "reminders", "dearest", "spent", "sessions", "minutes"])
def test_every_kind_of_step(job: Path, tmp_path: Path, step: str, epoch: int) -> None:
    assert replay_recorded(recorded(job, tmp_path / "case.json", step, epoch), program(job))


def dearest(keyed: KeyedStream[Any, Any]) -> DataStream[Any]:
    return keyed.reduce(shop.dearer)


FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "tax": (shop.with_tax, lambda order: order),
    "something": (lambda order: order.item != "nothing", lambda order: order.price > 40),
    "dearest": (shop.dearer, lambda left, right: left),
    "spent": (lambda keyed: keyed.sum("price"), lambda keyed: keyed.max("price")),
    "sessions": (
        lambda keyed: keyed.window(SessionWindows(gap=timedelta(seconds=30))).fold(Decimal(0), shop.add),
        lambda keyed: keyed.window(SessionWindows(gap=timedelta(seconds=8))).fold(Decimal(0), shop.add),
    ),
    "minutes": (
        lambda keyed: keyed.window(TumblingWindows(minutes=1)).fold(0, lambda n, _: n + 1),
        lambda keyed: keyed.window(TumblingWindows(minutes=1)).fold(0, lambda n, _: n + 2),
    ),
}


@pytest.mark.parametrize("step", FUNCTIONS)
def test_the_function_alone_is_enough(job: Path, tmp_path: Path, step: str) -> None:
    case = recorded(job, tmp_path / "case.json", step)
    right, wrong = FUNCTIONS[step]
    replay_recorded(case, right, types=[shop.Order])
    with pytest.raises(AssertionError, match="not what was recorded"):
        replay_recorded(case, wrong, types=[shop.Order])


def test_a_stream_as_a_function_for_rolling_steps(job: Path, tmp_path: Path) -> None:
    assert replay_recorded(recorded(job, tmp_path / "case.json", "dearest"), dearest)


def test_one_key_makes_a_small_case(job: Path, tmp_path: Path) -> None:
    whole = json.loads(recorded(job, tmp_path / "whole.json", "reminders").read_text())
    path = recorded(job, tmp_path / "case.json", "reminders", key="ann")
    case = json.loads(path.read_text())
    keys = [row["key"] for part in case["parts"] for item in part["input"] for row in item.get("records", ())]
    assert set(keys) == {"ann"}
    assert {item["key"] for part in case["parts"] for item in [*part["before"], *part["after"]]} == {"ann"}
    assert 0 < len(keys) < sum(len(i.get("records", ())) for part in whole["parts"] for i in part["input"])
    assert replay_recorded(path, shop.Reminder())
    for step in ("sessions", "minutes"):
        assert replay_recorded(recorded(job, tmp_path / f"{step}.json", step, key="ann"), program(job))


def test_an_epoch_that_fails(tmp_path: Path) -> None:
    """The bug, and then its mending, in one line."""
    with pytest.raises(UserCodeError):
        program(tmp_path / "job", broken=26).execute()
    case = tmp_path / "case.json"
    broken = program(tmp_path / "job", broken=26)
    snapshots.replay(tmp_path / "job", "next", env=broken, step="reminders", record=str(case))
    assert "ValueError: a price of -1.1" in case.read_text()
    with pytest.raises(UserCodeError, match=r"a price of -1\.1"):
        replay_recorded(case, shop.Reminder())

    class Lenient(shop.Reminder):
        def process(self, order: shop.Order, ctx: Any) -> Iterator[str]:
            return super().process(order, ctx) if order.price >= 0 else iter(())

    assert replay_recorded(case, Lenient(), types=[shop.Order, shop.Basket])


def test_dead_letters_are_part_of_a_case(tmp_path: Path) -> None:
    def build() -> StreamEnvironment:
        env = StreamEnvironment("letters", storage=str(tmp_path / "job"), **SETTINGS)
        stream = env.from_collection([3, 0, 2]).map(lambda n: 6 // n, name="divide", errors="dead_letter")
        stream.print(name="out")
        return env

    build().execute()
    case = tmp_path / "case.json"
    snapshots.replay(tmp_path / "job", 2, env=build(), step="divide", record=str(case))
    assert "ZeroDivisionError" in case.read_text()
    assert replay_recorded(case, lambda n: 6 // n)
    with pytest.raises(AssertionError, match="dead letters: 1 recorded, 0 found"):
        replay_recorded(case, lambda n: 6 // (n or 1))


def test_a_function_of_batches_is_called_as_in_the_job(tmp_path: Path) -> None:
    pytest.importorskip("pandas")

    def large(frame: Any) -> Any:
        assert list(frame.columns) == ["n"]
        return frame[frame["n"] > 1].iloc[::-1]

    def build() -> StreamEnvironment:
        env = StreamEnvironment("batches", **{**SETTINGS, "storage": str(tmp_path / "job"), "parallelism": 1})
        rows = [{"n": n, "at": n * 100} for n in range(4)]
        stream = env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="at"))
        stream.map_batches(large, format="pandas", columns=["n"], name="large").print()
        return env

    build().execute()
    case = tmp_path / "case.json"
    snapshots.replay(tmp_path / "job", 2, env=build(), step="large", record=str(case))
    (part,) = replay_recorded(case, large)
    assert part.output == [({"n": 3}, 300), ({"n": 2}, 200)]
    with pytest.raises(AssertionError, match="not what was recorded"):
        replay_recorded(case, lambda frame: frame[frame["n"] > 1])


def test_windows_over_columns_and_ends_are_only_to_be_read(job: Path, tmp_path: Path) -> None:
    for step, why in (("columns", "windows over columns"), ("orders", "a source"), ("reminded", "a sink")):
        case = recorded(job, tmp_path / f"{step}.json", step)
        assert any(part["input"] or part["output"] for part in json.loads(case.read_text())["parts"])
        with pytest.raises(ConfigError, match="cannot be run, only read") as caught:
            replay_recorded(case, program(job))
        assert why in caught.value.detail


def test_what_cannot_be_recorded(job: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a case is recorded of one step"):
        snapshots.replay(job, 4, env=program(job), record=str(tmp_path / "case.json"))
    with pytest.raises(ConfigError, match="saw no record and no timer of this key"):
        recorded(job, tmp_path / "case.json", "reminders", key="nobody")
    with pytest.raises(StateError, match="cannot be recorded"):
        to_plain(object())


def test_files_that_are_no_cases(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text("{")
    with pytest.raises(CorruptFileError, match="not a recorded case"):
        replay_recorded(path, shop.Reminder())
    path.write_text('{"penstock_case": 99}')
    with pytest.raises(CorruptFileError, match="of format 99"):
        replay_recorded(path, shop.Reminder())


def test_another_function_than_the_case_is_of(job: Path, tmp_path: Path) -> None:
    case = recorded(job, tmp_path / "case.json", "sessions")
    with pytest.raises(ConfigError, match="is not what a case of kind"):
        replay_recorded(case, 7)
    with pytest.raises(ConfigError, match="no step 'sessions'"):
        replay_recorded(case, StreamEnvironment("empty"))


@random_settings
@given(script=scripts(max_size=10), cut=st.sampled_from([2, 5]), epoch=st.integers(0, 5))
def test_random_cases_pass(tmp_path_factory: pytest.TempPathFactory, script: list[Any], cut: int, epoch: int) -> None:
    """State of every kind, with times to live and timers, goes into a case and comes out of it."""
    folder = tmp_path_factory.mktemp("random")
    env = StreamEnvironment("random")
    stream = env.from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks(), name="in")
    stream.key_by(lambda v: v[0]).process(Interpreter(), name="interpreter").print(name="out")
    execute_inline(env, clock=VirtualClock(1000), until=100_000, storage=str(folder / "job"), parallelism=2, keep=1000)
    epochs = snapshots.replayable(open_storage(folder / "job"))
    chosen = epochs[epoch % len(epochs)]
    if not chosen.records_in:
        return
    snapshots.replay(folder / "job", chosen.epoch, env=env, step="interpreter", record=str(folder / "case.json"))
    assert replay_recorded(folder / "case.json", Interpreter())


# --- values ------------------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: float


class Tagged(msgspec.Struct):
    name: str
    tags: set[str] = set()


CLASSES = {f"{cls.__module__}:{cls.__qualname__}": cls for cls in (Colour, Point, Tagged, shop.Order)}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.just(Colour.RED)
    | st.builds(Point, st.integers(), st.floats(allow_nan=False))
    | st.builds(Tagged, st.text(), st.sets(st.text()))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=8,
)


@given(values)
def test_values_come_back_as_they_were(value: Any) -> None:
    written = json.loads(json.dumps(to_plain(value)))
    back = from_plain(written, CLASSES.__getitem__)
    assert back == value
    assert type(back) is type(value)
    assert to_plain(back) == to_plain(value)


def test_odd_values() -> None:
    for value in (
        float("inf"),
        2**80,
        {"$x": 1},
        datetime(2026, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        UUID(int=7),
        1j,
        bytearray(b"x"),
    ):
        assert from_plain(json.loads(json.dumps(to_plain(value))), CLASSES.__getitem__) == value
    assert to_plain(np.int64(3)) == 3
    assert to_plain(object(), or_repr=True)["$repr"].startswith("<object")
    assert str(from_plain(to_plain(float("nan")), CLASSES.__getitem__)) == "nan"
