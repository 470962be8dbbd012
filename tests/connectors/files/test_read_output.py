"""`penstock.read_output`: what a file sink has published, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from penstock import FileSink, read_output
from penstock.connectors.files.file_format import FormatName
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import ConfigError, NotFoundError, StateError, StorageError
from penstock.ids import Epoch
from penstock.storage import LocalStorage, Storage
from tests.connectors.sinking import committer, stage
from tests.storage.test_s3 import bucket, credentials, endpoint

__all__ = ["bucket", "credentials", "endpoint"]

FIRST = [{"room": "attic", "celsius": 14.0, "n": 1}, {"room": "hall", "celsius": 19.5, "n": 2}]
SECOND = [{"room": "attic", "celsius": 13.5, "n": None}]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "job")


def publish(sink: FileSink, storage: Storage, *epochs: list[Any]) -> None:
    driver = committer(sink, storage)
    for number, rows in enumerate(epochs, 1):
        driver.commit(Epoch(number), [stage(sink, storage, number, rows)])


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
@pytest.mark.parametrize("partition_by", [None, "room"])
def test_rows_and_tables(format: FormatName, partition_by: str | None, storage: Storage, tmp_path: Path) -> None:
    publish(FileSink(str(tmp_path / "out"), format=format, partition_by=partition_by), storage, FIRST, SECOND)
    output = read_output(tmp_path / "out")
    assert list(output) == list(output) == FIRST + SECOND == read_rows(tmp_path / "out")
    assert (len(output), output.epochs) == (3, [1, 2])
    assert repr(output) == f"<Output file://{tmp_path / 'out'}: 3 rows in {len(output.paths())} files>"
    assert all(Path(path).is_file() for path in output.paths())
    table = output.to_arrow()
    assert table.select(["room", "celsius", "n"]).to_pylist() == FIRST + SECOND
    frame = output.to_pandas()
    assert list(frame["room"]) == ["attic", "hall", "attic"]
    assert frame["n"].dtype == "Int64"
    assert frame["n"].isna().tolist() == [False, False, True]


def test_text(storage: Storage, tmp_path: Path) -> None:
    publish(FileSink(str(tmp_path / "out"), format="text"), storage, ["one", "two"])
    output = read_output(tmp_path / "out")
    assert list(output) == ["one", "two"]
    assert output.to_arrow().to_pydict() == {"value": ["one", "two"]}


def test_nested_values_as_columns(storage: Storage, tmp_path: Path) -> None:
    publish(FileSink(str(tmp_path / "out"), format="json"), storage, [{"id": 1, "by": {"name": "ann", "at": {"x": 2}}}])
    frame = read_output(tmp_path / "out").to_pandas(flatten=True)
    assert frame.to_dict("records") == [{"id": 1, "by.name": "ann", "by.at.x": 2}]


def test_columns_that_come_and_go(storage: Storage, tmp_path: Path) -> None:
    publish(FileSink(str(tmp_path / "out"), format="json"), storage, [{"a": 1}, {"b": "x"}], [{"a": 2.5, "c": [1]}])
    assert read_output(tmp_path / "out").to_arrow().to_pylist() == [
        {"a": 1.0, "b": None, "c": None},
        {"a": None, "b": "x", "c": None},
        {"a": 2.5, "b": None, "c": [1]},
    ]


def test_a_csv_column_of_digits_in_one_file_and_letters_in_another(storage: Storage, tmp_path: Path) -> None:
    publish(FileSink(str(tmp_path / "out"), format="csv"), storage, [{"id": "007"}], [{"id": "x8"}])
    assert read_output(tmp_path / "out").to_pandas()["id"].tolist() == ["007", "x8"]


def test_values_that_make_no_column(storage: Storage, tmp_path: Path) -> None:
    publish(FileSink(str(tmp_path / "out"), format="json"), storage, [{"a": 1}, {"a": "x"}], [{"a": "y"}])
    output = read_output(tmp_path / "out")
    assert [row["a"] for row in output] == [1, "x", "y"]
    with pytest.raises(StateError, match="'a'") as caught:
        output.to_arrow()
    assert "iterate over the rows" in caught.value.hint
    publish(FileSink(str(tmp_path / "more"), format="json"), storage, [{"a": 1}], [{"a": "y"}])
    with pytest.raises(StateError, match="do not make one table"):
        read_output(tmp_path / "more").to_arrow()


def test_staged_taken_back_and_held_back_output_is_not_there(storage: Storage, tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"))
    publish(sink, storage, [{"n": 1}], [{"n": 2}])
    driver: Any = committer(sink, storage)
    output = read_output(tmp_path / "out")
    stage(sink, storage, 3, [{"n": 3}])
    assert [row["n"] for row in output] == [1, 2]
    driver.roll_back(Epoch(1), Epoch(4))
    assert [row["n"] for row in output] == output.to_pandas()["n"].tolist() == [1]
    driver.begin_repair(Epoch(1), Epoch(5))
    driver.commit(Epoch(6), [stage(sink, storage, 6, [{"n": 6}])])
    assert (list(output), len(output)) == ([{"n": 1}], 1)
    driver.finish_repair(Epoch(6))
    assert list(output) == [{"n": 1}, {"n": 6}]


def test_nothing_is_published_yet(storage: Storage, tmp_path: Path) -> None:
    driver: Any = committer(FileSink(str(tmp_path / "out")), storage)
    driver.roll_back(Epoch(0), Epoch(1))
    output = read_output(tmp_path / "out")
    assert (list(output), len(output), output.to_arrow().num_rows) == ([], 0, 0)
    assert isinstance(output.to_pandas(), pd.DataFrame)
    with pytest.raises(NotFoundError, match="nothing is published"):
        output.to_spark(None)


def test_places_without_output(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"there is no folder {tmp_path}/typo") as caught:
        read_output(tmp_path / "typo")
    assert "FileSink" in caught.value.hint
    publish(FileSink(str(tmp_path / "all" / "one")), storage, [1])
    with pytest.raises(NotFoundError, match="no file sink has published in") as caught:
        read_output(tmp_path / "all")
    assert caught.value.detail == "sinks have written to folders below it: one"
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.json").write_text("{}\n")
    with pytest.raises(NotFoundError) as caught:
        read_output(tmp_path / "plain")
    assert caught.value.detail == "there is no _log/ in it"
    with pytest.raises(StorageError, match="is a file"):
        read_output(tmp_path / "plain" / "a.json")
    with pytest.raises(ConfigError, match="format is 'xml'"):
        read_output(tmp_path / "all" / "one", format="xml")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_s3(endpoint: str, bucket: str, storage: Storage) -> None:
    place = f"s3://{bucket}/out?endpoint={endpoint}"
    with pytest.raises(NotFoundError, match="no file sink has published"):
        read_output(place)
    publish(FileSink(place, format="parquet"), storage, FIRST, SECOND)
    output = read_output(place)
    assert list(output) == output.to_arrow().to_pylist() == FIRST + SECOND
    assert all(path.startswith(f"s3://{bucket}/out/data/part-") for path in output.paths())
