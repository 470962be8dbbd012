from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.reading.published import published_files, read_rows
from penstock.connectors.files.reading.read_output import read_output
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.writing import parts
from penstock.connectors.files.writing.committer import FileCommitter
from penstock.connectors.files.writing.names import folder_of, part_attempt, part_path, safe
from penstock.connectors.protocol import Committable
from penstock.errors import ConfigError, SinkError, StorageError
from penstock.ids import Epoch, StepId
from penstock.records import DICT_ROW, Columns, Records, RowType
from penstock.storage import LocalStorage, Storage, open_storage
from tests.connectors.sinking import JOB, OTHER_JOB, Faulty, committer, committer_context, stage, writer_context


@dataclass
class Room:
    name: str
    celsius: float


class Point(NamedTuple):
    x: int
    y: str | None


class Visit(msgspec.Struct):
    who: str
    times: int = 0


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "job")


def data_files(out: str) -> list[str]:
    return [listed.path for listed in LocalStorage(out).list("data")]


def publish(sink: FileSink, storage: Storage, epoch: int, rows: list[Any]) -> None:
    committer(sink, storage).commit(Epoch(epoch), [stage(sink, storage, epoch, rows)])


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"a": 1, "b": "x"}, {"a": 2, "b": None}], [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        ([(1, 2.5), (2, 3.5)], [{"f0": 1, "f1": 2.5}, {"f0": 2, "f1": 3.5}]),
        ([Point(1, "n"), Point(2, None)], [{"x": 1, "y": "n"}, {"x": 2, "y": None}]),
        ([Room("attic", 14.5)], [{"name": "attic", "celsius": 14.5}]),
        ([Visit("ann", 3)], [{"who": "ann", "times": 3}]),
        ([Pair(1, 2)], [{"left": 1, "right": 2}]),
        ([1, 2, None], [{"value": 1}, {"value": 2}, {"value": None}]),
        (["x", "y\nz"], [{"value": "x"}, {"value": "y\nz"}]),
    ],
)
def test_rows_come_back(out: str, storage: Storage, format: Any, rows: list[Any], expected: list[Any]) -> None:
    publish(FileSink(out, format=format), storage, 1, rows)
    assert read_rows(out) == expected


def test_text_comes_back(out: str, storage: Storage) -> None:
    publish(FileSink(out, format="text"), storage, 1, ["a", 7, b"raw"])
    assert read_rows(out) == ["a", "7", "raw"]


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
@pytest.mark.parametrize("row", [DICT_ROW, RowType(Visit)])
def test_columns_are_written_like_their_records(tmp_path: Path, storage: Storage, format: Any, row: RowType) -> None:
    data = pa.record_batch({"times": [1, 2, 3], "who": ["a", "b", None]})
    results = []
    for name, batch in (("columns", Columns(data, row)), ("records", Records(row.records(data)))):
        sink = FileSink(str(tmp_path / name), format=format, max_file_records=2, partition_by="who")
        committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, batch)])
        results.append(read_rows(tmp_path / name))
    assert results[0] == results[1]
    assert list(results[0][0]) == (["times", "who"] if row is DICT_ROW else ["who", "times"])


@pytest.mark.parametrize(
    ("format", "compression"), [("json", "gzip"), ("csv", "zstd"), ("text", "gzip"), ("parquet", "zstd"), ("parquet", "none")]
)
def test_compression(out: str, storage: Storage, format: Any, compression: str) -> None:
    publish(FileSink(out, format=format, compression=compression), storage, 1, ["x"] * 100)
    assert len(read_rows(out)) == 100
    assert read_output(out).epochs == [1]


def test_nothing_is_visible_before_the_commit(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    prepared = stage(sink, storage, 1, [{"a": 1}])
    assert len(data_files(out)) == 1
    assert read_rows(out) == []
    committer(sink, storage).commit(Epoch(1), [prepared])
    assert read_rows(out) == [{"a": 1}]


def test_commit_again_changes_nothing(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    prepared = through_json([stage(sink, storage, 1, [{"a": 1}]), stage(sink, storage, 1, [{"a": 2}], partition=1)])
    driver = committer(sink, storage)
    driver.commit(Epoch(1), prepared)
    driver.commit(Epoch(1), prepared)
    committer(sink, storage).commit(Epoch(1), prepared)
    assert read_rows(out) == [{"a": 1}, {"a": 2}]
    assert read_output(out).epochs == [1]


def test_an_epoch_without_output_publishes_nothing(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    driver = committer(sink, storage)
    driver.commit(Epoch(1), [])
    driver.commit(Epoch(2), [stage(sink, storage, 2, [])])
    driver.commit(Epoch(7), [stage(sink, storage, 7, [{"a": 1}])])
    assert read_output(out).epochs == [7]


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_commit_with_unknown_outcome_is_finished_later(out: str, storage: Storage, fault: str) -> None:
    sink = FileSink(out)
    prepared = [stage(sink, storage, 1, [{"a": 1}])]
    committer(sink, storage).close()
    faulty: Any = Faulty(LocalStorage(out), **{fault: "_log/0"})
    driver = FileCommitter(sink, committer_context(storage), faulty)
    if fault == "before":
        with pytest.raises(StorageError, match="no answer"):
            driver.commit(Epoch(1), prepared)
        assert read_rows(out) == []
    else:  # it reads back what it cannot know
        driver.commit(Epoch(1), prepared)
    committer(sink, storage).commit(Epoch(1), prepared)
    assert read_rows(out) == [{"a": 1}]


def test_a_file_that_cannot_be_finished_fails_prepare(out: str, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.files.sink.open_storage", lambda uri: Faulty(LocalStorage(uri), before="data/"))
    with pytest.raises(StorageError):
        stage(FileSink(out), storage, 1, [1])
    assert data_files(out) == []


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_abort_leaves_nothing(out: str, storage: Storage, format: Any) -> None:
    sink = FileSink(out, format=format, max_file_records=2, partition_by="f0")
    writer = sink.writer(writer_context(storage, 1))
    writer.write(Records([(1, 2.0)] * 5 + [(2, 3.0)]))
    writer.abort()
    assert data_files(out) == []
    prepared = stage(sink, storage, 1, [(1, 2.0)] * 5)
    committer(sink, storage).abort(Epoch(1), [prepared])
    assert data_files(out) == []
    assert not [name for _, _, names in os.walk(out) for name in names if name.startswith(".tmp-")]


def test_abort_never_takes_back_what_is_published(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    unaware = committer(sink, storage)
    prepared = [stage(sink, storage, 1, ["one"])]
    driver = committer(sink, storage)
    driver.commit(Epoch(1), prepared)
    driver.commit(Epoch(2), [stage(sink, storage, 2, ["two"])])
    unaware.abort(Epoch(1), prepared)
    assert read_rows(out) == [{"value": "one"}, {"value": "two"}]


def test_another_job_is_refused(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    committer(sink, storage)
    with pytest.raises(SinkError, match="belongs to another job") as refused:
        committer(sink, storage, OTHER_JOB)
    assert JOB in str(refused.value)
    assert "rooms" in str(refused.value)
    with pytest.raises(SinkError, match="belongs to another job"):
        sink.committer(committer_context(storage, step=StepId("another")))


def test_a_late_driver_publishes_nothing(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    late = committer(sink, storage)
    first = stage(sink, storage, 1, ["one"])
    late.commit(Epoch(1), [first])
    third = stage(sink, storage, 3, ["three"], attempt="2-0")
    successor = committer(sink, storage)
    successor.commit(Epoch(3), [third])
    # Epoch 2 had no output: there is no entry that could stand in its way, and still it is too late.
    with pytest.raises(SinkError, match="epoch 3 is published already"):
        late.commit(Epoch(2), [stage(sink, storage, 2, ["two"])])
    with pytest.raises(SinkError, match="with other files"):
        late.commit(Epoch(3), [stage(sink, storage, 3, ["other"])])
    late.commit(Epoch(1), [first])
    late.commit(Epoch(3), [third])
    assert read_rows(out) == [{"value": "one"}, {"value": "three"}]


def test_a_driver_finds_its_commit_finished_by_its_successor(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    prepared = [stage(sink, storage, 1, ["one"])]
    late = committer(sink, storage)
    late.commit(Epoch(1), prepared)
    two = [stage(sink, storage, 2, ["two"])]
    committer(sink, storage).commit(Epoch(2), two)
    late.commit(Epoch(2), two)
    assert read_output(out).epochs == [1, 2]


def test_sweep_removes_old_attempts_that_were_never_published(out: str, storage: Storage) -> None:
    sink = FileSink(out, partition_by="f0")
    publish(sink, storage, 1, [("a", 1)])
    stage(sink, storage, 2, [("a", 1), ("b", 2)], attempt="old/1.csv-7")
    stage(sink, storage, 2, [("a", 1)], attempt="new")
    driver = sink.committer(committer_context(storage, sweepable=lambda attempt: attempt != "new"))
    assert driver.sweep() == 2
    assert driver.sweep() == 0
    assert read_rows(out) == [{"f0": "a", "f1": 1}]
    assert len(data_files(out)) == 2


def test_files_are_rolled(out: str, storage: Storage) -> None:
    for number, format in enumerate(("json", "parquet", "csv", "text")):
        sink = FileSink(f"{out}-{format}", format=format, max_file_records=10)  # type: ignore[arg-type]
        writer = sink.writer(writer_context(storage, number + 1))
        for start in range(0, 33, 3):
            writer.write(Records(list(range(start, start + 3))))
        committer(sink, storage).commit(Epoch(number + 1), [writer.prepare()])
        assert [file.rows for file in published_files(open_storage(sink.uri))] == [10, 10, 10, 3], format
        rows = read_rows(sink.uri)
        assert [int(row if format == "text" else row["value"]) for row in rows] == list(range(33))


def test_tables_are_written_in_row_groups(out: str, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_ROWS", 5000)
    sink = FileSink(out, format="parquet")
    writer = sink.writer(writer_context(storage, 1))
    for start in range(0, 20_000, 4000):
        writer.write(Records([(i, i / 2) for i in range(start, start + 4000)]))
    prepared = writer.prepare()
    committer(sink, storage).commit(Epoch(1), [prepared])
    (file,) = published_files(open_storage(out))
    assert pa.parquet.ParquetFile(f"{out}/{file.path}").num_row_groups > 2
    assert [row["f0"] for row in read_rows(out)] == list(range(20_000))


def test_many_folders_need_few_open_files(out: str, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.files.writing.writers.MAX_OPEN_FOLDERS", 3)
    sink = FileSink(out, partition_by=lambda row: f"{row % 7}/x")
    writer = sink.writer(writer_context(storage, 1))
    for start in range(0, 42, 14):
        writer.write(Records(list(range(start, start + 14))))
    committer(sink, storage).commit(Epoch(1), [writer.prepare()])
    assert sorted(row["value"] for row in read_rows(out)) == list(range(42))
    assert sorted(os.listdir(f"{out}/data")) == list("0123456")


def test_tidy_shows_what_is_published(out: str, storage: Storage) -> None:
    sink = FileSink(out, tidy=True, partition_by="room")
    prepared = [stage(sink, storage, 1, [{"room": "a/../b"}])]
    driver = committer(sink, storage)
    driver.commit(Epoch(1), prepared)
    driver.commit(Epoch(1), prepared)
    (shown,) = LocalStorage(out).list("published")
    assert shown.path.startswith("published/room=a%2F..%2Fb/part-")


def test_a_value_that_does_not_fit_is_named(out: str, storage: Storage) -> None:
    writer = FileSink(out, format="parquet").writer(writer_context(storage, 1))
    writer.write(Records([(1, "a")] * 300))
    with pytest.raises(SinkError) as wrong:
        writer.write(Records([(1, "a")] * 300 + [(1.5, "b")]))
    assert str(wrong.value).splitlines()[:3] == [
        "a value does not fit the column f0 of the sink out",
        "  expected: int64",
        "  found: 1.5 (float)",
    ]
    writer.abort()


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ([{"a": 1}], [{"a": 1, "b": 2}], "the field b is not a column"),
        ([{"a": 1, "c": 2}], [{"a": 1, "b": 2}], "the field b is not a column"),
        ([(1, 2)], [(1, 2, 3)], "do not fit the columns"),
        ([(1, 2)], [7], "do not fit the columns"),
        ([(1, 2)], [{"f0": "x", "f1": 1}], "does not fit the column f0"),
        ([Room("a", 1.0), Point(1, "2")], [], "different shapes"),
        ([1, "a"], [], "does not fit the column value"),
    ],
)
def test_records_that_do_not_fit(out: str, storage: Storage, first: list[Any], then: list[Any], message: str) -> None:
    writer = FileSink(out, format="parquet").writer(writer_context(storage, 1))
    with pytest.raises(SinkError, match=message):
        writer.write(Records(first * 300))
        writer.write(Records(then * 300))
    writer.abort()


def test_a_column_may_get_its_type_late(out: str, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_ROWS", 400)
    sink = FileSink(out, format="parquet")
    writer = sink.writer(writer_context(storage, 1))
    for value in (None, None, "x"):
        writer.write(Records([{"a": value}] * 300))
    committer(sink, storage).commit(Epoch(1), [writer.prepare()])
    assert [row["a"] for row in read_rows(out)] == [None] * 600 + ["x"] * 300


def test_a_schema_makes_the_types(out: str, storage: Storage) -> None:
    @dataclass
    class Event:
        at: datetime
        tags: list[str]
        room: Room
        count: int | None = None

    at = datetime(2024, 5, 1, tzinfo=UTC)
    publish(FileSink(out, format="parquet", schema=Event), storage, 1, [Event(at, ["a"], Room("attic", 1))])
    assert read_rows(out) == [{"at": at, "tags": ["a"], "room": asdict(Room("attic", 1.0)), "count": None}]


def test_json_names_the_record_it_cannot_write(out: str, storage: Storage) -> None:
    writer = FileSink(out).writer(writer_context(storage, 1))
    with pytest.raises(SinkError, match="cannot write a record as JSON") as wrong:
        writer.write(Records([{"a": 1}, {"a": object()}]))
    assert "<object object" in str(wrong.value)
    writer.abort()


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "avro"},
        {"compression": "rar"},
        {"max_file_records": 0},
        {"columns": ["a", "a"]},
        {"partition_by": ""},
        {"schema": Room, "columns": ["a"]},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        FileSink("out", **wrong)
    assert error.value.hint


def test_the_definition_travels() -> None:
    sink = FileSink("out", format="parquet", schema=Room, partition_by=lambda room: room.name)
    assert os.path.isabs(sink.uri)
    travelled = cloudpickle.loads(cloudpickle.dumps(sink))
    assert travelled.describe() == sink.describe() == f"parquet files in {os.path.abspath('out')}"


@given(st.text(), st.text(min_size=1))
def test_names_are_safe_and_tell_the_attempt(text: str, attempt: str) -> None:
    for part in (safe(text), *folder_of(text).split("/")):
        assert part not in (".", "..")
        assert all(c.isascii() and (c.isalnum() or c in "_=.-%") for c in part)
        assert len(part) < 255
    if len(safe(attempt)) <= 180:
        assert part_attempt(part_path(folder_of(text), Epoch(3), 1, 2, attempt, "jsonl.gz")) == attempt


def through_json(committables: list[Committable]) -> list[Committable]:
    """As they come out of a manifest."""
    return json.loads(json.dumps(committables))  # type: ignore[no-any-return]


_INTS = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=5)
_ROWS = st.one_of(
    st.lists(st.fixed_dictionaries({"a": st.none() | _INTS, "b": _WORDS}), max_size=8),
    st.lists(st.tuples(_INTS, _FLOATS), max_size=8),
    st.lists(st.builds(Room, name=_WORDS, celsius=_FLOATS), max_size=8),
    st.lists(st.builds(Point, x=_INTS, y=st.none() | _WORDS), max_size=8),
    st.lists(st.builds(Visit, who=_WORDS, times=_INTS), max_size=8),
    st.lists(_INTS, max_size=8),
)


def naive(row: Any) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    if isinstance(row, Point):
        return row._asdict()
    if isinstance(row, tuple):
        return {f"f{i}": value for i, value in enumerate(row)}
    if isinstance(row, Room):
        return asdict(row)
    if isinstance(row, Visit):
        return msgspec.structs.asdict(row)
    return {"value": row}


@given(
    batches=_ROWS.flatmap(lambda rows: st.tuples(st.just(rows), st.integers(1, 5), st.integers(1, 5))),
    format=st.sampled_from(["json", "parquet"]),
)
def test_any_rows_in_any_batches_come_back(tmp_path_factory: pytest.TempPathFactory, batches: Any, format: Any) -> None:
    rows, size, limit = batches
    folder = tmp_path_factory.mktemp("rows")
    storage = LocalStorage(folder / "job")
    sink = FileSink(str(folder / "out"), format=format, max_file_records=limit)
    writer = sink.writer(writer_context(storage, 1))
    for start in range(0, len(rows), size):
        writer.write(Records(rows[start : start + size]))
    committer(sink, storage).commit(Epoch(1), through_json([writer.prepare()]))
    found = read_rows(sink.uri)
    assert len(found) == len(rows)
    for got, row in zip(found, rows, strict=True):
        for name, value in naive(row).items():
            assert got[name] == value or (isinstance(value, float) and math.isclose(got[name], value)), name
    assert all(file.rows <= limit for file in published_files(open_storage(sink.uri)))
