"""Values at the edges of what tables hold: they are read as they are, and come back through pandas unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock import (
    FileSink,
    KeyedContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    StreamEnvironment,
    Ttl,
    ValueState,
    snapshots,
)
from penstock.errors import StateError

BIG = 2**62 + 1
GIVEN = [("a", BIG), ("b", None), ("c", 2**63 + 5), ("d", -(2**63)), ("e", 0), ("", 7)]
STATES = ("maybe", "number", "point", "pair", "real", "reals", "perhaps", "numbers", "expiring", "by_name")


@dataclass
class Point:
    x: int | None
    y: float
    z: float = 1.0
    w: float | None = None


class Edges(KeyedProcessFunction[str, tuple[str, int | None], dict[str, Any]]):
    maybe: ValueState[int | None] = ValueState(int | None)
    number: ValueState[int] = ValueState(int)
    point: ValueState[Point] = ValueState(Point)
    pair: ValueState[tuple[int, float]] = ValueState(tuple[int, float])
    real: ValueState[float] = ValueState(float)
    reals: ListState[float] = ListState(float)
    perhaps: ListState[float | None] = ListState(float | None)
    numbers: ListState[int | None] = ListState(int | None)
    expiring: ListState[int | None] = ListState(int | None, ttl=Ttl(timedelta(days=1)))
    by_name: MapState[str, int | None] = MapState(str, int | None)

    def process(self, value: tuple[str, int | None], ctx: KeyedContext[str]) -> Iterator[dict[str, Any]]:
        key, x = value
        real = nan if x is None else float(x)
        self.maybe.update(x)
        if x is not None:
            self.number.update(x)
        self.point.update(Point(x, real, real, real if x == 0 else None))
        self.pair.update((x or 0, real))
        self.real.update(real)
        for one in (real, 1.5):
            self.reals.add(one)
        for maybe in (None if x is None else real, 1.5):
            self.perhaps.add(maybe)
        for number in (x, 1):
            self.numbers.add(number)
            self.expiring.add(number)
        self.by_name[f"é{key}"] = x
        yield {"key": key}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("edges")
    env = StreamEnvironment("edges", executor="inline", parallelism=2, storage=str(folder / "job"))
    stream = env.from_collection(GIVEN, name="in").key_by(lambda v: v[0], key_type=str)
    stream.process(Edges(), name="edges").sink_to(FileSink(str(folder / "out"), format="json"), name="out")
    env.execute()
    return str(folder / "job")


def test_integers_of_any_size_are_got_as_they_are(job: str) -> None:
    with snapshots.read(job) as found:
        for key, x in GIVEN:
            assert found.state("edges", "maybe").get(key) == x
            assert found.state("edges", "numbers").get(key) == [x, 1]
            assert found.state("edges", "expiring").get(key) == [x, 1]
            assert found.state("edges", "by_name").get(key) == {f"é{key}": x}


def test_a_failed_replace_changes_nothing(job: str, tmp_path: Path) -> None:
    with snapshots.edit(job) as edit:
        state = edit.state("edges", "number")
        with pytest.raises(StateError):
            state.replace([pa.table({"key": ["new"], "value": [1]}), pa.table({"key": ["new"], "value": ["no number"]})])
        assert not state.changed
        info = edit.write(str(tmp_path / "same"))
    assert snapshots.diff(job, info.uri).same


def test_the_last_replace_counts(job: str, tmp_path: Path) -> None:
    with snapshots.edit(job) as edit:
        state = edit.state("edges", "number")
        state.replace([{"key": "x", "value": 1}])
        state.replace([{"key": "y", "value": 2}])
        info = edit.write(str(tmp_path / "replaced"))
    with snapshots.read(info.uri) as found:
        assert found.state("edges", "number").to_arrow().select(["key", "value"]).to_pylist() == [{"key": "y", "value": 2}]


@pytest.mark.parametrize("how", ["to_arrow", "to_pandas"])
def test_what_is_read_can_be_put_back(job: str, tmp_path: Path, how: str) -> None:
    with snapshots.read(job) as found, snapshots.edit(job) as edit:
        for name in STATES:
            edit.state("edges", name).replace(getattr(found.state("edges", name), how)())
        info = edit.write(str(tmp_path / "again"))
    assert [(s.name, s.examples) for s in snapshots.diff(job, info.uri).states if not s.same] == []
    with snapshots.read(info.uri) as again:
        assert isnan(again.state("edges", "real").get("b"))
        point = again.state("edges", "point").get("b")
        assert (isnan(point["y"]), isnan(point["z"]), point["w"]) == (True, True, None)


def test_only_integers_with_nulls_are_nullable_in_pandas(job: str) -> None:
    with snapshots.read(job) as found:
        assert str(found.state("edges", "maybe").to_pandas()["value"].dtype) == "Int64"
        assert str(found.state("edges", "numbers").to_pandas()["chunk"].dtype) == "int64"
        assert str(found.state("edges", "real").to_pandas()["value"].dtype) == "float64"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("maybe", pd.DataFrame({"key": ["a", "b"], "value": [float(BIG), None]})),
        ("maybe", pd.DataFrame({"key": ["a", "b"], "value": pd.Series([float(BIG), None], dtype="Float64")})),
        ("maybe", pd.DataFrame({"key": ["a", "b"], "value": pd.Series([float(BIG), None], dtype=object)})),
        ("numbers", pd.DataFrame({"key": ["a"], "value": [[float(BIG), nan]]})),
        ("point", pd.DataFrame({"key": ["a"], "value": [{"x": float(BIG), "y": 1.0, "z": 1.0, "w": None}]})),
        ("maybe", [{"key": "a", "value": float(BIG)}]),
        ("numbers", [{"key": "a", "value": [float(BIG)]}]),
        ("pair", [{"key": "a", "value": (float(BIG), 1.0)}]),
        ("maybe", pa.table({"key": ["a"], "value": [float(BIG)]})),
        ("numbers", pa.table({"key": ["a"], "value": [[float(BIG), None]]})),
    ],
)
def test_floats_that_may_have_been_other_integers_are_refused(job: str, name: str, rows: Any) -> None:
    with snapshots.edit(job) as edit, pytest.raises(StateError, match=r"2\*\*53"):
        edit.state("edges", name).replace(rows)


def test_smaller_floats_are_integers(job: str) -> None:
    with snapshots.edit(job) as edit:
        edit.state("edges", "maybe").replace(pd.DataFrame({"key": ["a", "b"], "value": [float(2**53 - 1), None]}))
        edit.state("edges", "numbers").replace(pd.DataFrame({"key": ["a"], "value": [[5.0, nan]]}))
        edit.state("edges", "point").replace([{"key": "a", "value": {"x": 5.0, "y": 1.0, "z": 1.0, "w": None}}])


def test_nulls_are_nan_only_from_pandas(job: str) -> None:
    with snapshots.edit(job) as edit, pytest.raises(StateError, match="nulls"):
        edit.state("edges", "real").replace([{"key": "a", "value": None}])
    with snapshots.edit(job) as edit, pytest.raises(StateError, match="nulls"):
        edit.state("edges", "number").replace(pd.DataFrame({"key": ["a", "b"], "value": [1, None]}))


def test_two_columns_of_one_name_are_refused(job: str) -> None:
    with snapshots.edit(job) as edit, pytest.raises(StateError, match="two columns of one name"):
        edit.state("edges", "real").put(pd.DataFrame([["a", 1.0, 2.0]], columns=["key", "value", "value"]))
