from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamEnvironment
from penstock.connectors.files.reading import locations
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.protocol import Limits
from penstock.errors import ConfigError, SourceError
from penstock.ids import Epoch
from penstock.records import Columns, Records
from penstock.storage import LocalStorage
from tests.connectors.driving import Drive, context
from tests.connectors.sinking import committer, stage

LIMITS = st.builds(Limits, records=st.integers(1, 12), bytes=st.integers(1, 400), readers=st.integers(1, 4))


@dataclass(frozen=True)
class Reading:
    room: str
    value: float
    n: int = 7
    note: str | None = None


class Point(msgspec.Struct, frozen=True):
    x: int
    y: int


@dataclass(frozen=True)
class Nested:
    at: datetime
    where: Point
    tags: list[str] = field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str


def drive(source: FileSource, folder: Path | str = "/nowhere", parallelism: int = 2, **extra: Any) -> Drive:
    return Drive(source, context(folder, parallelism, **extra))


def read(source: FileSource, **extra: Any) -> list[Any]:
    d = drive(source, parallelism=1, **extra)
    d.run()
    return d.all


def rows(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {"room": f"r{i % 3}", "value": i / 2, "n": i, "note": None if i % 4 else "x" * (i % 50)}
        for i in range(start, start + count)
    ]


def write_json(path: Path, data: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in data))


def write_csv(path: Path, data: list[dict[str, Any]]) -> None:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["room", "value", "n", "note"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(data)
    path.write_text(out.getvalue())


def write_parquet(path: Path, data: list[dict[str, Any]]) -> None:
    schema = pa.schema([("room", pa.string()), ("value", pa.float64()), ("n", pa.int64()), ("note", pa.string())])
    pq.write_table(pa.Table.from_pylist(data, schema=schema), path, row_group_size=7)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
}


def as_read(ending: str, row: dict[str, Any]) -> Reading:
    # An empty cell of a text column is the empty text.
    return Reading(**row) if ending != "csv" else Reading(**{**row, "note": row["note"] or ""})


@given(
    ending=st.sampled_from(["json", "csv", "parquet"]),
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    lanes=st.integers(1, 3),
    limits=st.lists(LIMITS, max_size=30),
    crashes=st.lists(st.booleans(), max_size=6),
)
def test_whatever_the_cuts(ending: str, sizes: list[int], lanes: int, limits: list[Limits], crashes: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = [rows(100 * k, size) for k, size in enumerate(sizes)]
        for k, part in enumerate(data):
            WRITERS[ending](folder / f"{k}.{ending}", part)
        d = drive(FileSource(f"{folder}/*.{ending}", schema=Reading, lanes=lanes, batch_size=5))
        d.run(limits, crashes)
        for lane in range(lanes):
            expected = [as_read(ending, row) for part in data[lane::lanes] for row in part]
            assert d.read[str(lane)] == expected
        assert all(isinstance(batch, Columns) for batch in d.batches)


@given(
    ending=st.sampled_from(["json", "csv", "parquet", "txt"]),
    count=st.integers(0, 3000),
    readers=st.integers(1, 5),
    cuts=st.lists(st.integers(1, 4000), max_size=5),
)
def test_unordered_pieces_are_the_whole(ending: str, count: int, readers: int, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"data.{ending}"
        data = rows(0, count)
        if ending == "txt":
            path.write_text("".join(f"{row['n']} is a number\n" for row in data))
        else:
            WRITERS[ending](path, data)
        d = drive(FileSource(str(path), schema=None if ending == "txt" else Reading), ordering="none", parallelism=readers)
        d.run([Limits(records=n, bytes=1 << 30, readers=readers) for n in cuts])
        got = sorted(int(v.split()[0]) if isinstance(v, str) else v.n for v in d.all)
        assert got == list(range(count))


@pytest.mark.parametrize("ending", ["json", "csv", "parquet"])
def test_one_big_file_is_read_by_all(tmp_path: Path, ending: str) -> None:
    WRITERS[ending](tmp_path / f"data.{ending}", rows(0, 20_000))
    d = drive(FileSource(str(tmp_path)), ordering="none", parallelism=4)
    planned = d.plan(Limits(records=1 << 30, bytes=1 << 30, readers=4))
    sizes = [split.bytes or 0 for split in planned.splits]
    assert 4 <= len(sizes) <= 5
    assert max(sizes) < 1.3 * sum(sizes) / 4
    assert len({split.partition for split in planned.splits}) == len(sizes)


def test_small_files_share_splits(tmp_path: Path) -> None:
    for k in range(50):
        write_json(tmp_path / f"{k:02}.json", rows(k, 3))
    d = drive(FileSource(str(tmp_path)), ordering="none")
    assert len(d.plan().splits) <= 2
    d = drive(FileSource(str(tmp_path)))
    assert [split.partition for split in d.plan().splits] == ["0", "1"]


def test_lanes_are_those_of_the_first_plan(tmp_path: Path) -> None:
    for k in range(5):
        (tmp_path / f"{k}.txt").write_text(f"{k}\n")
    d = drive(FileSource(str(tmp_path)), parallelism=3)
    first = d.step(Limits(records=1, bytes=1))
    assert first.partitions == ["0", "1", "2"]
    d.where = context("/nowhere", 8)
    d.crash()
    d.run()
    assert dict(d.read) == {"0": ["0", "3"], "1": ["1", "4"], "2": ["2"]}


def test_json_without_a_schema_is_what_the_line_says(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1, "when": "2026-01-01T00:00:00"}\n\n{"b": [1, {"c": null}]}\n')
    assert read(FileSource(str(tmp_path / "a.jsonl"))) == [{"a": 1, "when": "2026-01-01T00:00:00"}, {"b": [1, {"c": None}]}]
    assert read(FileSource(str(tmp_path / "a.jsonl"), columns=["a"])) == [{"a": 1}, {"a": None}]


def test_json_of_nested_types(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"at": "2026-01-01T00:00:00Z", "where": {"x": 1, "y": 2}, "tags": ["q"]}\n')
    assert read(FileSource(f"{tmp_path}/a.json", schema=Nested)) == [Nested(datetime(2026, 1, 1, tzinfo=UTC), Point(1, 2), ["q"])]


def test_json_defaults_and_unknown_fields(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"room": "a", "value": 1, "more": {}}\n{"note": "x", "room": "b", "value": 2.5, "n": 3}\n')
    d = drive(FileSource(f"{tmp_path}/a.json", schema=Reading), parallelism=1)
    d.run()
    assert d.all == [Reading("a", 1.0, 7, None), Reading("b", 2.5, 3, "x")]
    assert isinstance(d.batches[0], Columns)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"room": "a", "value": "much"}', "Expected `float"),
        ('{"room": "a"}', "missing required field `value`"),
        ('{"room": null, "value": 1}', "Expected `str"),
        ('{"room": "a", "value": 1', "malformed|truncated"),
        ('{"room": "a", "value": 1} {"room": "a", "value": 1}', "one object on each line"),
        ('{"room": "a", "value": 1, "n": 99999999999999999999}', "int|range|big|large"),
        ("[1]", "Expected `object`"),
    ],
)
def test_bad_json(tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: str, reason: str) -> None:
    good = [json.dumps(row) for row in rows(0, 200)]
    path = tmp_path / "a.json"
    path.write_text("\n".join([*good[:120], bad, *good[120:]]) + "\n")
    with pytest.raises(SourceError, match=reason) as caught:
        read(FileSource(str(path), schema=Reading))
    offset = sum(len(line) + 1 for line in good[:120])
    assert f"line 121, byte {offset}" in caught.value.detail
    assert bad in caught.value.detail
    assert str(path) in caught.value.what
    with caplog.at_level(logging.WARNING, "penstock.files"):
        assert read(FileSource(str(path), schema=Reading, on_bad_record="skip")) == [Reading(**row) for row in rows(0, 200)]
    assert "skipped 1 bad records" in caplog.text


def test_an_arrow_schema(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", rows(0, 3))
    schema = pa.schema([("n", pa.int32()), ("value", pa.float64())])
    d = drive(FileSource(f"{tmp_path}/a.json", schema=schema), parallelism=1)
    d.run()
    assert d.all == [{"n": i, "value": i / 2} for i in range(3)]
    assert d.batches[0].data.schema.equals(schema)


def test_csv_without_a_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,x,2.5\n2,,nan\n")
    got = read(FileSource(str(tmp_path)))
    assert got[0] == {"a": 1, "b": "x", "c": 2.5}
    assert got[1]["b"] == ""
    assert read(FileSource(str(tmp_path), columns=["b"])) == [{"b": "x"}, {"b": ""}]


def test_the_types_of_csv_do_not_depend_on_the_cut(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n" + "1\n" * 50 + "1.5\n" + "2\n" * 50)
    d = drive(FileSource(str(tmp_path)), parallelism=1)
    d.run([Limits(records=3, bytes=1 << 20)] * 50)
    assert [type(row["a"]) for row in d.all] == [float] * 101


def test_csv_with_times_and_blanks(tmp_path: Path) -> None:
    @dataclass
    class Row:
        at: datetime
        until: datetime | None
        n: int | None
        m: int = 5

    (tmp_path / "a.csv").write_text("until,at,n,m,x\n,2026-01-01 10:00:00,,,\n2026-01-01T00:00:00Z,2026-01-01 11:00:00,3,4,\n")
    assert read(FileSource(str(tmp_path), schema=Row)) == [
        Row(datetime(2026, 1, 1, 10), None, None, 5),  # noqa: DTZ001
        Row(datetime(2026, 1, 1, 11), datetime(2026, 1, 1, tzinfo=UTC), 3, 4),  # noqa: DTZ001
    ]


def test_csv_into_types_of_the_program(tmp_path: Path) -> None:
    @dataclass
    class Row:
        d: timedelta
        t: tuple[str, ...] | None
        s: str

    (tmp_path / "a.csv").write_text("s,d,t\n,PT1H,\n")
    assert read(FileSource(str(tmp_path), schema=Row)) == [Row(timedelta(hours=1), None, "")]


def test_bad_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n2,y,z\nthree,w\n,v\n4,u\n")
    with pytest.raises(SourceError, match="Expected 2 columns, got 3") as caught:
        read(FileSource(str(path), schema=Pair))
    assert "line 3" in caught.value.detail
    assert read(FileSource(str(path), schema=Pair, on_bad_record="skip")) == [Pair(1, "x"), Pair(4, "u")]


def test_csv_must_have_the_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,c\n1,x\n")
    with pytest.raises(SourceError, match="no column b"):
        read(FileSource(str(tmp_path), schema=Pair))


def test_csv_without_header_and_with_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;x\n2;y\n")
    source = FileSource(str(tmp_path), schema=Pair, header=False, delimiter=";")
    assert read(source) == [Pair(1, "x"), Pair(2, "y")]


def test_newlines_in_csv_values(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"x\ny"\n2,"z"\n')
    with pytest.raises(SourceError, match="newlines_in_values"):
        read(FileSource(str(path), schema=Pair))
    assert read(FileSource(str(path), schema=Pair, newlines_in_values=True)) == [Pair(1, "x\ny"), Pair(2, "z")]
    path.write_text('a,b\n1,"x\n2,"z"\n')
    with pytest.raises(SourceError):
        read(FileSource(str(path), schema=Pair))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("ending", list(PACKERS))
def test_compressed_files(tmp_path: Path, ending: str) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows(0, 500))
    packed = PACKERS[ending](data)
    path = tmp_path / f"a.json.{ending}"
    path.write_bytes(packed)
    d = drive(FileSource(str(path), schema=Reading, batch_size=100), parallelism=1)
    d.run([Limits(records=1, bytes=1)] * 3)
    assert d.all == [Reading(**row) for row in rows(0, 500)]
    path.write_bytes(packed + b"trash that is not compressed")
    with pytest.raises(SourceError, match=r"a\.json\."):
        read(FileSource(str(path), schema=Reading))


def test_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\ntwo\nthree")
    d = drive(FileSource(str(tmp_path)), parallelism=1)
    d.run([Limits(records=1, bytes=1)] * 3)
    assert d.all == ["one", "", "two", "three"]
    assert isinstance(d.batches[0], Records)
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\ntwo\n")
    with pytest.raises(SourceError, match="utf-8"):
        read(FileSource(str(tmp_path)))
    assert read(FileSource(str(tmp_path), on_bad_record="skip")) == ["one", "two"]


def test_parquet_reads_only_what_is_wanted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]}), tmp_path / "a.parquet")
    d = drive(FileSource(str(tmp_path), schema=Pair), parallelism=1)
    d.run()
    assert d.all == [Pair(1, "x"), Pair(2, "y")]
    assert d.batches[0].data.schema.names == ["a", "b"]
    assert read(FileSource(str(tmp_path), columns=["c"])) == [{"c": 0.5}, {"c": 1.5}]
    with pytest.raises(SourceError, match="no column z"):
        read(FileSource(str(tmp_path), columns=["z"]))


def test_parquet_of_other_types(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, None], pa.int32()), "b": pa.array(["x", "y"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="a is null") as caught:
        read(FileSource(str(tmp_path), schema=Pair))
    assert "row 1" in caught.value.detail
    assert read(FileSource(str(tmp_path), schema=Pair, on_bad_record="skip")) == [Pair(1, "x")]


def test_parquet_of_nested_types(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    pq.write_table(pa.Table.from_pylist([{"at": moment, "where": {"x": 1, "y": 2}, "tags": ["a"]}]), tmp_path / "a.parquet")
    assert read(FileSource(str(tmp_path), schema=Nested)) == [Nested(moment, Point(1, 2), ["a"])]


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(SourceError, match="is not a Parquet file"):
        read(FileSource(str(tmp_path)))


def test_hidden_files_are_left_alone(tmp_path: Path) -> None:
    for name in (".a.txt", "_b.txt", "c.txt.tmp", "d.txt", "sub/e.txt", "_sub/f.txt", ".sub/g.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    assert read(FileSource(str(tmp_path), lanes=1)) == ["d.txt", "sub/e.txt"]
    assert read(FileSource(f"{tmp_path}/*.txt")) == ["d.txt"]
    assert read(FileSource(f"{tmp_path}/**/*.txt", lanes=1)) == ["d.txt", "sub/e.txt"]


def test_no_such_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there are no files"):
        read(FileSource(f"{tmp_path}/*.json"))
    assert read(FileSource(str(tmp_path))) == []
    (tmp_path / "what").write_text("?")
    with pytest.raises(SourceError, match=r"format of .*what is not clear from its name"):
        read(FileSource(str(tmp_path)))


@pytest.mark.parametrize("ending", ["json", "csv", "parquet", "txt"])
def test_files_that_vanish_or_change(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    WRITERS.get(ending, write_json)(path, rows(0, 100))
    d = drive(FileSource(str(tmp_path)), parallelism=1)
    planned = d.plan()
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(SourceError, match=rf"a\.{ending} has shrunk"):
        d.values(planned)
    path.unlink()
    with pytest.raises(SourceError, match=rf"a\.{ending} has vanished"):
        d.values(planned)


class Watched:
    """A folder that is watched, and a clock for its files."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.drive = drive(FileSource(str(folder), watch=1.0, lanes=1, **options))

    def put(self, name: str, mtime_s: float, text: str | None = None) -> None:
        temporary = self.folder / f".{name}"
        temporary.write_text(f"{name}\n" if text is None else text)
        os.utime(temporary, (mtime_s, mtime_s))
        temporary.rename(self.folder / name)

    def look(self, limits: Limits = Limits(records=100, bytes=1 << 20)) -> list[Any]:  # noqa: B008
        self.drive.now_ms += 1000
        before = len(self.drive.read["0"])
        planned = self.drive.step(limits)
        assert not planned.exhausted
        assert planned.partitions == ["0"]
        return self.drive.read["0"][before:]


def test_watching(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    assert w.look() == []
    w.put("b.txt", 1000)
    w.put("a.txt", 1001)
    assert w.look() == ["b.txt", "a.txt"]
    assert w.look() == []
    w.put("c.txt", 1001)
    w.put("d.txt", 990)
    assert w.look() == ["d.txt", "c.txt"]
    w.drive.crash()
    assert w.look() == []
    w.put("e.txt", 2000)
    assert w.look() == ["e.txt"]
    assert list(w.drive.position["recent"]) == [str(tmp_path / "e.txt")], "only what is near the newest is remembered"
    w.drive.crash()
    assert w.look() == []


def test_a_file_that_comes_too_late_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    w = Watched(tmp_path)
    w.put("a.txt", 1000)
    assert w.look() == ["a.txt"]
    w.put("old.txt", 900)
    with caplog.at_level(logging.WARNING, "penstock.files"):
        assert w.look() == []
        assert w.look() == []
    assert caplog.text.count("old.txt") == 1


def test_watching_looks_only_now_and_then(tmp_path: Path) -> None:
    d = drive(FileSource(str(tmp_path), watch=timedelta(seconds=10)))
    assert d.plan().wake_ms == d.now_ms + 10_000
    (tmp_path / "a.txt").write_text("a\n")
    d.now_ms += 9_999
    assert not d.plan().splits
    d.now_ms += 1
    assert d.plan().splits


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 3)), max_size=12),
    limits=st.lists(LIMITS, max_size=30),
    crashes=st.sets(st.integers(0, 30)),
)
def test_files_arrive_while_it_runs(arrivals: list[tuple[int, int]], limits: list[Limits], crashes: set[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        w = Watched(Path(name))
        newest = 0
        expected = []
        ways = iter(limits)
        for k, (age, lines) in enumerate(arrivals):
            newest += 40
            # Up to 19 s behind the newest there could be: always within the grace.
            w.put(f"{k}.txt", newest - age % 20, "".join(f"{k}.{i}\n" for i in range(lines)))
            expected += [f"{k}.{i}" for i in range(lines)]
            w.look(next(ways, Limits(records=9, bytes=99)))
            if k in crashes:
                w.drive.crash()
        for _ in range(60):
            w.look()
        assert sorted(w.drive.read["0"]) == sorted(expected)
        by_file = [line.split(".")[0] for line in w.drive.read["0"]]
        assert [k for i, k in enumerate(by_file) if i == 0 or by_file[i - 1] != k] == [str(k) for k in range(len(arrivals))]


def test_positions_stay_small(tmp_path: Path) -> None:
    for k in range(2000):
        (tmp_path / f"{k:05}.txt").write_text("x\n")
    d = drive(FileSource(str(tmp_path)), parallelism=4)
    d.step(Limits(records=1000, bytes=1 << 20))
    assert len(json.dumps(d.position)) < 1000
    d.run()
    assert len(d.all) == 2000


def test_a_queue_does_not_grow_behind_a_big_file(tmp_path: Path) -> None:
    (tmp_path / "00000.txt").write_text("big\n" * 1000)
    for k in range(1, 1200):
        (tmp_path / f"{k:05}.txt").write_text("x\n")
    d = drive(FileSource(str(tmp_path), lanes=2))
    d.step(Limits(records=1800, bytes=1 << 20))
    assert max(len(queue) for queue in d.position["queues"]) <= 256
    d.run([Limits(records=100, bytes=1 << 20)] * 5)
    assert len(d.all) == 1000 + 1199


def publish(folder: Path, number: int, names: list[str]) -> None:
    files = []
    for name in names:
        path = folder / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name}\n")
        files.append({"path": f"data/{name}", "rows": 1, "bytes": path.stat().st_size})
    (folder / "_log").mkdir(exist_ok=True)
    entry = {"version": 1, "epoch": 3 * number, "job": "j", "sink": "out", "files": files}
    (folder / "_log" / f"{number:020d}.json").write_text(json.dumps(entry))


def test_a_log_is_followed(tmp_path: Path) -> None:
    (tmp_path / "unpublished.txt").write_text("unpublished\n")
    publish(tmp_path, 1, ["z.txt", "a.txt"])
    publish(tmp_path, 2, [])
    publish(tmp_path, 10, ["m.txt"])
    assert read(FileSource(str(tmp_path), lanes=1)) == ["z.txt", "a.txt", "m.txt"]
    w = Watched(tmp_path)
    assert w.look(Limits(records=1, bytes=1)) == ["z.txt"]
    before = w.drive.position
    assert w.look() == ["a.txt", "m.txt"]
    publish(tmp_path, 11, ["n.txt"])
    assert w.look() == ["n.txt"]
    w.drive.position = before
    assert w.look() == ["a.txt", "m.txt", "n.txt"], "an older position is answered as well"
    w.drive.crash()
    publish(tmp_path, 12, ["o.txt", "p.txt"])
    assert w.look(Limits(records=1, bytes=1)) == ["o.txt"]
    w.drive.crash()
    assert w.look() == ["p.txt"]


def test_the_output_of_a_file_sink_is_read(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "job"))
    sink = FileSink(str(tmp_path / "out"), format="parquet")
    publisher = committer(sink, storage)
    w = Watched(tmp_path / "out")
    assert w.look() == []
    for epoch in (1, 2):
        staged = stage(sink, storage, epoch, [{"n": epoch}])
        assert w.look() == [], "not published yet"
        publisher.commit(Epoch(epoch), [staged])
        assert w.look() == [{"n": epoch}]


def test_files_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(uri: str) -> LocalStorage:
        return LocalStorage(str(tmp_path) + uri.removeprefix("s3://bucket").partition("?")[0])

    monkeypatch.setattr(locations, "open_storage", local)
    for name in ("in/1.txt", "in/2.txt", "in/sub/3.txt", "in/_hidden/4.txt", "in/5.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    query = "?endpoint=http://localhost"
    assert read(FileSource(f"s3://bucket/in/*.txt{query}", lanes=1)) == ["in/1.txt", "in/2.txt"]
    assert read(FileSource(f"s3://bucket/in/**/*.txt{query}", lanes=1)) == ["in/1.txt", "in/2.txt", "in/sub/3.txt"]
    assert read(FileSource(f"s3://bucket/in/[!1].txt{query}", lanes=1)) == ["in/2.txt"]
    assert read(FileSource(f"s3://bucket/in/2.txt{query}", lanes=1)) == ["in/2.txt"]
    assert read(FileSource(f"s3://bucket/in/sub/{query}", lanes=1)) == ["in/sub/3.txt"]
    with pytest.raises(SourceError, match="there are no files"):
        read(FileSource(f"s3://bucket/out/*.txt{query}"))
    publish(tmp_path / "in", 1, ["2.txt"])
    assert read(FileSource(f"s3://bucket/in{query}", lanes=1)) == ["2.txt"]


def test_watch_cannot_be_changed_under_way(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")
    d = drive(FileSource(str(tmp_path)), parallelism=1)
    d.step(Limits(records=1, bytes=1))
    d.source = FileSource(str(tmp_path), watch=1)
    d.crash()
    with pytest.raises(SourceError, match="another order"):
        d.plan()


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xml"},
        {"schema": int},
        {"schema": 3},
        {"schema": Pair, "columns": ["z"]},
        {"columns": "a"},
        {"columns": []},
        {"watch": 0},
        {"lanes": 0},
        {"batch_size": 0},
        {"on_bad_record": "ignore"},
        {"delimiter": ",,"},
        {"header": False},
        {"newlines_in_values": True, "on_bad_record": "skip"},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        FileSource("somewhere", **options)
    assert getattr(caught.value, "hint", "")


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError):
        FileSource("")


def test_relative_paths_are_made_absolute() -> None:
    assert FileSource("a/*.json").path == f"{os.getcwd()}/a/*.json"


@dataclass
class OptionalFirst:
    k: str
    v: float | None
    t: int


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_field_that_may_be_none_before_one_that_must_be_there(format: str, tmp_path: Path) -> None:
    rows = [OptionalFirst("a", None, 1), OptionalFirst("b", 2.5, 2)]
    path = tmp_path / f"in.{format}"
    if format == "json":
        path.write_text('{"k": "a", "v": null, "t": 1}\n{"k": "b", "v": 2.5, "t": 2}\n')
    elif format == "csv":
        path.write_text("k,v,t\na,,1\nb,2.5,2\n")
    else:
        pq.write_table(pa.table({"k": ["a", "b"], "v": [None, 2.5], "t": [1, 2]}), path)
    env = StreamEnvironment("optional", executor="inline", parallelism=1)
    assert env.from_source(FileSource(str(path), schema=OptionalFirst)).execute_and_collect() == rows
