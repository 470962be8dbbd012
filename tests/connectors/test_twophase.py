from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from penstock.changes import RowKind
from penstock.connectors.protocol import Sink
from penstock.connectors.twophase import PublishId, SinkKey, SqliteSink, WriteAheadSink
from penstock.errors import ConfigError, CorruptFileError, SinkError, StorageError
from penstock.ids import Epoch
from penstock.records import Records
from penstock.storage import LocalStorage, Storage
from tests.connectors.sinking import JOB, OTHER_JOB, STEP, Faulty, committer, committer_context, stage, writer_context


@dataclass
class Reading:
    room: str
    celsius: float


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "job")


@pytest.fixture
def sink(tmp_path: Path) -> SqliteSink:
    return SqliteSink(str(tmp_path / "rooms.db"), "readings", ["room", "celsius"])


def table(sink: SqliteSink) -> list[tuple[Any, ...]]:
    with sqlite3.connect(sink.path) as database:
        try:
            return database.execute(f'SELECT * FROM "{sink.table}" ORDER BY rowid').fetchall()
        except sqlite3.OperationalError:
            return []


def staged(storage: Storage) -> list[str]:
    return [listed.path for listed in storage.list("sinks") if "/staged/" in listed.path]


def test_rows_of_all_shapes_arrive(sink: SqliteSink, storage: Storage) -> None:
    rows = [("a", 1.0), {"room": "b", "celsius": 2.0, "more": 1}, Reading("c", 3.0), (np.str_("d"), np.float64(4.0))]
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, rows)])
    assert table(sink) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0)]
    assert staged(storage) == []


def test_nothing_is_visible_before_the_commit_and_nothing_twice(sink: SqliteSink, storage: Storage) -> None:
    prepared = [stage(sink, storage, 1, [("a", 1)]), stage(sink, storage, 1, [("b", 2)], partition=1)]
    assert table(sink) == []
    for _ in range(3):
        committer(sink, storage).commit(Epoch(1), prepared)
    assert table(sink) == [("a", 1), ("b", 2)]


def test_many_rows_go_block_by_block(sink: SqliteSink, storage: Storage) -> None:
    writer = sink.writer(writer_context(storage, 1))
    for start, size in ((0, 10), (10, 9000), (9010, 3), (9013, 4095)):
        writer.write(Records([("r", i) for i in range(start, start + size)]))
    committer(sink, storage).commit(Epoch(1), [writer.prepare()])
    assert [celsius for _, celsius in table(sink)] == list(range(13108))


def test_a_commit_that_fails_half_way_is_finished_later(sink: SqliteSink, storage: Storage) -> None:
    good, bad = stage(sink, storage, 1, [("a", 1)]), stage(sink, storage, 1, [("b", 2)], partition=1)
    moved = storage.read(bad["path"])
    storage.delete([bad["path"]])
    with pytest.raises(StorageError):
        committer(sink, storage).commit(Epoch(1), [good, bad])
    assert table(sink) == []
    storage.create(bad["path"], moved)
    committer(sink, storage).commit(Epoch(1), [good, bad])
    assert table(sink) == [("a", 1), ("b", 2)]


def test_a_target_that_refuses_is_named(sink: SqliteSink, storage: Storage) -> None:
    prepared = [stage(sink, storage, 1, [("a", {"not": "a value"})])]
    with pytest.raises(SinkError, match="the sink out could not commit epoch 1") as refused:
        committer(sink, storage).commit(Epoch(1), prepared)
    assert sink.path in str(refused.value)
    assert staged(storage) == [prepared[0]["path"]]
    with pytest.raises(SinkError, match="has 1 values, not 2"):
        committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, ["x"], attempt="1-1")])


def test_a_late_driver_changes_nothing(sink: SqliteSink, storage: Storage) -> None:
    late = stage(sink, storage, 1, [("late", 1)])
    committer(sink, storage).commit(Epoch(2), [stage(sink, storage, 2, [("b", 2)])])
    committer(sink, storage).commit(Epoch(1), [late])
    assert table(sink) == [("b", 2)]


def test_jobs_do_not_get_in_each_others_way(sink: SqliteSink, storage: Storage) -> None:
    committer(sink, storage).commit(Epoch(5), [stage(sink, storage, 5, [("a", 1)])])
    committer(sink, storage, OTHER_JOB).commit(Epoch(1), [stage(sink, storage, 1, [("b", 2)])])
    assert table(sink) == [("a", 1), ("b", 2)]
    with sqlite3.connect(sink.path) as database:
        assert sink.committed_epoch(database, SinkKey(JOB, STEP)) == 5
        assert sink.committed_epoch(database, SinkKey(OTHER_JOB, STEP)) == 1


def test_one_writer_prepared_and_another_failed(sink: SqliteSink, storage: Storage) -> None:
    prepared = stage(sink, storage, 1, [("a", 1)])
    failing = sink.writer(writer_context(storage, 1, partition=1))
    failing.write(Records([("r", i) for i in range(5000)]))
    with pytest.raises(SinkError, match="cannot encode its rows"):
        failing.write(Records([("r", object())] * 5000))
    failing.abort()
    committer(sink, storage).abort(Epoch(1), [prepared])
    assert staged(storage) == []
    assert table(sink) == []


def test_rows_with_a_key_replace_each_other(tmp_path: Path, storage: Storage) -> None:
    sink = SqliteSink(str(tmp_path / "x.db"), "latest", ["room", "celsius"], key=["room"])
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, [("a", 1), ("b", 1), ("a", 2)])])
    assert sorted(table(sink)) == [("a", 2), ("b", 1)]


def changed(kinds: str, rows: list[Any]) -> Records:
    return Records(rows, kinds=np.asarray([RowKind(kind).code for kind in kinds.split()], dtype=np.int8))


def test_changes_make_a_table_once(tmp_path: Path, storage: Storage) -> None:
    sink = SqliteSink(str(tmp_path / "x.db"), "latest", ["room", "celsius"], key=["room"])
    rows = changed("+I +I +U -D +I +I -D", [("a", 1), ("b", 1), ("a", 2), ("b", 1), ("b", 3), (None, 1), {"room": None}])
    first, second = stage(sink, storage, 1, rows), stage(sink, storage, 2, changed("-D +I", [Reading("a", 2), ("c", 5)]))
    for _ in range(3):
        committer(sink, storage).commit(Epoch(1), [first])
    assert sorted(table(sink)) == [("a", 2), ("b", 3)]
    for _ in range(2):
        committer(sink, storage).commit(Epoch(2), [second])
        committer(sink, storage).commit(Epoch(1), [first])
    assert sorted(table(sink)) == [("b", 3), ("c", 5)]
    assert staged(storage) == []


def test_many_changes_go_block_by_block(tmp_path: Path, storage: Storage) -> None:
    sink = SqliteSink(str(tmp_path / "x.db"), "latest", ["room", "celsius"], key=["room"])
    writer = sink.writer(writer_context(storage, 1))
    kinds = np.asarray([0, 2, 3] * 4500, dtype=np.int8)
    whole = Records([(f"r{n // 3}", n) for n in range(len(kinds))], kinds=kinds)
    for start, size in ((0, 10), (10, 9000), (9010, 3), (9013, 4486)):
        writer.write(whole.slice(start, start + size))
    committer(sink, storage).commit(Epoch(1), [writer.prepare()])
    assert table(sink) == [("r4499", 13498)]


def test_kinds_that_are_damaged_are_never_written(tmp_path: Path, storage: Storage) -> None:
    sink = SqliteSink(str(tmp_path / "x.db"), "latest", ["room", "celsius"], key=["room"])
    prepared = stage(sink, storage, 1, changed("+I +I", [("a", 1), ("b", 1)]))
    data = storage.read(prepared["path"])
    for damaged in (data[:-1], data[:-1] + b"\x03", data[:-10], data[:-2]):
        storage.replace(prepared["path"], damaged)
        with pytest.raises(CorruptFileError):
            committer(sink, storage).commit(Epoch(1), [prepared])
    assert table(sink) == []


def test_a_row_that_is_deleted_needs_its_key(tmp_path: Path, storage: Storage) -> None:
    sink = SqliteSink(str(tmp_path / "x.db"), "latest", ["room", "celsius"], key=["room"])
    with pytest.raises(SinkError, match="has no room"):
        committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, changed("-D", [{"celsius": 1}]))])


@pytest.mark.parametrize("name", ["a b", 'x"; DROP TABLE y; --', "", "sqlite_master", "penstock_epochs", "1st", "ünder"])
def test_identifiers_are_checked(name: str) -> None:
    with pytest.raises(ConfigError):
        SqliteSink("x.db", name, ["a"])
    with pytest.raises(ConfigError):
        SqliteSink("x.db", "t", ["a", name])


def test_damaged_rows_are_never_written(sink: SqliteSink, storage: Storage) -> None:
    prepared = stage(sink, storage, 1, [("a", 1)])
    data = storage.read(prepared["path"])
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1]), data[:5], b""):
        storage.replace(prepared["path"], damaged)
        with pytest.raises(CorruptFileError):
            committer(sink, storage).commit(Epoch(1), [prepared])
    assert table(sink) == []


SHELF: dict[str, Any] = {}
CALLS: list[PublishId] = []
BREAK: list[Exception] = []


@dataclass(frozen=True)
class ShelfSink(WriteAheadSink):
    name: str = "shelf"

    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        CALLS.append(id)
        for key, value in rows:
            SHELF[key] = value
            if BREAK:
                raise BREAK.pop()

    def describe(self) -> str:
        return self.name


@pytest.fixture
def shelf() -> ShelfSink:
    SHELF.clear()
    CALLS.clear()
    return ShelfSink()


def test_publish_is_called_once_if_all_goes_well(shelf: ShelfSink, storage: Storage) -> None:
    prepared = [stage(shelf, storage, 1, [("a", 1), ("b", 2)])]
    for _ in range(2):
        committer(shelf, storage).commit(Epoch(1), prepared)
    assert [PublishId(JOB, STEP, Epoch(1))] == CALLS
    assert SHELF == {"a": 1, "b": 2}
    assert staged(storage) == []


def test_publish_is_called_again_after_a_failure(shelf: ShelfSink, storage: Storage) -> None:
    prepared = [stage(shelf, storage, 1, [("a", 1), ("b", 2)])]
    BREAK.append(ConnectionError("gone"))
    with pytest.raises(SinkError, match="could not publish epoch 1"):
        committer(shelf, storage).commit(Epoch(1), prepared)
    assert SHELF == {"a": 1}
    committer(shelf, storage).commit(Epoch(1), prepared)
    assert SHELF == {"a": 1, "b": 2}
    assert [PublishId(JOB, STEP, Epoch(1))] * 2 == CALLS


def test_publish_is_called_again_when_the_marker_is_missing(shelf: ShelfSink, storage: Storage) -> None:
    prepared = [stage(shelf, storage, 1, [("a", 1)])]
    faulty: Any = Faulty(storage, before="/published/")
    with pytest.raises(StorageError):
        committer(shelf, faulty).commit(Epoch(1), prepared)
    committer(shelf, storage).commit(Epoch(1), prepared)
    assert len(CALLS) == 2
    assert SHELF == {"a": 1}


def test_a_late_driver_does_not_put_old_values_over_new_ones(shelf: ShelfSink, storage: Storage) -> None:
    old, new = stage(shelf, storage, 1, [("a", "old")]), stage(shelf, storage, 2, [("a", "new")])
    driver = committer(shelf, storage)
    driver.commit(Epoch(2), [new])
    driver.commit(Epoch(1), [old])
    assert SHELF == {"a": "new"}
    driver.commit(Epoch(3), [stage(shelf, storage, 3, [("a", "newest")])])
    assert [listed.path for listed in storage.list("sinks/out/published")] == [f"sinks/out/published/{3:020d}"]


@pytest.mark.parametrize("make", [lambda: ShelfSink(), lambda: SqliteSink("x.db", "t", ["a", "b"])])
def test_sweep_removes_what_old_attempts_left(make: Callable[[], Any], storage: Storage) -> None:
    sink = make()
    stage(sink, storage, 1, [("a", 1)], attempt="1/old-7")
    kept = stage(sink, storage, 1, [("a", 1)], attempt="2.new")
    driver = sink.committer(committer_context(storage, sweepable=lambda attempt: attempt == "1/old-7"))
    assert driver.sweep() == 1
    assert staged(storage) == [kept["path"]]


def test_definitions_travel(sink: SqliteSink) -> None:
    checked: list[Sink] = [sink, ShelfSink()]
    for definition in checked:
        assert not definition.volatile
        assert definition.describe()
        assert cloudpickle.loads(cloudpickle.dumps(definition)) == definition
