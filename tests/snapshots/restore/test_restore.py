"""Starting from a snapshot: once, again, after crashes, in another job; and what it leaves."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, FileSource, KeyedProcessFunction, StreamEnvironment, TumblingWindows, Watermarks, count
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.epochs.committing.compaction_runner import CompactionRunner
from penstock.errors import FencedError, PenstockError
from penstock.failpoints import InjectedError, arm
from penstock.ids import MAX_WATERMARK, Epoch
from penstock.jobs.manifest import load_manifest
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage
from penstock.testing import (
    CollectSink,
    Cut,
    ScriptedSource,
    VirtualClock,
    Watermark,
    execute_inline,
    scripted_watermarks,
)
from tests.laws.trying import COUNT, manifests, program


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def rows(*folders: Path) -> Counter[tuple[int, int]]:
    return Counter((row["key"], row["number"]) for folder in folders for row in read_rows(folder / "out"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that ran to its end and keeps all its epochs, each with 20 records; a savepoint of epoch 6."""
    folder = tmp_path_factory.mktemp("whole")
    assert program(folder, keep=100).execute().finished
    make_savepoint(open_storage(folder / "storage"), 6, str(folder / "savepoint"))
    return folder


def read_by(folder: Path, epoch: int) -> int:
    """How many records the job had read after an epoch."""
    (manifest,) = (m for m in manifests(folder) if m.epoch == epoch)
    return int(manifest.sources["numbers"].position["next"])


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("source", ["savepoint", "storage@6"])
def test_a_fork_goes_on_by_itself(whole: Path, tmp_path: Path, source: str, parallelism: int) -> None:
    """It is another job, with a copy of the state: what it started from may go."""
    shutil.copytree(whole, tmp_path / "gone")
    left = program(tmp_path, parallelism=parallelism).execute(
        restore_from=str(tmp_path / "gone" / source), max_records_per_epoch=60, listener=lambda record: forget(tmp_path / "gone")
    )
    assert left.finished
    assert left.records_in == COUNT - read_by(whole, 6)
    last = manifests(tmp_path)[-1]
    assert last.job != manifests(whole)[-1].job
    assert last.restored is not None
    assert (last.restored.epoch, last.restored.at) == (6, 1)
    first_part: Counter[tuple[int, int]] = rows(whole) - rows(tmp_path)
    assert first_part.total() == read_by(whole, 6)


def forget(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def test_both_of_a_fork_go_on(tmp_path: Path) -> None:
    """The original and a fork, in turns, from one savepoint on: each comes to the same end by itself."""
    first, second = tmp_path / "first", tmp_path / "second"
    program(first).execute(listener=stop_after(5))
    savepoint = make_savepoint(open_storage(first / "storage")).uri
    before = rows(first)
    for turn in range(3):
        for folder, start in ((first, None), (second, savepoint)):
            program(folder, parallelism=2 + turn).execute(listener=stop_after(2), restore_from=start)
    assert program(second).execute(restore_from=savepoint).finished
    assert program(first).execute().finished
    assert rows(first).total() == COUNT
    assert rows(first) == before + rows(second)


def stop_after(epochs: int) -> Any:
    import signal

    left = iter(range(epochs - 1))

    def listen(record: object) -> None:
        if next(left, None) is None:
            signal.raise_signal(signal.SIGTERM)

    return listen


def test_the_same_snapshot_is_started_from_once(whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start: dict[str, Any] = {"restore_from": str(whole / "savepoint")}
    program(tmp_path).execute(listener=stop_after(3), **start)
    caplog.set_level("INFO", "penstock")
    assert program(tmp_path).execute(**start).finished
    assert "resumes from its newest epoch, 4, not from" in caplog.text
    assert rows(tmp_path).total() == COUNT - read_by(whole, 6)
    once_more = program(tmp_path).execute(restore_again=True, **start)
    assert once_more.records_in == COUNT - read_by(whole, 6)


def test_the_newest_epoch_of_another_job_is_started_from_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    program(first).execute(listener=stop_after(5))
    start: dict[str, Any] = {"restore_from": f"{first / 'storage'}@latest"}
    program(second).execute(listener=stop_after(2), **start)
    head = manifests(second)[-1].epoch
    assert program(first).execute().finished  # its newest is another one now
    assert program(second).execute(**start).finished
    assert manifests(second)[-1].epoch > head
    assert (rows(first) - rows(second)).total() == 100


def test_going_back_in_the_own_storage(tmp_path: Path) -> None:
    """Epochs go on to be numbered; the state, the positions and the files are those of the epoch gone back to."""
    assert program(tmp_path, keep=100).execute().finished
    newest = manifests(tmp_path)[-1].epoch
    back = program(tmp_path, keep=100, parallelism=3)
    result = back.execute(restore_from="@6", listener=stop_after(1))
    assert result.records_in == 20
    taken, after = manifests(tmp_path)[-2:]
    assert (taken.epoch, taken.parent, after.epoch) == (newest + 1, 6, newest + 2)
    assert taken.restored is not None
    assert (taken.restored.identity, taken.restored.epoch, taken.restored.at) == (f"{taken.job}@6", 6, newest + 1)
    assert after.restored == taken.restored
    assert not (tmp_path / "storage" / "state" / "imported").exists()
    assert after.sources["numbers"].position["next"] == read_by(tmp_path, 6) + 20
    # And forth again: what lies beside the line is kept as long as the others.
    assert program(tmp_path, keep=100).execute(restore_from=f"{tmp_path / 'storage'}@{newest - 1}").records_in == 20


def test_latest_is_the_default_said(tmp_path: Path) -> None:
    program(tmp_path).execute(listener=stop_after(3))
    assert program(tmp_path).execute(restore_from="latest").finished
    assert rows(tmp_path).total() == COUNT
    assert manifests(tmp_path)[-1].restored is None


POINTS = [
    "restore:resolved",
    "restore:half-copied",
    "restore:copied",
    "recovery:before-commit",
    "manifest:before",
    "manifest:after",
    "done:before",
    "recovery:taken-over",
    "task:delta",
]


@pytest.mark.parametrize("source", ["savepoint", "storage@6"])
@pytest.mark.parametrize("point", POINTS)
def test_dying_while_restoring(whole: Path, tmp_path: Path, point: str, source: str) -> None:
    """Started again with the same command, the job comes to the same end, and nothing is left of the attempts."""
    start: dict[str, Any] = {"restore_from": str(whole / source), "keep": 100, "compact_after": 100}
    for _ in range(2):
        arm(f"{point}=raise")
        with pytest.raises((InjectedError, PenstockError)):
            program(tmp_path).execute(**start)
    arm("")
    assert program(tmp_path).execute(**start).finished
    assert (rows(whole) - rows(tmp_path)).total() == read_by(whole, 6)
    assert rows(tmp_path).total() == COUNT - read_by(whole, 6)
    named = {ref.name for m in manifests(tmp_path) for stage in m.state.chains for chain in stage for ref in chain}
    state = tmp_path / "storage" / "state"
    found = {str(path.relative_to(state.parent)) for path in state.rglob("*") if path.is_file()}
    assert found == named
    assert len({name.split("/")[2] for name in named if "imported" in name}) == 1
    assert not list((tmp_path / "storage" / "pins").glob("*"))


class Meanwhile:
    """Does something once, while the files of a snapshot are being copied."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.done = False

    def __call__(self, record: object) -> None:
        pass

    def starting(self, lines: list[str]) -> None:
        pass

    def copied(self, done: int, total: int) -> None:
        if not self.done:
            self.done = True
            self._action()


@pytest.mark.parametrize("start", [{}, {"restore_from": "savepoint"}])
def test_another_driver_takes_over_while_files_are_copied(whole: Path, tmp_path: Path, start: dict[str, str]) -> None:
    """The slower one is fenced, and its copies are nobody's: neither of the two names files that the other has swept."""
    source = str(whole / "savepoint")
    other: dict[str, Any] = {name: str(whole / value) for name, value in start.items()}
    meanwhile = Meanwhile(lambda: program(tmp_path).execute(listener=stop_after(2), take_over=True, **other))
    with pytest.raises(FencedError):
        program(tmp_path).execute(restore_from=source, listener=meanwhile)
    assert program(tmp_path).execute(**other).finished
    assert rows(tmp_path).total() == (COUNT - read_by(whole, 6) if start else COUNT)
    imported = tmp_path / "storage" / "state" / "imported"
    folders = {path.parent.name for path in imported.rglob("*.parquet")}
    assert {folder[:6] for folder in folders} <= {"000002"}


def test_a_fork_of_a_running_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job keeps one epoch and goes on by several while its files are copied: the pin holds them."""
    monkeypatch.setattr("penstock.epochs.committing.retention.GRACE_MS", 0)
    first, second = tmp_path / "first", tmp_path / "second"
    program(first, keep=1).execute(listener=stop_after(4))
    before = rows(first)
    meanwhile = Meanwhile(lambda: program(first, keep=1).execute(listener=stop_after(6)))
    assert program(second).execute(restore_from=f"{first / 'storage'}@latest", listener=meanwhile).finished
    assert meanwhile.done
    assert program(first, keep=1).execute().finished
    assert rows(first) == before + rows(second)
    assert manifests(first)[0].epoch > 10, "nothing holds the epoch any more"


@pytest.mark.parametrize("source", ["savepoint", "storage@6"])
def test_copies_go_when_no_epoch_names_them(whole: Path, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction merges them like bases, and retention removes them."""
    monkeypatch.setattr("penstock.epochs.committing.retention.GRACE_MS", 0)
    start: dict[str, Any] = {"restore_from": str(whole / source), "max_records_per_epoch": 5}
    assert program(tmp_path, keep=2, compact_after=2).execute(**start).finished
    assert (rows(whole) - rows(tmp_path)).total() == read_by(whole, 6)
    refs = [ref for stage in manifests(tmp_path)[-1].state.chains for chain in stage for ref in chain]
    assert any(ref.kind == "base" for ref in refs)
    assert not [path for path in (tmp_path / "storage" / "state" / "imported").rglob("*") if path.is_file()]


def test_a_merge_takes_parquet_files_for_bases(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    submit = CompactionRunner._submit

    def watched(self: CompactionRunner, task: Any) -> Any:
        seen.append((task.base, [ref.name.rpartition(".")[2] for ref in task.files]))
        return submit(self, task)

    monkeypatch.setattr(CompactionRunner, "_submit", watched)
    program(tmp_path, compact_after=2).execute(restore_from=str(whole / "savepoint"))
    assert (True, ["parquet", "delta", "delta"]) in seen


class Alarm(KeyedProcessFunction[str, tuple[str, int], tuple[str, str, int, int]]):
    """Rings at a time of the record's, once in event time and once in processing time."""

    def process(self, value: tuple[str, int], ctx: Any) -> None:
        ctx.timers.register_event_time(value[1])
        ctx.timers.register_processing_time(1_000 + value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, str, int, int]]:
        yield ctx.key, ctx.time_domain, timestamp, max(0, ctx.current_watermark)


def alarms(script: list[Any], sink: CollectSink) -> StreamEnvironment:
    env = StreamEnvironment("alarms", parallelism=2)
    source = env.from_source(ScriptedSource(script), watermarks=scripted_watermarks(), name="in")
    source.key_by(lambda value: value[0]).process(Alarm(), name="alarm").sink_to(sink, name="out")
    return env


@pytest.mark.parametrize("source", ["savepoint", "epoch"])
def test_timers_ring_when_they_are_due(tmp_path: Path, source: str) -> None:
    """Those of the snapshot too, though no record comes to their keys: in event time, and when the clock shows it."""
    script = [("a", 50), ("b", 500), Watermark(10), Cut(), Watermark(100), Cut(), Watermark(200)]
    first, second = CollectSink(), CollectSink()
    execute_inline(alarms(script, first), clock=VirtualClock(1_000), epochs=1, storage=str(tmp_path / "first"))
    assert first.results() == []
    start = make_savepoint(open_storage(tmp_path / "first")).uri if source == "savepoint" else f"{tmp_path / 'first'}@latest"
    settings: dict[str, Any] = {"storage": str(tmp_path / "second"), "parallelism": 3, "restore_from": start}
    execute_inline(alarms(script, second), clock=VirtualClock(1_010), until=3_000, **settings)
    assert sorted(second.results()) == [
        ("a", "event", 50, 50),
        ("a", "processing", 1050, 200),
        ("b", "processing", 1500, 200),
    ]
    for sink in (first, second):
        sink.discard()


def test_processing_time_does_not_go_back(tmp_path: Path) -> None:
    """The clock of the machine that restores may be behind."""
    first, second = CollectSink(), CollectSink()
    script = [("a", 50), Cut(), ("b", 50)]
    execute_inline(alarms(script, first), clock=VirtualClock(70_000), epochs=1, storage=str(tmp_path / "first"))
    saved = make_savepoint(open_storage(tmp_path / "first"))
    second_job: dict[str, Any] = {"storage": str(tmp_path / "second"), "restore_from": saved.uri}
    execute_inline(alarms(script, second), clock=VirtualClock(100), **second_job)
    taken = load_manifest(open_storage(tmp_path / "second"), Epoch(1))
    assert taken.processing_time == saved.processing_time >= 70_000
    for sink in (first, second):
        sink.discard()


# --- time and the end of it --------------------------------------------------------------------------------------------------


def visits(folder: Path, files: Path, **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment("visits", executor="inline", parallelism=2, storage=str(folder / "storage"), restart=NO_RESTART)
    source = env.from_source(FileSource(f"{files}/*.json"), watermarks=Watermarks.monotonous(timestamp="time"), name="visits")
    windows = source.key_by("who").window(TumblingWindows(seconds=1))
    windows.aggregate(count(), name="per-second").sink_to(FileSink(str(folder / "windows")), name="windows-out")
    source.key_by("who").sum("n", name="sums").sink_to(FileSink(str(folder / "sums")), name="sums-out")
    return env


def write_visits(path: Path, times: range) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"who": "ab"[t % 3 > 1], "time": t * 100, "n": 1}) + "\n" for t in times))


@pytest.mark.parametrize("source", ["savepoint", "epoch"])
def test_a_finished_job_goes_on_with_new_input(tmp_path: Path, source: str) -> None:
    """Sums go on; the end of time is taken back to where the source's clock is. Just started again, it stays finished."""
    files, first, second = tmp_path / "files", tmp_path / "first", tmp_path / "second"
    write_visits(files / "1.json", range(25))
    assert visits(first, files).execute().finished
    assert MAX_WATERMARK in manifests(first)[-1].watermarks.values()
    start = make_savepoint(open_storage(first / "storage")).uri if source == "savepoint" else f"{first / 'storage'}@latest"
    assert visits(second, files).execute(restore_from=start).finished  # nothing new
    write_visits(files / "2.json", range(30, 55))
    assert visits(first, files).execute().records_in == 0
    result = visits(second, files).execute(restore_from=start, restore_again=True)
    assert (result.finished, result.records_in) == (True, 25)
    sums = {row["who"]: row["n"] for row in read_rows(second / "sums")}
    assert sum(sums.values()) == 50
    windows = {(row["who"], row["window_start"]): row["count"] for row in read_rows(second / "windows")}
    assert sorted({start for _, start in windows}) == [3000, 4000, 5000]
    assert sum(windows.values()) == 25
