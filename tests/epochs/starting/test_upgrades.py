"""A job is stopped, its program is changed, and it goes on with the state it had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from penstock import (
    AggregateFunction,
    AggregatingState,
    FileSink,
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    StreamEnvironment,
    Ttl,
    TumblingWindows,
    ValueState,
    Watermarks,
    WindowFunction,
    count,
)
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import PenstockError, PlanError, StateError, UserCodeError
from penstock.failpoints import InjectedError, arm
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.state.encoding.codecs import PICKLE
from penstock.state.entries.store_keys import state_id_of_store_key
from penstock.state.files.durable import read_entries
from penstock.state.files.merging import live
from penstock.state.files.merging import newest as merged
from penstock.state.overlay.writes import Writes
from penstock.storage import open_storage
from penstock.testing import CollectSink, ScriptedSource, VirtualClock, Watermark, execute_inline

RECORDS = [{"k": f"k{n % 7}", "other": f"o{n % 3}", "v": n, "t": n} for n in range(60)]
HALF = 33

Build = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def run(
    folder: Path,
    function: KeyedProcessFunction[Any, Any, Any],
    upto: int,
    *,
    key: Any = "k",
    name: str = "step",
    previous_names: tuple[str, ...] = (),
    key_type: Any = None,
    **settings: Any,
) -> list[Any]:
    """Go on with the job, in `folder`, to the record `upto`; what it emits on the way."""
    sink = CollectSink()
    env = StreamEnvironment("upgraded", parallelism=2, max_parallelism=16, restart=NO_RESTART, compact_after=4)
    stream = env.from_source(ScriptedSource(RECORDS[:upto], cut=4), name="in").key_by(key, key_type=key_type)
    stream.process(function, name=name, previous_names=previous_names).sink_to(sink, name="out")
    execute_inline(env, storage=str(folder / "storage"), **settings)
    return list(sink.results())


def newest(folder: Path) -> Manifest:
    names = sorted((folder / "storage" / "epochs").glob("*.json"))
    return load_manifest(open_storage(folder / "storage"), Epoch(int(names[-1].stem)))


def info(folder: Path, name: str) -> Any:
    return next(one for one in newest(folder).state.ids.values() if one.name == name)


# --- all kinds of state ------------------------------------------------------------------------------------------------------


@dataclass
class Stats:
    count: int
    total: int


class Seen(NamedTuple):
    v: int


class Average(AggregateFunction[int, Any, float]):
    """The accumulator is [count, sum]; then a dict."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: Any) -> Any:
        return [accumulator[0] + 1, accumulator[1] + value]

    def result(self, accumulator: Any) -> float:
        return float(accumulator[1] / accumulator[0])


@dataclass
class Sum:
    count: int
    sum: int


class NewAverage(AggregateFunction[int, Sum, float]):
    def create_accumulator(self) -> Sum:
        return Sum(0, 0)

    def add(self, value: int, accumulator: Sum) -> Sum:
        return Sum(accumulator.count + 1, accumulator.sum + value)

    def result(self, accumulator: Sum) -> float:
        return accumulator.sum / accumulator.count


class First(KeyedProcessFunction[str, Any, Any]):
    stats: ValueState[Stats | None] = ValueState(Stats)
    recent: ListState[Seen] = ListState(Seen)
    by_other: MapState[str, int] = MapState(str, int)
    most: ReducingState[int] = ReducingState(int, max)
    mean = AggregatingState(Average(), list[int])

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        v = record["v"]
        before = self.stats.value or Stats(0, 0)
        stats = Stats(before.count + 1, before.total + v)
        self.stats.update(stats)
        self.recent.add(Seen(v))
        self.by_other[record["other"]] = (self.by_other.get(record["other"]) or 0) + 1
        self.most.add(v)
        self.mean.add(v)
        yield (
            ctx.key,
            stats.count,
            stats.total,
            [one.v for one in self.recent],
            dict(self.by_other.items()),
            self.most.value,
            self.mean.value,
        )


@dataclass
class NewStats:
    total: float
    number: int
    last: str = "none"


@dataclass
class Visit:
    value: int
    note: str = ""


class Second(KeyedProcessFunction[str, Any, Any]):
    """`stats`: renamed, widened and with a field more; the others by functions."""

    stats: ValueState[NewStats | None] = ValueState(NewStats, aliases={"count": "number"})
    recent: ListState[Visit] = ListState(Visit, migrate=lambda seen: Visit(seen[0]))
    by_other: MapState[str, dict[str, int]] = MapState(str, dict[str, int], migrate=lambda n: {"n": n})
    most: ReducingState[str] = ReducingState(str, lambda a, b: max(a, b, key=int), migrate=str)
    mean = AggregatingState(NewAverage(), Sum, migrate=lambda pair: Sum(*pair))

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        v = record["v"]
        before = self.stats.value or NewStats(0.0, 0)
        stats = NewStats(before.total + v, before.number + 1, record["other"])
        self.stats.update(stats)
        self.recent.add(Visit(v))
        held = self.by_other.get(record["other"]) or {"n": 0}
        self.by_other[record["other"]] = {"n": held["n"] + 1}
        self.most.add(str(v))
        self.mean.add(v)
        yield (
            ctx.key,
            stats.number,
            stats.total,
            [one.value for one in self.recent],
            {key: value["n"] for key, value in self.by_other.items()},
            int(self.most.value or 0),
            self.mean.value,
        )


def expected() -> list[Any]:
    """What either program makes of all records."""
    out = []
    seen: dict[str, list[int]] = {}
    others: dict[str, Counter[str]] = {}
    for record in RECORDS:
        mine = seen.setdefault(record["k"], [])  # type: ignore[arg-type]
        mine.append(record["v"])  # type: ignore[arg-type]
        counts = others.setdefault(record["k"], Counter())  # type: ignore[arg-type]
        counts[record["other"]] += 1  # type: ignore[index]
        mean = sum(mine) / len(mine)
        out.append((record["k"], len(mine), sum(mine), list(mine), dict(counts), max(mine), mean))
    return sorted(out, key=repr)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_every_kind_of_state_goes_on_in_a_changed_program(tmp_path: Path, parallelism: int) -> None:
    first = run(tmp_path, First(), HALF)
    rest = run(tmp_path, Second(), 45, parallelism=parallelism)
    rest += run(tmp_path, Second(), 60)  # nothing is migrated twice
    assert sorted([*first, *rest], key=repr) == expected()


def test_every_kind_of_state_goes_on_from_a_savepoint(tmp_path: Path) -> None:
    """The chain begins with Parquet files then."""
    first = run(tmp_path, First(), HALF)
    savepoint = make_savepoint(open_storage(tmp_path / "storage"), to=str(tmp_path / "savepoint")).uri
    rest = restored(tmp_path / "fork", Second(), savepoint)
    assert sorted([*first, *rest], key=repr) == expected()


def restored(folder: Path, function: KeyedProcessFunction[Any, Any, Any], savepoint: str, **settings: Any) -> list[Any]:
    sink = CollectSink()
    env = StreamEnvironment("fork", parallelism=2, max_parallelism=16, restart=NO_RESTART, executor="inline", until_idle=True)
    env.from_source(ScriptedSource(RECORDS, cut=4), name="in").key_by("k").process(function, name="step").sink_to(
        sink, name="out"
    )
    env.execute(storage=str(folder), restore_from=savepoint, local_dir=str(folder) + "-local", **settings)
    return list(sink.results())


@pytest.mark.parametrize("action", ["raise", "error"])
def test_a_migration_that_dies_leaves_the_job_as_it_was(tmp_path: Path, action: str) -> None:
    first = run(tmp_path, First(), HALF)
    before = newest(tmp_path)
    if action == "raise":
        arm("migrate:written=raise")
        with pytest.raises(InjectedError):
            run(tmp_path, Second(), 60)
        arm("")
        assert list((tmp_path / "storage" / "state").glob("**/*-m*.delta"))
    else:
        broken = Second()
        broken.most = ReducingState(str, max, migrate=complains)
        with pytest.raises(UserCodeError):
            run(tmp_path, broken, 60)
    assert newest(tmp_path) == before
    first += run(tmp_path, First(), 40)  # the old program can go on
    named = {ref.name for stage in newest(tmp_path).state.chains for chain in stage for ref in chain}
    left = [str(path.relative_to(tmp_path / "storage")) for path in (tmp_path / "storage" / "state").glob("**/*-m*.delta")]
    assert [name for name in left if name not in named] == []
    rest = run(tmp_path, Second(), 60)
    assert sorted([*first, *rest], key=repr) == expected()


def complains(value: int) -> str:
    if value >= 28:
        raise LookupError("too many")
    return str(value)


def test_an_error_of_migrate_names_state_key_value_and_place(tmp_path: Path) -> None:
    run(tmp_path, First(), HALF)
    broken = Second()
    broken.most = ReducingState(str, max, migrate=complains)
    with pytest.raises(UserCodeError) as caught:
        run(tmp_path, broken, 60)
    text = str(caught.value)
    assert "migrate= of state 'most' of step 'step': LookupError: too many" in text
    assert "key: 'k" in text
    assert "stored value: " in text
    assert "function: complains (" in text
    assert "test_upgrades.py:" in text
    assert "the job is unchanged" in text


def test_what_migrate_returns_is_checked(tmp_path: Path) -> None:
    run(tmp_path, First(), HALF)
    broken = Second()
    broken.most = ReducingState(str, max, migrate=lambda value: value)
    with pytest.raises(UserCodeError, match=r"migrate= of state 'most'.*is of type int, expected str"):
        run(tmp_path, broken, 60)


# --- older values stay -------------------------------------------------------------------------------------------------------


@dataclass
class WithX:
    n: int
    x: int = 1


@dataclass
class WithoutX:
    n: int


@dataclass
class TextX:
    n: int
    x: str = ""


class Counting(KeyedProcessFunction[str, Any, Any]):
    """Counts in a record of some type."""

    def __init__(self, record: Any, **evolving: Any) -> None:
        self.record = record
        self.held: ValueState[Any] = ValueState(record, **evolving)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        before = self.held.value
        value = self.record(1 if before is None else before.n + 1)
        if before is not None and hasattr(before, "x"):
            value.x = before.x
        self.held.update(value)
        yield ctx.key, value.n, getattr(value, "x", None)


def test_a_program_is_compared_with_every_schema_that_values_may_have(tmp_path: Path) -> None:
    run(tmp_path, Counting(WithX), 20)
    run(tmp_path, Counting(WithoutX), 22)  # only a few values are written again
    assert len(info(tmp_path, "held").earlier) == 1
    with pytest.raises(StateError, match="field 'x' was int and is str now"):
        run(tmp_path, Counting(TextX), 30)
    run(tmp_path, Counting(WithoutX), 24)
    assert len(info(tmp_path, "held").earlier) == 1
    found = run(tmp_path, Counting(TextX, migrate=lambda v: TextX(v["n"], str(v.get("x", "?")))), 30)
    assert info(tmp_path, "held").earlier == []
    assert {x for _, _, x in found} == {"1", "?"}
    assert sorted(n for _, n, _ in found) == [4, 4, 4, 4, 5, 5]
    run(tmp_path, Counting(TextX), 40)


@dataclass
class OtherX:
    n: int
    x: int = 2


@dataclass
class NeededX:
    n: int
    x: int


class PairX(NamedTuple):
    n: int
    x: int = 1


class PairWithoutX(NamedTuple):
    n: int


class OtherPairX(NamedTuple):
    n: int
    x: int = 2


class Touching(Counting):
    """Changes what it finds: a field that was not stored is not stored now either."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        value = self.held.value or self.record(0)
        value.n += 1
        self.held.update(value)
        yield ctx.key, value.n, value.x


@pytest.mark.parametrize("between", [0, 20])
def test_a_default_that_stored_values_lack_is_kept_to(tmp_path: Path, between: int) -> None:
    run(tmp_path, Counting(WithoutX), 20)
    assert {x for _, _, x in run(tmp_path, Touching(WithX), 21 + between)} == {1}
    with pytest.raises(StateError, match="'x' was not stored where it was 1, and that is not its default now"):
        run(tmp_path, Touching(OtherX), 60)
    with pytest.raises(StateError, match=r"'x'.* has no default"):
        run(tmp_path, Touching(NeededX), 60)
    run(tmp_path, Touching(WithX), 42)  # the same program goes on
    found = run(tmp_path, Touching(OtherX, migrate=lambda v: OtherX(v["n"], v.get("x", 1))), 50)
    assert {x for _, _, x in found} == {1}
    assert {x for _, _, x in run(tmp_path, Touching(NeededX), 60)} == {1}


@dataclass
class ListX:
    n: int
    x: list[int] = field(default_factory=lambda: [1])


@dataclass
class OtherListX:
    n: int
    x: list[int] = field(default_factory=lambda: [2])


def test_a_default_that_is_made_is_kept_to(tmp_path: Path) -> None:
    run(tmp_path, Counting(WithoutX), 20)
    run(tmp_path, Touching(ListX), 22)
    with pytest.raises(StateError, match=r"'x' was not stored where it was \[1\]"):
        run(tmp_path, Touching(OtherListX), 40)
    assert run(tmp_path, Touching(ListX), 40)


def test_a_default_that_stored_tuples_lack_is_kept_to(tmp_path: Path) -> None:
    run(tmp_path, Pairs(PairWithoutX), 20)
    run(tmp_path, Pairs(PairX), 22)
    with pytest.raises(StateError, match="'x' was not stored where it was 1"):
        run(tmp_path, Pairs(OtherPairX), 40)
    assert run(tmp_path, Pairs(PairX), 40)


class Pairs(Counting):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        value = self.held.value or self.record(0)
        self.held.update(value._replace(n=value.n + 1))
        yield ctx.key, value.n + 1, getattr(value, "x", None)


def test_compatible_changes_need_nothing(tmp_path: Path) -> None:
    run(tmp_path, Counting(WithoutX), 20)
    before = {ref.name for stage in newest(tmp_path).state.chains for chain in stage for ref in chain}
    found = run(tmp_path, Counting(WithX), 30)
    after = {ref.name for stage in newest(tmp_path).state.chains for chain in stage for ref in chain}
    assert not any("-m" in name for name in after - before)
    assert all(x == 1 for _, _, x in found)
    assert run(tmp_path, Counting(WithoutX), 40)  # and back again


def test_migrate_is_called_when_it_is_needed_only(tmp_path: Path) -> None:
    """A function that is left in a program for later changes is not called by them."""

    def once(value: Any) -> Any:
        assert isinstance(value, int), value
        return WithX(value)

    class Ints(KeyedProcessFunction[str, Any, Any]):
        held = ValueState(int, default=0)

        def process(self, record: Any, ctx: Any) -> None:
            self.held.update(self.held.value + 1)

    run(tmp_path, Ints(), 20)
    assert run(tmp_path, Counting(WithX, migrate=once), 21)[0][1] == 3
    assert run(tmp_path, Counting(WithX, migrate=once), 30)
    assert run(tmp_path, Counting(WithoutX, migrate=once), 40)


def test_a_renamed_state_is_migrated_even_if_its_type_did_not_change(tmp_path: Path) -> None:
    class Cents(KeyedProcessFunction[str, Any, Any]):
        cents = ValueState(int, default=0)

        def process(self, record: Any, ctx: Any) -> None:
            self.cents.update(self.cents.value + 100)

    class Euros(KeyedProcessFunction[str, Any, Any]):
        euros = ValueState(int, default=0, previous_names=("cents",), migrate=lambda cents: cents // 100)

        def process(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.euros.update(self.euros.value + 1)
            yield ctx.key, self.euros.value

    run(tmp_path, Cents(), 14)
    found = run(tmp_path, Euros(), 21) + run(tmp_path, Euros(), 28)
    assert sorted(found) == sorted([(f"k{n}", 3) for n in range(7)] + [(f"k{n}", 4) for n in range(7)])


# --- what is refused ---------------------------------------------------------------------------------------------------------


class Mapping(KeyedProcessFunction[str, Any, Any]):
    def __init__(self, key: Any = str, **other: Any) -> None:
        self.held: MapState[Any, int] = MapState(key, int)
        for name, state in other.items():
            setattr(self, name, state)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        key = record["other"] if self.held._keys.key_type in (str, None) else record["v"]  # type: ignore[attr-defined]
        self.held[key] = self.held.get(key, 0) + 1  # type: ignore[operator]
        yield ctx.key, key, self.held[key]


def test_changes_that_are_refused_are_named(tmp_path: Path) -> None:
    run(tmp_path, Mapping(), 20)
    with pytest.raises(StateError) as caught:
        run(tmp_path, Counting(WithX), 30)
    assert "cannot resume state 'held' of step 'step': it was a map state and is a value state now" in str(caught.value)
    assert "give the new state another name" in str(caught.value)
    with pytest.raises(StateError, match="the keys of the map were of type str and are of type int now"):
        run(tmp_path, Mapping(int), 30)
    with pytest.raises(StateError, match="it was keyed by 'k' and is keyed by 'other' now") as caught:
        run(tmp_path, Mapping(), 30, key="other")
    assert "key_by a function" in str(caught.value)
    with pytest.raises(StateError, match="its keys were of no declared type and are of type int now"):
        run(tmp_path, Mapping(), 30, key_type=int)
    with pytest.raises(StateError, match=r"the job has state that the program does not claim: step\.held"):
        run(tmp_path, Mapping(), 30, name="another")
    found = run(tmp_path, Mapping(None), 30, key=lambda record: record["k"])  # the same keys, and the same keys of the map
    assert max(n for _, _, n in found) == 2


class Extra(KeyedProcessFunction[str, Any, Any]):
    """Has a state, and perhaps another; emits what that one held."""

    n = ValueState(int, default=0)

    def __init__(self, name: str | None) -> None:
        self.name = name
        if name is not None:
            setattr(self, name, ValueState(int))

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.n.update(self.n.value + 1)
        if self.name is not None:
            extra = getattr(self, self.name)
            yield extra.value
            extra.update(record["v"])


def test_an_id_is_not_given_twice(tmp_path: Path) -> None:
    """Entries of a dropped state stay in the files: a later state must not read them."""
    run(tmp_path, Extra(None), 7)
    run(tmp_path, Extra("one"), 14)  # the newest id
    run(tmp_path, Extra(None), 14, allow_dropped_state=True)
    assert run(tmp_path, Extra("two"), 21) == [None] * 7


def test_two_steps_cannot_go_on_with_one_state(tmp_path: Path) -> None:
    run(tmp_path, Counting(WithX), 20, name="old")

    def both(second: str, **names: Any) -> StreamEnvironment:
        env = StreamEnvironment("upgraded", parallelism=2, max_parallelism=16, restart=NO_RESTART)
        stream = env.from_source(ScriptedSource(RECORDS, cut=4), name="in").key_by("k")
        stream.process(Counting(WithX), name="new", previous_names=("old",)).sink_to(CollectSink(), name="out")
        stream.process(Counting(WithX), name=second, **names).sink_to(CollectSink(), name="out2")
        return env

    with pytest.raises(PlanError, match="both say that they were called 'old'"):
        both("newer", previous_names=("old",))
    with pytest.raises(StateError, match="the state 'held' of step 'old' is claimed twice"):
        execute_inline(both("old"), storage=str(tmp_path / "storage"))


def test_pickled_state_of_a_foreign_place_needs_trust(tmp_path: Path) -> None:
    run(tmp_path, Counting(WithX, codec=PICKLE), 20)
    savepoint = make_savepoint(open_storage(tmp_path / "storage"), to=str(tmp_path / "savepoint")).uri
    migrating = {"migrate": lambda old: WithX(old.n, old.x)}
    for function in (Counting(WithX, codec=PICKLE), Counting(WithX, **migrating)):
        with pytest.raises(StateError, match=r"state that is kept by pickle would be loaded from .*: step\.held"):
            restored(tmp_path / "fork", function, savepoint)
    assert max(n for _, n, _ in restored(tmp_path / "fork", Counting(WithX, **migrating), savepoint, trust=True)) == 9
    with pytest.raises(StateError, match=r"kept by pickle would be loaded from .*/storage: step\.held"):
        run(tmp_path, Counting(WithX, **migrating), 27)  # the storage says pickle, and the program does not
    assert run(tmp_path, Counting(WithX, codec=PICKLE), 27)  # one's own, and the program asks for it
    assert run(tmp_path, Counting(WithX, **migrating), 40, trust=True)


# --- times to live -----------------------------------------------------------------------------------------------------------


class Living(KeyedProcessFunction[str, Any, Any]):
    def __init__(self, ttl: Any) -> None:
        self.held: ValueState[int] = ValueState(int, ttl=ttl)
        self.items: ListState[int] = ListState(int, ttl=ttl)
        self.map: MapState[str, int] = MapState(str, int, ttl=ttl)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, self.held.value, list(self.items), dict(self.map.items())
        self.held.update(record["v"])
        self.items.add(record["v"])
        self.map["m"] = record["v"]


def entries(folder: Path) -> Counter[str]:
    """How many entries are stored of each state, as the files tell."""
    manifest, found = newest(folder), Counter[str]()
    for stage in manifest.state.chains:
        for chain in stage:
            runs = [read_entries(open_storage(folder / "storage"), ref) for ref in chain]
            for keys, _ in live(merged(runs)):
                found.update(manifest.state.ids[str(state_id_of_store_key(key))].name for key in keys)
    return found


def test_a_time_to_live_that_comes_goes_and_changes_its_clock(tmp_path: Path) -> None:
    hour = Ttl(timedelta(hours=1))
    at = [0]

    def go(ttl: Any, upto: int, hours: float) -> dict[str, Any]:
        at[0] += int(hours * 3_600_000)
        clock = VirtualClock(at[0])
        return {key: rest for key, *rest in run(tmp_path, Living(ttl), upto, clock=clock)}

    assert go(None, 7, 1)["k0"] == [None, [], {}]
    assert go(hour, 8, 5)["k0"] == [0, [0], {"m": 0}]  # counted from this start: not expired
    assert go(hour, 9, 0.9)["k1"] == [1, [1], {"m": 1}]
    assert go(hour, 10, 0.2)["k2"] == [None, [], {}]  # an hour and six minutes after the start
    assert go(None, 14, 0)["k6"] == [None, [], {}]  # what has expired does not come back
    assert go(None, 18, 9)["k3"][0] == 10
    assert go(Ttl(timedelta(hours=1), time="event"), 25, 9)["k4"][0] == 11


def test_entries_whose_time_to_live_is_new_are_removed_when_it_is_over(tmp_path: Path) -> None:
    hour = Ttl(timedelta(hours=1))
    run(tmp_path, Living(None), 7, clock=VirtualClock(0))
    run(tmp_path, Living(hour), 7, clock=VirtualClock(1000))
    assert entries(tmp_path) == {"held": 7, "items": 7, "map": 7, "timers:ttl-processing": 7}
    run(tmp_path, Living(hour), 8, clock=VirtualClock(2 * 3_600_000))  # a record of one key
    assert entries(tmp_path) == {"held": 1, "items": 1, "map": 1, "timers:ttl-processing": 1}


# --- names -------------------------------------------------------------------------------------------------------------------


class AtTen(KeyedProcessFunction[str, Any, Any]):
    """Counts; says so ten after the first."""

    n = ValueState(int, default=0)

    def process(self, record: Any, ctx: Any) -> None:
        if self.n.value == 0:
            ctx.timers.register_event_time(record["t"] + 10)
        self.n.update(self.n.value + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield {"key": ctx.key, "n": self.n.value}


class Whole(WindowFunction[str, Any, Any]):
    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield {"key": ctx.key, "window": ctx.window.start, "sum": sum(record["v"] for record in values)}


SCRIPT = [one for record in RECORDS for one in (record, Watermark(record["t"] - 2))]  # type: ignore[operator]


def all_kinds(folder: Path, upto: int, names: Callable[[str], dict[str, Any]]) -> None:
    env = StreamEnvironment("named", parallelism=2, max_parallelism=16, restart=NO_RESTART)
    watermarks: Any = Watermarks.monotonous(timestamp="t")
    stream = env.from_source(ScriptedSource(SCRIPT[:upto], cut=6), watermarks=watermarks, **names("in")).key_by("k")
    sinks = {
        "timers": stream.process(AtTen(), **names("at-ten")),
        "sums": stream.sum("v", **names("sums")).map(lambda record: {"key": record["k"], "sum": record["v"]}, name="shape"),
        "columns": stream.window(TumblingWindows(timedelta(milliseconds=10))).aggregate(count(), **names("columns")),
        "records": stream.window(TumblingWindows(timedelta(milliseconds=10))).process(Whole(), **names("records")),
    }
    for folder_name, each in sinks.items():
        each.sink_to(FileSink(str(folder / folder_name), format="json"), **names(f"{folder_name}-out"))
    execute_inline(env, storage=str(folder / "storage"))


def rows(folder: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, read_rows(folder / name))) for name in ("timers", "sums", "columns", "records")}


def plain(name: str) -> dict[str, Any]:
    return {"name": name}


def test_everything_can_be_renamed(tmp_path: Path) -> None:
    """State, timers, windows, positions, watermarks, and the folders of files: once, and again, and then plainly."""
    all_kinds(tmp_path / "a", len(SCRIPT), plain)
    b = tmp_path / "b"
    all_kinds(b, 40, plain)
    arm("manifest:after=raise@3")  # an epoch whose output is not published
    with pytest.raises(InjectedError):
        all_kinds(b, 60, plain)
    arm("")
    all_kinds(b, 64, lambda name: {"name": f"new {name}", "previous_names": (name,)})
    all_kinds(b, 70, lambda name: {"name": f"new {name}"})
    all_kinds(b, 80, lambda name: {"name": f"newer {name}", "previous_names": (f"new {name}", f"never {name}")})
    all_kinds(b, len(SCRIPT), lambda name: {"name": f"newer {name}"})
    assert rows(b) == rows(tmp_path / "a")
    assert all(len(each) >= 5 for each in rows(b).values())


def test_a_job_that_begins_with_former_names_has_none(tmp_path: Path) -> None:
    names: Any = lambda name: {"name": name, "previous_names": (f"old {name}",)}  # noqa: E731
    all_kinds(tmp_path / "b", 60, names)
    all_kinds(tmp_path / "b", len(SCRIPT), names)
    all_kinds(tmp_path / "a", len(SCRIPT), plain)
    assert rows(tmp_path / "b") == rows(tmp_path / "a")


def test_a_new_sink_cannot_take_the_name_that_a_target_knows(tmp_path: Path) -> None:
    def go(name: str, previous: tuple[str, ...], other: str | None, upto: int) -> None:
        env = StreamEnvironment("sinks", parallelism=1, restart=NO_RESTART)
        stream = env.from_source(ScriptedSource(RECORDS[:upto], cut=4), name="in")
        stream.sink_to(FileSink(str(tmp_path / "out"), format="json"), name=name, previous_names=previous)
        if other is not None:
            stream.sink_to(FileSink(str(tmp_path / "other"), format="json"), name=other)
        execute_inline(env, storage=str(tmp_path / "storage"))

    go("old", (), None, 10)
    go("new", ("old",), None, 20)
    with pytest.raises(PlanError, match="would both be known as 'old'"):
        go("new", (), "old", 30)
    go("new", (), "another", 30)
    assert len(list(read_rows(tmp_path / "out"))) == 30


def test_names_that_make_no_sense() -> None:
    stream = StreamEnvironment("names").from_collection([1]).key_by(lambda n: n)
    with pytest.raises(PlanError, match="previous_names='old'"):
        stream.sum(name="new", previous_names="old")
    with pytest.raises(PlanError, match="but no name"):
        stream.sum(previous_names=("old",))
    with pytest.raises(PlanError, match="the name that it has"):
        stream.sum(name="new", previous_names=("new",))


def test_a_rolling_aggregation_and_windows_say_what_their_state_was(tmp_path: Path) -> None:
    """`state_type=` may be a ValueState with aliases= or migrate=."""

    def job(upto: int, rolling: Any, kept: Any, value: str, **settings: Any) -> list[Any]:
        sink, other = CollectSink(), CollectSink()
        env = StreamEnvironment("rolling", parallelism=2, restart=NO_RESTART)
        watermarks: Any = Watermarks.monotonous(timestamp=lambda one: one.t)
        records = [Record(f"k{n % 3}", n, n) if value == "v" else Renamed(f"k{n % 3}", n, n) for n in range(upto)]
        stream = env.from_source(ScriptedSource(records, cut=4), watermarks=watermarks, name="in").key_by("k")
        stream.max(value, name="max", state_type=rolling).map(lambda one: (one.k, getattr(one, value))).sink_to(sink)
        summed = stream.window(TumblingWindows(timedelta(milliseconds=20))).process(
            Summed(value), name="windows", state_type=kept
        )
        summed.sink_to(other, name="summed")
        execute_inline(env, storage=str(tmp_path / "storage"), **settings)
        return [*sink.results(), *other.results()]

    first = job(27, Record, Record, "v")
    rest = job(
        60, ValueState(Renamed, aliases={"v": "value"}), ValueState(Renamed, migrate=lambda old: Renamed(*old.values())), "value"
    )
    windows = {one for one in first + rest if len(one) == 3}
    assert windows == {(f"k{k}", w, sum(n for n in range(w, w + 20) if n % 3 == k)) for k in range(3) for w in (0, 20)}
    assert {one for one in rest if len(one) == 2} == {(f"k{n % 3}", n) for n in range(27, 60)}


@dataclass
class Record:
    k: str
    v: int
    t: int


@dataclass
class Renamed:
    k: str
    value: int
    t: int


class Summed(WindowFunction[str, Any, Any]):
    def __init__(self, field: str) -> None:
        self.field = field

    def process(self, values: list[Any], ctx: Any) -> Iterator[Any]:
        yield ctx.key, ctx.window.start, sum(getattr(one, self.field) for one in values)


def test_a_value_that_does_not_fit_is_refused_with_its_key(tmp_path: Path) -> None:
    """What was written before writes were checked shows when it is rewritten, if it is not of the stored type."""
    with patch.object(Writes, "encode", lambda self, value, *_: self._codec.encode(value)):
        run(tmp_path, Wrong(), 7)
    with pytest.raises(PenstockError, match="a stored value of state 'held' of step 'step' cannot be rewritten") as caught:
        run(tmp_path, Right(), 14)
    assert "key: 'k" in str(caught.value)


class Wrong(KeyedProcessFunction[str, Any, Any]):
    held: ValueState[WithX] = ValueState(WithX)

    def process(self, record: Any, ctx: Any) -> None:
        self.held.update(WithX("not a number"))  # type: ignore[arg-type]


@dataclass
class Number:
    number: int
    x: int = 1


class Right(KeyedProcessFunction[str, Any, Any]):
    held: ValueState[Number] = ValueState(Number, aliases={"n": "number"})

    def process(self, record: Any, ctx: Any) -> None:
        pass
