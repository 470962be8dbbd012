"""Enrichment by a table: against dicts, over columns and by a function; versions of the table through refreshes and restarts."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import CollectSink, DataStream, EpochRecord, FileSource, StreamEnvironment
from penstock.epochs.planning.tables import TableKeeper
from penstock.errors import PlanError
from penstock.jobs.requests import LOOK_EVERY_S, ask, wait_for_answer
from penstock.jobs.source_order import TableVersion
from penstock.joins.static.index import TableIndex
from penstock.snapshots import replay
from penstock.storage import LocalStorage
from penstock.testing import run_inline

PEOPLE = pa.table({"id": [1, 2, 2, None], "name": ["ann", "bob", "bo", "nobody"], "age": [30, None, 50, 7]})

KEYS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "near": (st.none() | st.integers(0, 6), pa.int64()),
    "far": (st.none() | st.sampled_from([-(2**60), 5, 2**40, 2**62]), pa.int64()),
    "text": (st.none() | st.sampled_from(["a", "b", "c", ""]), pa.string()),
    "two": (st.tuples(st.none() | st.integers(0, 2), st.sampled_from(["x", "y"])), pa.int64()),
}


@given(st.data(), st.sampled_from(sorted(KEYS)), st.booleans())
def test_matches_are_those_of_a_double_loop(data: st.DataObject, kind: str, outer: bool) -> None:
    strategy, type_ = KEYS[kind]
    table, batch = (data.draw(st.lists(strategy, max_size=12)) for _ in range(2))

    def columns(keys: list[Any]) -> list[pa.Array]:
        if kind != "two":
            return [pa.array(keys, type_)]
        return [pa.array([key[0] for key in keys], type_), pa.array([key[1] for key in keys], pa.string())]

    names = ["k", "l"][: len(columns([]))]
    index = TableIndex(pa.table(columns(table), names=names), names)
    mine, theirs = index.matches(columns(batch), outer=outer)
    got = list(zip(range(len(batch)) if mine is None else mine.tolist(), theirs.tolist(), strict=True))
    want = []
    for number, key in enumerate(batch):
        null = key is None or (kind == "two" and key[0] is None)
        rows = [] if null else [row for row, other in enumerate(table) if other == key]
        want += [(number, row) for row in rows] or ([(number, -1)] if outer else [])
    assert got == want


def visits(env: StreamEnvironment) -> DataStream[Any]:
    return env.from_collection([{"who": 2, "page": "a"}, {"who": 3, "page": "b"}, {"who": None, "page": "c"}], name="visits")


def test_columns_and_functions_give_the_same() -> None:
    env = StreamEnvironment("visits")
    over_columns = run_inline(visits(env).enrich(PEOPLE, on={"who": "id"}, columns={"name": "n"}))
    by_function = run_inline(
        visits(StreamEnvironment("visits")).enrich(
            PEOPLE, on={"who": "id"}, function=lambda record, row: {**record, "n": row and row["name"]}
        )
    )
    assert over_columns == by_function
    assert [row["n"] for row in over_columns] == ["bob", "bo", None, None]
    inner = run_inline(visits(StreamEnvironment("visits")).enrich(PEOPLE, on={"who": "id"}, how="inner"))
    assert inner == [
        {"who": 2, "page": "a", "name": "bob", "age": None},
        {"who": 2, "page": "a", "name": "bo", "age": 50},
    ]


def test_columns_stay_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"who": [1, 2, 9], "page": ["a", "b", "c"]}), tmp_path / "visits.parquet")
    pq.write_table(PEOPLE, tmp_path / "people.parquet")
    env = StreamEnvironment("visits", executor="inline")
    rows = env.from_source(FileSource(str(tmp_path / "visits.parquet"))).enrich(
        str(tmp_path / "people.parquet"), on={"who": "id"}, columns=["name"], name="enrich"
    )
    assert rows.select("name").execute_and_collect() == [
        {"name": "ann"},
        {"name": "bob"},
        {"name": "bo"},
        {"name": None},
    ]
    text = env.explain()
    assert "join left, on who = id" in text
    assert "path over columns" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "nobody"}, "has no column 'nobody'"),
        ({"on": {"who": "id"}, "columns": ["size"]}, "the table has no column 'size'"),
        ({"on": {"who": "id"}, "columns": {"name": "page"}}, "both have a column 'page'"),
        ({"on": {"who": "id"}, "how": "full"}, "how='full'"),
        ({"on": []}, "without a key"),
        ({"on": {"who": "id"}, "function": len, "columns": ["name"]}, "columns or a function"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    env = StreamEnvironment("visits", executor="inline")
    with pytest.raises(PlanError) as refusal:
        visits(env).enrich(PEOPLE, **arguments).select("page")
    assert message in str(refusal.value)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(PlanError, match="int is not a table"):
        visits(StreamEnvironment("visits")).enrich(3, on="who")


class Changing:
    """A function that gives another table each time."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> pa.Table:
        self.times += 1
        return pa.table({"id": [2], "name": [f"version {self.times}"]})


def counted_versions(tmp: str, table: Any, *, epochs: int | None, refresh: timedelta | None) -> list[str]:
    env = StreamEnvironment("visits", parallelism=1, max_records_per_epoch=1, first_records_per_epoch=1)
    rows = env.from_collection([{"who": 2, "n": n} for n in range(6)], name="visits")
    found = run_inline(rows.enrich(table, on={"who": "id"}, refresh=refresh, name="enrich"), storage=tmp, epochs=epochs)
    return [row["name"] for row in found]


def test_a_version_stays_through_a_restart() -> None:
    with tempfile.TemporaryDirectory() as storage:
        table = Changing()
        assert set(counted_versions(storage, table, epochs=2, refresh=None)) == {"version 1"}
        assert set(counted_versions(storage, table, epochs=None, refresh=None)) == {"version 1"}
        assert table.times == 1


def test_an_old_table_is_loaded_again_between_epochs() -> None:
    with tempfile.TemporaryDirectory() as storage:
        found = counted_versions(storage, Changing(), epochs=None, refresh=timedelta(0))
    assert found == [f"version {n}" for n in range(1, 7)]


def test_a_table_of_another_program_is_another_version() -> None:
    with tempfile.TemporaryDirectory() as storage:
        counted_versions(storage, pa.table({"id": [2], "name": ["first"]}), epochs=2, refresh=None)
        rest = counted_versions(storage, pa.table({"id": [2], "name": ["second"]}), epochs=None, refresh=None)
        assert set(rest) == {"second"}
        assert not list(Path(storage, "tables").glob("*.arrow")) or len(list(Path(storage, "tables").glob("*.arrow"))) <= 2


def test_a_table_that_cannot_be_loaded_again_stays_as_it_is(tmp_path: Path) -> None:
    class Gone(Changing):
        def __call__(self) -> pa.Table:
            if self.times:
                raise OSError("away")
            return super().__call__()

    assert set(counted_versions(str(tmp_path), Gone(), epochs=None, refresh=timedelta(0))) == {"version 1"}


def test_a_request_is_for_steps_with_tables(tmp_path: Path) -> None:
    class Job:
        stages = ()

    keeper = TableKeeper(Job(), 1, LocalStorage(str(tmp_path)))  # type: ignore[arg-type]
    assert keeper.ask(None) == (False, "no step has a table")
    assert keeper.versions({"x": TableVersion(1, "tables/a", "d", 1, 0)}, 0) == {}


def test_a_running_job_loads_its_table_when_asked(tmp_path: Path) -> None:
    table = Changing()
    env = StreamEnvironment("visits", executor="inline", parallelism=1, storage=str(tmp_path))
    rows = env.from_collection([{"who": 2, "n": n} for n in range(12)], name="visits")
    sink = CollectSink()
    rows.enrich(table, on={"who": "id"}, name="enrich").sink_to(sink)
    storage = LocalStorage(str(tmp_path))
    asked: list[str] = []

    def ask_once(record: EpochRecord) -> None:
        if record.records_in and not asked:
            asked.append(ask(storage, "refresh", step="enrich"))
            asked.append(ask(storage, "refresh", step="visits"))
        time.sleep(LOOK_EVERY_S)

    env.execute(listener=ask_once, max_records_per_epoch=1, first_records_per_epoch=1)
    names = [row["name"] for row in sink.results()]
    assert set(names) == {"version 1", "version 2"}
    assert names == sorted(names)
    answers = [wait_for_answer(storage, identity, 0) for identity in asked]
    assert [answer is not None and answer.ok for answer in answers] == [True, False]


def test_an_epoch_is_replayed_with_the_table_that_it_used(tmp_path: Path) -> None:
    env = StreamEnvironment("visits", executor="inline", parallelism=1, storage=str(tmp_path), keep=20)
    rows = env.from_collection([{"who": 2, "n": n} for n in range(6)], name="visits")
    rows.enrich(Changing(), on={"who": "id"}, refresh=timedelta(0), name="enrich").sink_to(CollectSink(), name="out")
    env.execute(max_records_per_epoch=1, first_records_per_epoch=1)
    assert all(replay(str(tmp_path), epoch, step="enrich", env=env).reproduced for epoch in range(2, 7))


MIXED: list[Any] = [1, "1", "n/a", 2.0, 2.5, None, True, [1], 2**70, b"1", "2", float("nan")]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("table", "met"),
    [
        (pa.array([1, 2]), [1, 2.0, True]),
        (pa.array([1.0, 2.5, float("nan")]), [1, 2.5, True]),
        (pa.array(["1", "n/a"]), ["1", "n/a"]),
        (pa.array(["1", "n/a"]).dictionary_encode(), ["1", "n/a"]),
        (pa.array([b"1"]), [b"1"]),
        (pa.array([2**64 - 1, 1], pa.uint64()), [1, True]),
    ],
)
def test_keys_match_as_python_says_whatever_the_cut(table: pa.Array, met: list[Any], several: bool, columns: bool) -> None:
    known = pa.table({"k": table, "l": ["x"] * len(table), "v": [7] * len(table)})
    on = ["k", "l"] if several else ["k"]
    given = known if several else known.drop_columns(["l"])
    rows = [{"k": key, "l": "x"} for key in MIXED]
    for cut in (1, 2, 100):
        stream = StreamEnvironment("visits").from_collection(rows)
        kept = (
            stream.enrich(given, on=on, how="inner")
            if columns
            else stream.enrich(given, on=on, how="inner", function=lambda record, row: {**record, "v": row["v"]})  # type: ignore[index]
        )
        got = run_inline(kept, max_records_per_epoch=cut, first_records_per_epoch=cut)
        assert got == [{"k": key, "l": "x", "v": 7} for key in met]


def test_keys_of_columns_match_as_those_of_records() -> None:
    index = TableIndex(pa.table({"k": [1, 2, -1]}), ["k"])
    batches = [
        (pa.array(["1", "n/a"]), [-1, -1]),
        (pa.array([1.0, 2.5]), [0, -1]),
        (pa.array([2**64 - 1, 2], pa.uint64()), [-1, 1]),
        (pa.array(["1"]).dictionary_encode(), [-1]),
        (pa.nulls(1), [-1]),
    ]
    at = pa.array([1, 2], pa.timestamp("us", "UTC"))
    moments = TableIndex(pa.table({"k": at}), ["k"])
    for same in (at, at.cast(pa.timestamp("ms"), safe=False).cast(pa.timestamp("us")), at.to_pylist()):
        other = isinstance(same, pa.Array) and same.type.tz is None
        assert moments.matches([same], outer=True)[1].tolist() == ([-1, -1] if other else [0, 1])
    for batch, want in batches:
        assert index.matches([batch], outer=True)[1].tolist() == want
