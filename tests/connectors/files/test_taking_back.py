"""A file sink's log when output is taken back, repaired and read meanwhile, against a naive model."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.reading.published import read_rows
from penstock.connectors.files.reading.read_output import read_output
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.writing import log_view as views
from penstock.connectors.files.writing.committer import FileCommitter
from penstock.connectors.files.writing.log_format import LogEntry, decode_entry, encode_entry, newest_entry, view_after
from penstock.connectors.protocol import ComparesPositions, Fences, Limits, Repairs, RollsBack, TellsPublished
from penstock.connectors.twophase import SqliteSink
from penstock.errors import CorruptFileError, SinkError, SourceError, StorageError
from penstock.ids import Epoch
from penstock.storage import LocalStorage, Storage
from tests.connectors.driving import Drive, context
from tests.connectors.sinking import Faulty, committer, committer_context, stage
from tests.connectors.test_twophase import ShelfSink


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "job")


def publish(sink: FileSink, storage: Storage, driver: Any, *epochs: int) -> None:
    for epoch in epochs:
        driver.commit(Epoch(epoch), [stage(sink, storage, epoch, [epoch])])


def shown(out: str) -> list[int]:
    return [row["value"] for row in read_rows(out)]


def test_what_was_published_after_an_epoch_is_taken_back(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    driver: Any = committer(sink, storage)
    publish(sink, storage, driver, 1, 2, 3, 4)
    told = driver.published_after(Epoch(2))
    assert (told.newest, told.epochs, told.records, told.obstacle) == (4, 2, 2, "")
    for _ in range(2):
        driver.roll_back(Epoch(2), Epoch(5))
        committer(sink, storage).roll_back(Epoch(2), Epoch(5))  # type: ignore[attr-defined]
    assert shown(out) == [1, 2]
    assert read_output(out).epochs == [1, 2]
    publish(sink, storage, driver, 6, 7)
    assert shown(out) == [1, 2, 6, 7]
    assert driver.published_after(Epoch(7)).epochs == 0


def test_a_late_driver_of_the_line_that_was_given_up_publishes_nothing(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    late: Any = committer(sink, storage)
    publish(sink, storage, late, 1)
    second = [stage(sink, storage, 2, [2])]
    late.commit(Epoch(2), second)
    staged = [stage(sink, storage, 3, [3])]
    successor: Any = committer(sink, storage)
    successor.roll_back(Epoch(2), Epoch(4))  # there was nothing to take back yet
    with pytest.raises(SinkError, match="cannot publish epoch 3: epoch 4"):
        late.commit(Epoch(3), staged)
    with pytest.raises(SinkError, match="cannot go back in epoch 3"):
        late.roll_back(Epoch(1), Epoch(3))
    publish(sink, storage, successor, 5)
    late.commit(Epoch(2), second)  # as it was published
    assert shown(out) == [1, 2, 5]


def test_a_late_driver_cannot_end_the_repair_of_another(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    late: Any = committer(sink, storage)
    publish(sink, storage, late, 1, 2, 3)
    late.begin_repair(Epoch(1), Epoch(4))
    publish(sink, storage, late, 5)
    successor: Any = committer(sink, storage)
    successor.finish_repair(Epoch(5))
    assert shown(out) == [1, 5]
    successor.begin_repair(Epoch(1), Epoch(6))
    late.finish_repair(Epoch(5))
    assert shown(out) == [1, 5]
    successor.finish_repair(Epoch(7))
    assert shown(out) == [1]


def test_one_can_return_to_a_line_that_was_given_up_while_its_files_are_there(out: str, storage: Storage) -> None:
    sink = FileSink(out, keep_taken_back=timedelta(0))
    driver: Any = committer(sink, storage)
    publish(sink, storage, driver, 1, 2, 3)
    driver.roll_back(Epoch(1), Epoch(4))
    assert shown(out) == [1]
    driver.roll_back(Epoch(3), Epoch(5))
    assert shown(out) == [1, 2, 3]
    driver.roll_back(Epoch(1), Epoch(6))
    publish(sink, storage, driver, 7)  # now those of 2 and 3 are removed
    told = driver.published_after(Epoch(3))
    assert "taken back since, are removed: data/part-0000000002" in told.obstacle
    assert "and 1 more" in told.obstacle


def test_files_taken_back_stay_for_a_while(out: str, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    sink = FileSink(out, keep_taken_back=60)
    driver: Any = committer(sink, storage)
    publish(sink, storage, driver, 1, 2, 3)
    driver.roll_back(Epoch(1), Epoch(4))
    now[0] += 30
    publish(sink, storage, driver, 5)
    again: Any = sink.committer(committer_context(storage, sweepable=lambda attempt: True))
    again.sweep()
    assert len(data_files(out)) == 4
    now[0] += 31
    publish(sink, storage, again, 6)
    assert data_files(out) == [1, 5, 6]
    driver.begin_repair(Epoch(1), Epoch(7))
    publish(sink, storage, driver, 8)
    driver.finish_repair(Epoch(8))
    now[0] += 61
    again = sink.committer(committer_context(storage, sweepable=lambda attempt: True))
    again.sweep()
    assert data_files(out) == [1, 8]
    assert shown(out) == [1, 8]


def data_files(out: str) -> list[int]:
    return [int(os.path.basename(listed.path).split("-")[1]) for listed in LocalStorage(out).list("data")]


def test_tidy_copies_follow(out: str, storage: Storage) -> None:
    sink = FileSink(out, tidy=True)
    driver: Any = committer(sink, storage)

    def copies() -> list[int]:
        return [int(os.path.basename(listed.path).split("-")[1]) for listed in LocalStorage(out).list("published")]

    publish(sink, storage, driver, 1, 2, 3)
    driver.roll_back(Epoch(2), Epoch(4))
    publish(sink, storage, driver, 5)
    assert copies() == [1, 2, 5]
    driver.begin_repair(Epoch(1), Epoch(6))
    publish(sink, storage, driver, 7)
    assert copies() == [1, 2, 5]
    driver.finish_repair(Epoch(7))
    assert copies() == [1, 7]
    os.remove(next(Path(out, "published").iterdir()))  # as after a crash in between
    sink.committer(committer_context(storage, sweepable=lambda attempt: True)).sweep()
    assert copies() == [1, 7]


@pytest.mark.parametrize("fault", ["before", "after"])
def test_taking_back_with_unknown_outcome_is_finished_later(out: str, storage: Storage, fault: str) -> None:
    sink = FileSink(out)
    publish(sink, storage, committer(sink, storage), 1, 2)
    faulty: Any = Faulty(LocalStorage(out), **{fault: "_log/0"})
    driver = FileCommitter(sink, committer_context(storage), faulty)
    if fault == "before":
        with pytest.raises(StorageError, match="no answer"):
            driver.roll_back(Epoch(1), Epoch(3))
        assert shown(out) == [1, 2]
    else:
        driver.roll_back(Epoch(1), Epoch(3))
    committer(sink, storage).roll_back(Epoch(1), Epoch(3))  # type: ignore[attr-defined]
    assert shown(out) == [1]


# --- against a model --------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """What must be seen: every state is written out, at every epoch."""

    shown: list[int] = field(default_factory=list)
    held: list[int] | None = None
    lines: dict[int, list[int]] = field(default_factory=lambda: {0: []})
    newest: int = 0

    def act(self, action: str, epoch: int, to: int) -> None:
        if action == "publish":
            (self.shown if self.held is None else self.held).append(epoch)
        elif action == "back":
            self.shown, self.held = list(self._line(to)), None
        elif action == "repair":
            self.held = list(self._line(to))
        elif self.held is not None:
            self.shown, self.held = self.held, None
        self.newest = epoch
        self.lines[epoch] = list(self.shown if self.held is None else self.held)

    def _line(self, to: int) -> list[int]:
        return self.lines[max(epoch for epoch in self.lines if epoch <= to)]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "publish", "publish", "back", "repair", "switch"]),
        st.integers(1, 3),
        st.floats(0, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@given(ACTIONS, st.lists(st.booleans(), max_size=14))
def test_readers_see_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, float, bool]], looks: list[bool]
) -> None:
    folder = tmp_path_factory.mktemp("model")
    out, storage = str(folder / "out"), LocalStorage(folder / "job")
    sink, model = FileSink(out, tidy=True), Model()
    driver: Any = committer(sink, storage)
    follower = Drive(FileSource(out, watch=1.0, lanes=1, on_taken_back="continue"), context(folder / "reader", 1))
    strict = Drive(FileSource(out, watch=1.0, lanes=1), context(folder / "strict", 1))
    read: list[int] = []
    for number, (action, step, share, crashes) in enumerate(actions):
        epoch = model.newest + step
        to = int(share * model.newest)
        if crashes:
            driver = committer(sink, storage)
        if action == "publish":
            publish(sink, storage, driver, epoch)
        elif action == "back":
            driver.roll_back(Epoch(to), Epoch(epoch))
        elif action == "repair":
            driver.begin_repair(Epoch(to), Epoch(epoch))
        else:
            driver.finish_repair(Epoch(epoch))
        model.act(action, epoch, to)
        assert shown(out) == model.shown
        assert driver.repairing() == (model.held is not None)
        assert sorted(data_copies(out)) == sorted(model.shown)
        if number < len(looks) and looks[number]:
            read = look(strict, follower, model.shown, read)
    look(strict, follower, model.shown, read)


def data_copies(out: str) -> list[int]:
    return [int(os.path.basename(listed.path).split("-")[1]) for listed in LocalStorage(out).list("published")]


def look(strict: Drive, follower: Drive, expected: list[int], read: list[int]) -> list[int]:
    """A source that may fail does so when what it has read is not the beginning of what is shown; another reads the rest."""
    strict.now_ms += 2000
    follower.now_ms += 2000
    if expected[: len(read)] == read:
        before = len(strict.read["0"])
        strict.step()
        assert [row["value"] for row in strict.read["0"][before:]] == expected[len(read) :]
    else:
        with pytest.raises(SourceError, match="has taken back what was published after epoch"):
            strict.plan()
    before = len(follower.read["0"])
    follower.step()
    new = [row["value"] for row in follower.read["0"][before:]]
    common = next((i for i, (a, b) in enumerate(zip(read, expected, strict=False)) if a != b), min(len(read), len(expected)))
    assert new == expected[common:]
    strict.position = follower.position
    return list(expected)


# --- sources ----------------------------------------------------------------------------------------------------------------


def test_a_source_that_has_read_what_is_taken_back_stops(out: str, tmp_path: Path, storage: Storage) -> None:
    sink = FileSink(out)
    driver: Any = committer(sink, storage)
    publish(sink, storage, driver, 1, 2, 3)
    drive = Drive(FileSource(out, watch=1.0, lanes=1), context(tmp_path / "job", 1))
    drive.step(Limits(records=2, bytes=1 << 20))
    before = json.loads(json.dumps(drive.position))
    drive.step()
    driver.roll_back(Epoch(2), Epoch(4))
    publish(sink, storage, driver, 5)
    drive.now_ms += 2000
    with pytest.raises(SourceError, match="published after epoch 2") as refused:
        drive.step()
    assert "read it up to epoch 3" in str(refused.value)
    drive.position = before
    drive.crash()
    for _ in range(5):
        drive.step(Limits(records=1, bytes=1))
    assert [row["value"] for row in drive.read["0"]] == [1, 2, 3, 5]


def test_what_waits_to_be_read_is_dropped_when_taken_back(out: str, tmp_path: Path, storage: Storage) -> None:
    """Two lanes: files are assigned ahead of being read."""
    sink = FileSink(out)
    driver: Any = committer(sink, storage)
    driver.commit(Epoch(1), [stage(sink, storage, 1, [1] * 1000)])
    publish(sink, storage, driver, 2, 3, 4, 5)
    source = FileSource(out, watch=1.0, lanes=2, on_taken_back="continue")
    drive = Drive(source, context(tmp_path / "job", 2))
    drive.step(Limits(records=10, bytes=1 << 20))
    assert sum(map(len, drive.position["queues"])) > 1
    driver.roll_back(Epoch(1), Epoch(6))
    publish(sink, storage, driver, 7)
    for _ in range(5):
        drive.now_ms += 2000
        drive.step()
    values = [row["value"] for row in drive.all]
    assert values.count(1) == 1000
    assert 7 in values
    assert 3 not in values


def test_positions_of_files_are_compared(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("x\n" * (100 if number == 0 else 3))
    drive = Drive(FileSource(str(tmp_path), lanes=2), context(tmp_path / "job", 2))
    assert isinstance(drive.enumerator, ComparesPositions)
    seen: list[tuple[Any, set[tuple[str, int]]]] = [(None, set())]
    done: set[tuple[str, int]] = set()
    for most in (3, 5, 8, 4, 9, 60, 200, 200):
        planned = drive.plan(Limits(records=most, bytes=1 << 20))
        for split in planned.splits:
            for path, start, stop, _ in split.what:
                done = done | {(path, at) for at in range(start, stop)}
        drive.commit(planned)
        seen.append((drive.position, done))
    for position, read in seen:
        for goal, there in seen:
            reached = drive.enumerator.reached(position, goal)
            assert not reached or there <= read
            if position is not None and goal is not None:
                assert reached == (there <= read)


# --- what sinks can do --------------------------------------------------------------------------------------------------------


def test_what_each_sink_can_do(out: str, tmp_path: Path, storage: Storage) -> None:
    files = committer(FileSink(out), storage)
    table: Any = committer(SqliteSink(str(tmp_path / "rooms.db"), "rooms", ["room"]), storage)
    shelf: Any = committer(ShelfSink("shelf"), storage)
    assert isinstance(files, Repairs)
    for other in (table, shelf):
        can = [protocol for protocol in (TellsPublished, Fences, RollsBack) if isinstance(other, protocol)]
        assert can == [TellsPublished, Fences]


def test_a_fenced_table_takes_nothing_older(tmp_path: Path, storage: Storage) -> None:
    sink = SqliteSink(str(tmp_path / "rooms.db"), "rooms", ["room"])
    late: Any = committer(sink, storage)
    assert late.published_after(Epoch(0)).epochs == 0
    late.commit(Epoch(1), [stage(sink, storage, 1, [("one",)])])
    staged = [stage(sink, storage, 2, [("two",)])]
    driver: Any = committer(sink, storage)
    told = driver.published_after(Epoch(0))
    assert (told.newest, told.epochs) == (1, None)
    driver.fence(Epoch(3))
    driver.fence(Epoch(3))
    late.commit(Epoch(2), staged)
    driver.commit(Epoch(4), [stage(sink, storage, 4, [("four",)])])

    with sqlite3.connect(sink.path) as database:
        assert database.execute("SELECT room FROM rooms").fetchall() == [("one",), ("four",)]


# --- the format ---------------------------------------------------------------------------------------------------------------


def test_every_damage_of_an_entry_is_noticed(out: str, storage: Storage) -> None:
    sink = FileSink(out)
    publish(sink, storage, committer(sink, storage), 1, 2)
    path = Path(out, "_log", f"{2:020d}.json")
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in (1, 4, 64):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            with pytest.raises(CorruptFileError):
                newest_entry(LocalStorage(out))
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptFileError):
            newest_entry(LocalStorage(out))


def test_entries_of_the_first_version_are_read() -> None:
    old = b'{"version":1,"epoch":7,"job":"j","sink":"s","files":[{"path":"data/a","rows":1,"bytes":2}]}'
    entry = decode_entry(old, "old")
    assert view_after(3, entry) == views.everything(3)
    assert view_after(0, None).shown == ()
    new = LogEntry(2, 8, "j", "s", kind="back", to=7, shown=((1, 2), (5, 6)))
    assert decode_entry(encode_entry(new), "new") == new
    with pytest.raises(CorruptFileError, match="version 3"):
        decode_entry(old.replace(b'"version":1', b'"version":3'), "future")
