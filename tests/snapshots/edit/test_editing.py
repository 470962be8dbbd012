"""Edited and built savepoints: what is written is what a job then starts with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import (
    FileSink,
    KeyedContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    OnTimerContext,
    StreamEnvironment,
    Ttl,
    ValueState,
    snapshots,
)
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import ConfigError, StateError
from penstock.snapshots.edit.sorting import Sorter
from penstock.storage import open_storage
from penstock.testing import End, ScriptedSource, VirtualClock, Watermark, execute_inline
from tests.snapshots.shops import orders, program, run_some, save


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("editing")
    return save(run_some(folder), folder / "savepoint")


def content(uri: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    with snapshots.read(uri) as found:
        return {(s.step, s.name): s.to_arrow().to_pylist() for s in found.states()}


def test_untouched_is_copied(savepoint: str, tmp_path: Path) -> None:
    with snapshots.edit(savepoint) as edit:
        info = edit.write(str(tmp_path / "copy"))
    found = snapshots.diff(savepoint, info.uri)
    assert found.same
    assert found.sources == {}
    before = snapshots.read(savepoint)
    assert info.parent is not None
    assert (info.parent.source, info.parent.identity) == (savepoint, before.info.identity)
    assert info.identity != before.info.identity
    assert [s.next_due for s in info.states] == [s.next_due for s in before.info.states]


def test_entries_are_changed_added_and_removed(savepoint: str, tmp_path: Path) -> None:
    with snapshots.edit(savepoint) as edit:
        orders_ = edit.state("ledger", "orders")
        orders_.put([{"key": "shop-1", "value": 1000}, {"key": "new", "value": 1}])
        orders_.remove("shop-2")
        orders_.map(lambda row: {**row, "value": row["value"] + 1} if row["key"] == "shop-3" else row)
        edit.state("ledger", "best").put(pd.DataFrame({"key": ["new"], "value": [{"item": "x", "cents": 5}]}))
        edit.state("ledger", "items").map(lambda row: None if row["map_key"] == "item-1" else row)
        edit.state("ledger", "total").map_tables(lambda t: t.set_column(1, "value", pc.multiply(t["value"], 2)))
        edit.state("ledger", "mean").replace(pa.table({"key": ["a"], "value": pa.array([[1, 2]], pa.list_(pa.int64()))}))
        edit.state("ledger", "timers:event").put([{"time": datetime(2020, 1, 1, tzinfo=UTC), "key": "new"}])
        edit.drop("visits")
        edit.rename_step("dearest", "top")
        edit.rename_state("ledger", "best", "record")
        edit.move_source("orders", lambda position: [position[0] - 100])
        info = edit.write(str(tmp_path / "edited"))
    before, after = content(savepoint), content(info.uri)
    then = {row["key"]: row["value"] for row in before["ledger", "orders"]}
    now = {row["key"]: row["value"] for row in after["ledger", "orders"]}
    assert now == {**{k: v for k, v in then.items() if k != "shop-2"}, "shop-1": 1000, "new": 1, "shop-3": then["shop-3"] + 1}
    assert {row["map_key"] for row in after["ledger", "items"]} == {row["map_key"] for row in before["ledger", "items"]} - {
        "item-1"
    }
    assert sum(row["value"] for row in after["ledger", "total"]) == 2 * sum(row["value"] for row in before["ledger", "total"])
    assert [(row["key"], row["value"]) for row in after["ledger", "mean"]] == [("a", [1, 2])]
    assert {"item": "x", "cents": 5} in [row["value"] for row in after["ledger", "record"]]
    assert after["top", "contents"] == before["dearest", "contents"]
    assert not [key for key in after if key[0] in ("visits", "dearest")]
    with snapshots.read(info.uri) as found:
        assert found.sources["orders"].position == [703]
        assert found.state("ledger", "timers:event").next_due == 1_577_836_800_000
        assert "top" in found.watermarks


def test_keys_may_change_places(savepoint: str, tmp_path: Path) -> None:
    swap = {"shop-1": "shop-2", "shop-2": "shop-1"}
    with snapshots.edit(savepoint) as edit:
        edit.state("ledger", "orders").map(lambda row: {**row, "key": swap.get(row["key"], row["key"])})
        info = edit.write(str(tmp_path / "swapped"))
    then, now = snapshots.read(savepoint).state("ledger", "orders"), snapshots.read(info.uri).state("ledger", "orders")
    assert (now.get("shop-1"), now.get("shop-2")) == (then.get("shop-2"), then.get("shop-1"))
    assert len(now) == len(then)


def test_mistakes_are_told(savepoint: str, tmp_path: Path) -> None:
    with snapshots.edit(savepoint) as edit:
        with pytest.raises(StateError, match="no column 'valeu'"):
            edit.state("ledger", "orders").put([{"key": "a", "valeu": 1}])
        for wrong in ("text", 1.5, True, None, 2**70):
            with pytest.raises(StateError, match=r"types of the state|cannot be written"):
                edit.state("ledger", "orders").put([{"key": "a", "value": wrong}])
        with pytest.raises(StateError, match=r"1\.5 is not an integer"):
            edit.state("ledger", "orders").put(pd.DataFrame({"key": ["a"], "value": [1.5]}))
        with pytest.raises(StateError, match="there is no source 'nothing'"):
            edit.move_source("nothing", 1)
        with pytest.raises(StateError, match="there is a step 'hourly' already"):
            edit.rename_step("ledger", "hourly")
        with pytest.raises(StateError, match="in chunks"):
            edit.state("hourly").remove("shop-1")
        with pytest.raises(ConfigError, match="holds a savepoint already"):
            edit.write(savepoint)


def test_a_job_goes_on_from_an_edited_savepoint(savepoint: str, tmp_path: Path) -> None:
    with snapshots.edit(savepoint) as edit:
        edit.state("ledger", "orders").map(lambda row: {**row, "value": 10_000})
        edit.move_source("orders", [0])
        uri = edit.write(str(tmp_path / "edited")).uri
    env = program(ScriptedSource([*orders(800, 50), End()]), tmp_path / "out")
    execute_inline(env, storage=str(tmp_path / "job"), restore_from=uri)
    counts = [row["orders"] for row in read_rows(str(tmp_path / "out" / "ledger")) if "orders" in row]
    assert min(counts) == 10_001
    assert len(counts) == 50


class Profile(KeyedProcessFunction[Any, Any, dict[str, Any]]):
    """Says what it knows of each key that comes."""

    visits = ValueState(int, default=0)
    pages: MapState[str, int] = MapState(str, int)
    last: ListState[str] = ListState(str)
    token: ValueState[str] = ValueState(str, ttl=Ttl(timedelta(hours=1), time="event"))

    def process(self, record: Any, ctx: KeyedContext[Any]) -> Iterator[dict[str, Any]]:
        self.visits.update(self.visits.value + 1)
        yield {
            "key": repr(ctx.key),
            "visits": self.visits.value,
            "pages": dict(self.pages.items()),
            "last": list(self.last),
            "token": self.token.value,
        }

    def on_timer(self, timestamp: int, ctx: OnTimerContext[Any]) -> Iterator[dict[str, Any]]:
        yield {"key": repr(ctx.key), "timer": timestamp}


def profiles(keys: list[Any], out: Path, key_type: Any = None, *script: Any) -> StreamEnvironment:
    env = StreamEnvironment("profiles", parallelism=2, executor="inline")
    stream = env.from_source(ScriptedSource([*({"k": key} for key in keys), *script]), name="in")
    stream.key_by(lambda r: r["k"], key_type=key_type).process(Profile(), name="profile").sink_to(
        FileSink(str(out), format="json"), name="out"
    )
    return env


@pytest.mark.parametrize(
    ("keys", "key_type"),
    [(["ann", "bob"], None), ([1, -70_000], None), ([2.5, 0.0], None), ([("a", 1), ("b", 2)], None), (["ann", "bob"], str)],
    ids=str,
)
def test_a_job_starts_with_what_was_built(keys: list[Any], key_type: Any, tmp_path: Path) -> None:
    """Keys are found under the bytes that the running job makes; timers fire; what has expired is gone."""
    env = profiles(keys, tmp_path / "out", key_type, Watermark(7_200_000), End())
    with snapshots.build(env) as build:
        build.state("profile", "visits").put([{"key": key, "value": 40 + n} for n, key in enumerate(keys)])
        build.state("profile", "pages").put([{"key": keys[0], "map_key": f"/{n}", "value": n} for n in range(3)])
        build.state("profile", "last").put([{"key": keys[0], "value": ["x", "y"]}, {"key": keys[0], "value": ["z"]}])
        build.state("profile", "token").put([{"key": key, "value": "t", "expires": 3_600_000} for key in keys])
        build.state("profile", "timers:event").put([{"time": 5_000, "key": keys[1]}])
        info = build.write(str(tmp_path / "built"))
    assert {s.info.name for s in info.states} == {"visits", "pages", "last", "token", "timers:event", "timers:ttl-event"}
    storage = str(tmp_path / "job")
    execute_inline(env, storage=storage, restore_from=info.uri, clock=VirtualClock(), epochs=2)
    rows = read_rows(str(tmp_path / "out"))
    by_key = {row["key"]: row for row in rows if "visits" in row}
    first, second = by_key[repr(keys[0])], by_key[repr(keys[1])]
    assert (first["visits"], second["visits"]) == (41, 42)
    assert (first["pages"], second["pages"]) == ({"/0": 0, "/1": 1, "/2": 2}, {})
    assert (first["last"], first["token"]) == (["x", "y", "z"], "t")
    assert [row for row in rows if "timer" in row] == [{"key": repr(keys[1]), "timer": 5_000}]
    with snapshots.read(storage) as found:
        assert found.state("profile", "token").entries == 0, "the timers that remove what has expired were built too"


def test_what_is_built_has_the_types_of_the_program(tmp_path: Path) -> None:
    env = profiles(["a"], tmp_path / "out")
    with snapshots.build(env, max_parallelism=16) as build:
        with pytest.raises(StateError, match="no step 'profiel' has state here"):
            build.state("profiel")
        with pytest.raises(StateError, match="cannot be written"):
            build.state("profile", "visits").put(pa.table({"key": ["a"], "value": ["many"]}))
        with pytest.raises(StateError, match="stored bytes are not a int"):
            build.state("profile", "visits").put([{"key": "a", "value": None, "as_json": '{"value": "many"}'}])
        with pytest.raises(StateError, match="rows need a column 'expires'"):
            build.state("profile", "token").put(pa.table({"key": ["a"], "value": ["t"]}))
        build.state("profile", "visits").put(pd.DataFrame({"key": ["a", "b"], "value": [1, 2]}))
        info = build.write(str(tmp_path / "built"))
    assert info.max_parallelism == 16
    with pytest.raises(ConfigError, match="key groups"):
        execute_inline(env, storage=str(tmp_path / "job"), restore_from=info.uri, max_parallelism=128)
    execute_inline(env, storage=str(tmp_path / "job"), restore_from=info.uri)
    with snapshots.read(str(tmp_path / "job")) as found:
        assert (found.max_parallelism, found.state("profile", "visits").get("b")) == (16, 2)


def test_sorting_spills_and_the_last_one_counts(tmp_path: Path) -> None:
    with Sorter(in_memory=20_000) as sorter:
        wanted: dict[tuple[int, bytes], bytes] = {}
        for n in range(3_000):
            key = (n * 31 % 7, (n * 17 % 500).to_bytes(4, "big"))
            wanted[key] = str(n).encode()
            sorter.add([(*key, wanted[key])])
        for n in range(0, 500, 5):
            gone = (n % 7, n.to_bytes(4, "big"))
            wanted.pop(gone, None)
            sorter.add([(*gone, None)])
        assert len(sorter._runs) > 5
        for _ in range(2):
            found = [
                ((int.from_bytes(key[:2], "big"), key[2:]), value)
                for keys, values in sorter.blocks()
                for key, value in zip(keys, values, strict=True)
                if value is not None
            ]
            assert found == sorted(wanted.items())
            assert Counter(key for key, _ in found).most_common(1)[0][1] == 1
    assert open_storage(str(tmp_path)).uri
