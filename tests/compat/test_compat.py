"""Savepoints of this version and of those before it: they are read, by Penstock and by DuckDB alone, and restored."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.jobs.manifest import StateInfo
from penstock.snapshots.savepoint.format import SavepointInfo, read_info, read_state
from penstock.storage import LocalStorage
from tests.compat.make import output
from tests.compat.program import BEFORE, event

HERE = Path(__file__).parent
VERSIONS = ["0.1.0", "0.1.0-crc32"]
"""Of exactly `BEFORE` events. What was written later is in `test_storages.py` too."""
KEYS = {f"key {number}" for number in range(12)}


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest) -> Path:
    return HERE / str(request.param)


@pytest.fixture
def storage(folder: Path) -> LocalStorage:
    return LocalStorage(str(folder / "savepoint"))


@pytest.fixture
def info(storage: LocalStorage) -> SavepointInfo:
    return read_info(storage)


def test_its_information(info: SavepointInfo) -> None:
    assert (info.job.name, info.max_parallelism, info.finished) == ("compat", 4, False)
    assert info.sources["events"].position["next"] == BEFORE
    assert info.watermarks["account"] == info.watermarks["events"] > 0
    states = {(state.info.step, state.info.name): state for state in info.states}
    kinds = {state.info.kind for state in info.states if state.rows}
    assert kinds == {"value", "list", "map", "reducing", "aggregating", "timers", "slices", "session runs"}
    assert {name for (step, name), state in states.items() if step == "account" and state.info.ttl} == {
        "lately",
        "recent",
        "seen",
    }
    last: StateInfo = states["account", "last"].info
    assert [field["name"] for field in last.schema["fields"]] == ["amount", "price", "at", "tags", "note"]
    assert states["account", "timers:processing"].next_due == 10**14
    assert states["account", "timers:event"].next_due is not None


def test_all_of_it_is_whole(info: SavepointInfo, storage: LocalStorage) -> None:
    for state in info.states:
        rows = [(group, key) for file in state.files for group, keys, _ in read_state(storage, file) for key in keys]
        assert rows == sorted(set(rows))
        assert len(rows) == state.rows


def query(folder: Path, text: str) -> list[Any]:
    """DuckDB and the folder, nothing else. `{step.state}` stands for its files."""
    with duckdb.connect() as database:
        described = json.loads((folder / "savepoint" / "savepoint.json").read_text())["savepoint"]
        for state in described["states"]:
            files = [str(folder / "savepoint" / file["path"]) for file in state["files"]]
            text = text.replace(f"{{{state['info']['step']}.{state['info']['name']}}}", f"read_parquet({files})")
        return database.execute(text).fetchall()


def before() -> list[tuple[str, int]]:
    return [(row["key"], row["amount"]) for row in map(event, range(BEFORE))]


def test_duckdb_reads_values(folder: Path) -> None:
    counts, totals = Counter(key for key, _ in before()), Counter[str]()
    for key, amount in before():
        totals[key] += amount
    assert dict(query(folder, "select key, value from {account.number}")) == counts
    assert dict(query(folder, "select key, value from {account.total}")) == totals
    means = query(folder, "select key, value._1, value._2 from {account.mean}")
    assert sorted(means) == sorted((key, totals[key], counts[key]) for key in KEYS)
    last = dict(before())
    found = query(folder, "select key, value.amount, value.tags[1], value.note from {account.last}")
    expected = [(key, n, "large" if n > 50 else "small", None if n % 2 else "even") for key, n in last.items()]
    assert sorted(found) == sorted(expected)


def test_duckdb_reads_lists_maps_and_timers(folder: Path) -> None:
    amounts: dict[str, list[int]] = {key: [] for key in KEYS}
    sizes: Counter[tuple[str, str]] = Counter()
    for key, amount in before():
        amounts[key].append(amount)
        sizes[key, "large" if amount > 50 else "small"] += amount
    found: dict[str, list[int]] = {key: [] for key in KEYS}
    for key, chunk in query(folder, "select key, value from {account.amounts} order by key, chunk"):
        found[key] += chunk
    assert found == amounts
    assert {(key, size): n for key, size, n in query(folder, "select key, map_key, value from {account.by_size}")} == sizes
    assert query(folder, "select count(*), count(distinct key) from {account.timers:processing}") == [(BEFORE, 12)]
    assert query(folder, "select count(*) from {account.lately} where expires is null") == [(0,)]


def test_duckdb_reads_windows(folder: Path) -> None:
    """Those that are open: what has come of them."""
    watermark = json.loads((folder / "savepoint" / "savepoint.json").read_text())["savepoint"]["watermarks"]["account"]
    open_events = [row for row in map(event, range(BEFORE)) if row["time"] // 50_000 * 50_000 + 60_000 > watermark + 1]
    expected = Counter((row["key"], row["time"] // 50_000 * 50_000) for row in open_events)
    columns = "key, epoch_ms(window_start), len(value)"
    found: Counter[tuple[str, int]] = Counter()
    for key, start, number in query(folder, f"select {columns} from {{tumbling-all.contents}}"):
        found[key, start] += number
    assert found == expected


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_it_is_restored(folder: Path, tmp_path: Path, parallelism: int) -> None:
    """The program goes on as if nothing had been."""
    found = output(storage=str(tmp_path / "job"), restore_from=str(folder / "savepoint"), parallelism=parallelism, until=10**9)
    expected = Counter(json.dumps(row, sort_keys=True) for row in json.loads((folder / "expected.json").read_text()))
    assert found == expected
    assert sum(expected.values()) > 500
