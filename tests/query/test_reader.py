"""A reader beside a job, or with stores of its own, against the files of each epoch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamEnvironment
from penstock.epochs.history import EpochRecord
from penstock.ids import Epoch
from penstock.jobs.terms import open_job
from penstock.query import Closed, EmbeddedReader
from penstock.query.deltas import Tail
from penstock.query.errors import EpochGoneError, NotHereError, RestoringError
from penstock.query.reader import StateReader
from penstock.query.reading import Reading, from_files
from penstock.storage import LocalStorage
from penstock.testing import Cut, ScriptedSource
from penstock.testing.running import close_stores
from tests.laws.trying import Crash, Interrupted, crash, program, run
from tests.snapshots.shops import Ledger, orders
from tests.snapshots.shops import program as shops

Content = dict[tuple[int, int], list[tuple[bytes, bytes]]]


def content(reading: Reading) -> Content:
    """All entries."""
    numbers = [number for stage in reading.manifest.state.stages for number in stage]
    found = {(number, group): list(reading.scan(number, group)) for number in numbers for group in reading.groups}
    return {place: entries for place, entries in found.items() if entries}


class Looking:
    """Reads what is committed each time an epoch is, with readers of several kinds."""

    def __init__(self, storage: str, readers: list[StateReader]) -> None:
        self.storage = LocalStorage(storage)
        self.readers = readers
        self.seen: dict[StateReader, list[int]] = {}
        self.sizes: list[int] = []
        self.beside = 0
        """How often a store of the job's was read."""

    def __call__(self, record: EpochRecord) -> None:
        for reader in self.readers:
            if record.epoch % 3 and reader.follows:
                reader.follow()
            self.look(reader)

    def look(self, reader: StateReader) -> None:
        with reader.reading() as reading:
            expected = content(from_files(self.storage, reading.manifest))
            here = {place: entries for place, entries in expected.items() if place[1] in reading.groups}
            assert content(reading) == here
            self.seen.setdefault(reader, []).append(reading.epoch)
            self.beside += (
                any(isinstance(part, Tail) and part.has_store for part in reading.parts.values()) and not reader.replica
            )
            self.sizes.append(len(here))

    def check(self) -> None:
        assert max(self.sizes) > 0
        for epochs in self.seen.values():
            assert epochs == sorted(epochs)


@given(
    cut=st.integers(5, 40),
    parallelism=st.integers(1, 3),
    store=st.sampled_from(["lmdb", "memory"]),
    compact_after=st.integers(2, 4),
    half=st.booleans(),
)
def test_what_is_read_is_one_epoch(cut: int, parallelism: int, store: str, compact_after: int, half: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage, local = f"{folder}/storage", f"{folder}/local"
        env = StreamEnvironment(
            "numbers",
            executor="inline",
            storage=storage,
            local_dir=local,
            parallelism=parallelism,
            state_store=store,
            compact_after=compact_after,
            keep=3,
            max_parallelism=8,
        )
        numbers = env.from_source(ScriptedSource(list(range(60)), cut=cut))
        numbers.map(lambda n: (n % 7, n)).key_by(0).sum(1, name="sums").print()
        looking = Looking(storage, [])

        def listener(record: EpochRecord) -> None:
            if not looking.readers:
                groups = range(4, 8) if half else range(4)
                looking.readers = [
                    StateReader(storage, local_dir=local, look_every_s=0),
                    StateReader(storage, local_dir=f"{folder}/own", replica=True, look_every_s=0),
                    StateReader(storage, local_dir=f"{folder}/part", key_groups=groups, replica=True, look_every_s=0),
                ]
            looking(record)

        env.execute(listener=listener, until_idle=True)
        looking.check()
        assert store == "memory" or looking.beside
        for reader in looking.readers:
            reader.close()
        close_stores(folder)


def test_every_kind_of_state(tmp_path: Path) -> None:
    script: list[Any] = []
    for epoch in range(4):
        script += [*orders(epoch * 50, 50), Cut()]
    storage, local = str(tmp_path / "job"), str(tmp_path / "local")
    env = shops(ScriptedSource(script), tmp_path / "out", storage=storage, local_dir=local)
    looking = Looking(storage, [])

    def listener(record: EpochRecord) -> None:
        looking.readers = looking.readers or [
            StateReader(storage, local_dir=local, look_every_s=0),
            StateReader(storage, local_dir=str(tmp_path / "own"), replica=True, look_every_s=0),
        ]
        looking(record)

    env.execute(listener=listener, until_idle=True)
    looking.check()
    assert max(looking.sizes) > 10


def reader_of(folder: Path, **options: Any) -> StateReader:
    return StateReader(str(folder / "storage"), local_dir=str(folder / "local"), look_every_s=0, **options)


@pytest.mark.parametrize("replica", [False, True])
def test_a_job_that_is_rescaled_and_goes_back(tmp_path: Path, replica: bool) -> None:
    def run_some(epochs: int, **settings: Any) -> None:
        with pytest.raises(Crash):
            run(tmp_path, Interrupted(epochs, crash), keep=10, **settings)

    run_some(7)
    looking = Looking(str(tmp_path / "storage"), [])
    with reader_of(tmp_path, replica=replica) as reader:

        def look() -> int:
            if reader.follows:
                reader.follow()
            looking.look(reader)
            return looking.seen[reader][-1]

        first = look()
        run_some(5, parallelism=3)
        second = look()
        run_some(3, restore_from=f"{tmp_path / 'storage'}@{second - 1}", repeat_output=True, parallelism=3)
        third = look()
        assert first < second < third
        with pytest.raises(EpochGoneError):  # the job went back behind it
            reader.at(Epoch(second))
        reader.at(Epoch(second - 1)).close()
        run(tmp_path, parallelism=3)
        assert look() > third
        looking.check()


def test_a_store_that_is_left_behind_is_read_with_its_tail(tmp_path: Path) -> None:
    """Nobody opens the job's stores after its last epochs: what they lack is read from the files."""
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(7, crash))
    close_stores(str(tmp_path))
    with reader_of(tmp_path) as reader, reader.reading() as reading:
        assert not reader.follows
        assert content(reading) == content(from_files(reader.storage, reading.manifest))


def test_a_job_that_has_committed_nothing(tmp_path: Path) -> None:
    open_job(LocalStorage(str(tmp_path / "storage")), "numbers", 128, otherwise=128)
    with reader_of(tmp_path) as reader, pytest.raises(RestoringError):
        reader.reading()


def test_a_key_group_that_is_elsewhere(tmp_path: Path) -> None:
    program(tmp_path, max_parallelism=8).execute()
    with reader_of(tmp_path, replica=True, key_groups=range(4)) as reader, reader.reading() as reading:
        number = next(int(n) for n, info in reading.manifest.state.ids.items() if info.name == "seen")
        list(reading.scan(number, 3))
        with pytest.raises(NotHereError, match="key group 5 is not here"):
            list(reading.scan(number, 5))


def test_a_reading_outlives_the_next_one(tmp_path: Path) -> None:
    run(tmp_path)
    with reader_of(tmp_path) as reader:
        first = reader.reading()
        before = content(first)
        reader.refresh()
        reader.rest()
        assert content(first) == before
        first.close()


def test_windows_are_open_or_closed_and_never_both(tmp_path: Path) -> None:
    """At every epoch the windows of a key hold all of its orders, each once."""
    script: list[Any] = []
    for epoch in range(8):
        script += [*orders(epoch * 200, 200), Cut()]
    storage, local = str(tmp_path / "job"), str(tmp_path / "local")
    env = shops(ScriptedSource(script), tmp_path / "out", storage=storage, local_dir=local, keep=100)
    seen: list[tuple[int, int]] = []

    def listener(record: EpochRecord) -> None:
        with EmbeddedReader(storage, local_dir=local, look_every_s=0) as reader:
            found = reader.windows("hourly", "slices", "shop-3", Closed(folder=str(tmp_path / "out" / "hourly"), key="shop"))
            ends = [window.end for window in found.value]
            assert ends == sorted(set(ends))
            counted = sum(window.value["count" if window.closed else "count()"] for window in found.value)
            whole = reader.get("ledger", "orders", "shop-3", Ledger.orders, at=found.epoch)
            assert counted == whole.value
            seen.append((sum(window.closed for window in found.value), len(found.value)))

    env.execute(listener=listener, until_idle=True)
    assert max(closed for closed, _ in seen) >= 2
    assert any(closed < every for closed, every in seen)
