"""Files that are read in order of event time: cut into pieces, which are dealt out to the lanes in turn."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import FileSource, KeyedProcessFunction, StreamEnvironment, ValueState, Watermarks
from penstock.connectors.files.reading import enumerator
from penstock.connectors.protocol import Limits, Planned, SourceContext
from penstock.ids import JobId, StepId
from penstock.storage import open_storage

Row = dict[str, int]


def write(folder: Path, files: int, rows: int, kind: str = "json") -> list[Row]:
    """Files one after another in time."""
    folder.mkdir(exist_ok=True)
    made = [{"k": n % 7, "t": n * 10} for n in range(files * rows)]
    for number in range(files):
        mine = made[number * rows : (number + 1) * rows]
        if kind == "json":
            (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in mine))
        else:
            pq.write_table(pa.Table.from_pylist(mine), folder / f"{number}.parquet", row_group_size=50)
    return made


def planner(folder: Path, lanes: int, *, in_order: bool = True) -> Any:
    context = SourceContext(
        job=JobId("job"),
        step=StepId("in"),
        storage=open_storage(str(folder)),
        parallelism=lanes,
        ordering="time" if in_order else "partition",
    )
    return FileSource(str(folder)).enumerator(context)


def dealt(plans: list[Planned]) -> list[tuple[str, tuple[Any, ...]]]:
    return [(split.partition, tuple(piece[:3])) for plan in plans for split in plan.splits for piece in split.what]


def plans_of(folder: Path, lanes: int, records: int, full: frozenset[str] = frozenset()) -> list[Planned]:
    found: list[Planned] = []
    position = None
    while not found or not found[-1].exhausted:
        found.append(planner(folder, lanes).plan(position, Limits(records=records, bytes=1 << 40, full=full), 0))
        position = msgspec.json.decode(msgspec.json.encode(found[-1].position))
    return found


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_pieces_do_not_depend_on_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(enumerator, "DEALT_BYTES", 500)
    monkeypatch.setattr(enumerator, "DEALT_ROWS", 40)
    write(tmp_path / "in", 3, 100, kind)
    whole = dealt(plans_of(tmp_path / "in", 2, 1_000_000))
    assert len(whole) > 6
    assert [lane for lane, _ in whole] == [str(n % 2) for n in range(len(whole))]
    for records in (1, 37, 90):
        assert dealt(plans_of(tmp_path / "in", 2, records)) == whole


def test_every_lane_that_has_more_gets_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerator, "DEALT_BYTES", 500)
    write(tmp_path / "in", 2, 200)
    for plan in plans_of(tmp_path / "in", 3, 1)[:-1]:
        assert {split.partition for split in plan.splits} >= set(plan.more or ())


def test_nothing_is_planned_when_all_have_enough(tmp_path: Path) -> None:
    write(tmp_path / "in", 2, 10)
    plan = planner(tmp_path / "in", 2).plan(None, Limits(records=10, bytes=1 << 30, full=frozenset("01")), 0)
    assert not plan.splits
    assert not plan.exhausted
    assert plan.more == ["0", "1"]


def test_whole_files_where_nobody_sees_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerator, "DEALT_BYTES", 500)
    write(tmp_path / "in", 2, 100)
    plan = planner(tmp_path / "in", 2, in_order=False).plan(None, Limits(records=1_000, bytes=1 << 30), 0)
    assert [len(split.what) for split in plan.splits] == [1, 1]
    assert plan.more is None


class Number(KeyedProcessFunction[int, Row, tuple[int, int, int]]):
    """Numbers the records of a key, and tells at a timer how many there were."""

    seen = ValueState(int, default=0)

    def process(self, value: Row, ctx: Any) -> Any:
        self.seen.update(self.seen.value + 1)
        ctx.timers.register_event_time(value["t"] + 250)
        return [(ctx.key, value["t"], self.seen.value)]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return [(ctx.key, -timestamp, self.seen.value)]


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_one_result_for_files_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, parallelism: int
) -> None:
    monkeypatch.setattr(enumerator, "DEALT_BYTES", 700)
    monkeypatch.setattr(enumerator, "DEALT_ROWS", 40)
    rows = write(tmp_path / "in", 4, 120, kind)
    found = []
    for records in (37, 400, 100_000):
        env = StreamEnvironment("files", executor="inline", parallelism=parallelism, max_records_per_epoch=records)
        stream = env.from_source(FileSource(str(tmp_path / "in")), watermarks=Watermarks.monotonous(timestamp="t"), name="in")
        found.append(sorted(stream.key_by("k").process(Number(), name="number").execute_and_collect()))
    assert found[0] == found[1] == found[2]
    numbers = sorted(time for key, time, number in found[0] if time >= 0)
    assert numbers == [row["t"] for row in rows]


def side_by_side(folder: Path, files: int, rows: int, kind: str) -> list[Row]:
    """Files that cover the same time."""
    folder.mkdir()
    made = [{"k": n % 7, "t": n * 10} for n in range(files * rows)]
    for number in range(files):
        mine = made[number::files]
        if kind == "json":
            (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in mine))
        else:
            pq.write_table(pa.Table.from_pylist(mine), folder / f"{number}.parquet", row_group_size=50)
    return made


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_files_side_by_side_in_time_have_a_lane_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, parallelism: int
) -> None:
    monkeypatch.setattr(enumerator, "DEALT_BYTES", 700)
    monkeypatch.setattr(enumerator, "DEALT_ROWS", 40)
    rows = side_by_side(tmp_path / "in", 4, 120, kind)
    found = []
    for records in (37, 400, 100_000):
        env = StreamEnvironment("files", executor="inline", parallelism=parallelism, max_records_per_epoch=records)
        source = FileSource(str(tmp_path / "in"), lanes=4)
        stream = env.from_source(source, watermarks=Watermarks.monotonous(timestamp="t"), name="in")
        with caplog.at_level(logging.WARNING, "penstock"):
            found.append(stream.key_by("k").process(Number(), name="number").execute_and_collect())
    assert sorted(found[0]) == sorted(found[1]) == sorted(found[2])
    for key in range(7):
        mine = [(time, number) for k, time, number in found[0] if k == key and time >= 0]
        assert mine == [(row["t"], n) for n, row in enumerate((row for row in rows if row["k"] == key), start=1)]
    assert not caplog.records


def test_a_file_that_begins_in_the_past_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    side_by_side(tmp_path / "in", 4, 120, "json")
    env = StreamEnvironment("files", executor="inline", parallelism=2)
    stream = env.from_source(FileSource(str(tmp_path / "in")), watermarks=Watermarks.monotonous(timestamp="t"), name="in")
    with caplog.at_level(logging.WARNING, "penstock"):
        stream.key_by("k").process(Number(), name="number").execute_and_collect()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "source 'in'" in warning
    assert "FileSource(lanes=...)" in warning
    assert "are late" in warning
