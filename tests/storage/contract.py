"""What every storage must do, whatever is underneath: run by the tests of each."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import threading
import time
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import AlreadyExistsError, NotFoundError, StorageError
from penstock.storage import Storage, open_storage

BIG = bytes(range(256)) * 16_384  # 4 MiB


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [listed.path for listed in storage.list(prefix)]


class StorageContract:
    def test_reads_what_was_created(self, storage: Storage) -> None:
        storage.create("epochs/1.json", b"one")
        storage.create("deep/er/and/deeper", b"", durable=False)
        assert storage.read("epochs/1.json") == b"one"
        assert storage.read("deep/er/and/deeper") == b""
        assert storage.exists("epochs/1.json")
        assert storage.size("epochs/1.json") == 3

    def test_create_is_exclusive(self, storage: Storage) -> None:
        storage.create("a", b"first")
        with pytest.raises(AlreadyExistsError) as caught:
            storage.create("a", b"second")
        assert isinstance(caught.value, FileExistsError)
        assert storage.read("a") == b"first"
        assert paths(storage) == ["a"]

    def test_replace_overwrites(self, storage: Storage) -> None:
        storage.replace("status/now.json", b"one")
        storage.replace("status/now.json", b"two")
        storage.replace("status/now.json", b"three", durable=False)
        assert storage.read("status/now.json") == b"three"
        assert paths(storage) == ["status/now.json"]

    def test_what_is_missing_is_not_found(self, storage: Storage) -> None:
        assert not storage.exists("no/such")
        for attempt in (
            lambda: storage.read("no/such"),
            lambda: storage.size("no/such"),
            lambda: storage.open("no/such"),
            lambda: storage.read_range("no/such", 0, 1),
        ):
            with pytest.raises(NotFoundError, match="no/such"):
                attempt()

    def test_a_folder_is_not_an_object(self, storage: Storage) -> None:
        storage.create("folder/a", b"a")
        assert not storage.exists("folder")
        with pytest.raises(NotFoundError):
            storage.read("folder")

    def test_reads_ranges(self, storage: Storage) -> None:
        storage.create("digits", b"0123456789")
        assert storage.read_range("digits", 0, 3) == b"012"
        assert storage.read_range("digits", 7, 3) == b"789"
        assert storage.read_range("digits", 7, 100) == b"789"
        assert storage.read_range("digits", 10, 5) == b""
        assert storage.read_range("digits", 99, 5) == b""
        assert storage.read_range("digits", 3, 0) == b""

    def test_opens_a_seekable_reader(self, storage: Storage) -> None:
        storage.create("big", BIG)
        with storage.open("big") as file:
            assert file.seekable()
            assert file.read(4) == BIG[:4]
            assert file.seek(-5, io.SEEK_END) == len(BIG) - 5
            assert file.read() == BIG[-5:]
            file.seek(1_000_003)
            assert file.tell() == 1_000_003
            assert file.read(2_000_000) == BIG[1_000_003:3_000_003]
            assert file.read() == BIG[3_000_003:]
            assert file.read(1) == b""

    def test_arrow_reads_and_writes(self, storage: Storage) -> None:
        table = pa.table({"room": ["a", "b"], "temperature": [20.5, 21.0]})
        with storage.writer("tables/rooms.parquet") as file:
            pq.write_table(table, file)
        with storage.open("tables/rooms.parquet") as reader:
            assert pq.read_table(reader).equals(table)

    def test_writer_appears_when_it_ends(self, storage: Storage) -> None:
        with storage.writer("base/1") as file:
            for start in range(0, len(BIG), 1 << 20):
                file.write(BIG[start : start + (1 << 20)])
            assert not storage.exists("base/1")
            assert paths(storage) == []
        assert storage.read("base/1") == BIG

    def test_writer_may_be_closed_early(self, storage: Storage) -> None:
        with storage.writer("closed") as file:
            file.write(b"all of it")
            file.close()
        assert storage.read("closed") == b"all of it"

    def test_writer_is_exclusive(self, storage: Storage) -> None:
        with pytest.raises(AlreadyExistsError), storage.writer("one") as file:
            file.write(b"slow")
            storage.create("one", b"fast")
        assert storage.read("one") == b"fast"
        assert paths(storage) == ["one"]

    def test_writer_that_fails_leaves_nothing(self, storage: Storage) -> None:
        with pytest.raises(ZeroDivisionError), storage.writer("half") as file:
            file.write(BIG)
            raise ZeroDivisionError
        with pytest.raises(KeyboardInterrupt), storage.writer("half") as file:
            raise KeyboardInterrupt
        assert not storage.exists("half")
        assert paths(storage) == []
        assert storage.sweep_temporary(timedelta(0)) == 0

    def test_lists_below_a_folder_sorted(self, storage: Storage) -> None:
        before_ms = time.time() * 1000
        for path in ("b/2", "b-c", "b/10", "a", "b/x/y", "bb/1"):
            storage.create(path, path.encode())
        assert paths(storage) == ["a", "b-c", "b/10", "b/2", "b/x/y", "bb/1"]
        assert paths(storage, "b") == paths(storage, "b/") == ["b/10", "b/2", "b/x/y"]
        assert paths(storage, "none") == []
        assert paths(storage, "a") == []
        listed = next(storage.list("b/x"))
        assert listed.size == 5
        assert abs(listed.modified_ms - before_ms) < 60_000

    def test_lists_more_than_a_page(self, storage: Storage) -> None:
        names = sorted(f"many/{number}" for number in range(30))
        for name in names:
            storage.create(name, b"", durable=False)
        assert paths(storage, "many") == names

    def test_odd_names_survive(self, storage: Storage) -> None:
        names = ["a b", "a%20b", "ä→ß", "k=v&x+y", "dot.", ".hidden", "-"]
        for name in names:
            storage.create(f"odd/{name}", name.encode())
        assert paths(storage, "odd") == sorted(f"odd/{name}" for name in names)
        assert [storage.read(path).decode() for path in paths(storage, "odd")] == sorted(names)

    def test_deletes_and_does_not_mind_what_is_gone(self, storage: Storage) -> None:
        storage.create("x/1", b"")
        storage.create("x/2", b"")
        storage.delete(["x/1", "x/none", "y/none", "x/1"])
        storage.delete([])
        assert paths(storage) == ["x/2"]
        storage.create("x/1", b"again")

    def test_child_is_the_same_storage_below(self, storage: Storage) -> None:
        child = storage.child("jobs").child("rooms/")
        child.create("a/b", b"x")
        assert paths(child) == ["a/b"]
        assert paths(storage) == ["jobs/rooms/a/b"]
        assert storage.read("jobs/rooms/a/b") == b"x"

    @pytest.mark.parametrize(
        "path", ["", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "a//b", "a/", "./a", "a/.tmp-1", "a\\b", "a\0b"]
    )
    def test_refuses_paths_that_lead_elsewhere(self, storage: Storage, path: str) -> None:
        for attempt in (
            lambda: storage.create(path, b""),
            lambda: storage.replace(path, b""),
            lambda: storage.writer(path).__enter__(),
            lambda: storage.read(path),
            lambda: storage.read_range(path, 0, 1),
            lambda: storage.open(path),
            lambda: storage.exists(path),
            lambda: storage.size(path),
            lambda: storage.delete([path]),
        ):
            with pytest.raises(StorageError, match="refused"):
                attempt()
        with pytest.raises(StorageError, match="refused"):
            storage.child("../up")
        with pytest.raises(StorageError, match="refused"):
            storage.list("../up")

    def test_travels(self, storage: Storage) -> None:
        storage.create("a", b"here")
        assert pickle.loads(pickle.dumps(storage)).read("a") == b"here"
        reopened = open_storage(storage.uri)
        assert reopened == storage
        assert reopened.read("a") == b"here"

    def test_one_thread_wins(self, storage: Storage) -> None:
        barrier = threading.Barrier(8)
        won: list[int] = []

        def race(number: int) -> None:
            barrier.wait()
            try:
                storage.create("terms/1", str(number).encode() * 1000)
            except AlreadyExistsError:
                return
            won.append(number)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read("terms/1") == str(won[0]).encode() * 1000
        assert paths(storage) == ["terms/1"]

    def test_one_process_wins(self, storage: Storage) -> None:
        rounds = 20
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(2)
        results = context.Queue()
        racers = [context.Process(target=_race, args=(storage, number, rounds, ready, results)) for number in range(2)]
        for racer in racers:
            racer.start()
        wins = [results.get(timeout=120) for _ in racers]
        for racer in racers:
            racer.join()
        assert sorted(path for won in wins for path in won) == sorted(f"race/{number}" for number in range(rounds))


def _race(
    storage: Storage, number: int, rounds: int, ready: threading.Barrier, results: multiprocessing.Queue[list[str]]
) -> None:
    """In a process of its own: tries to create every path, as its rival does."""
    won = []
    storage.exists("warm")
    for turn in range(rounds):
        path = f"race/{turn}"
        ready.wait(timeout=60)
        try:
            if turn % 2:
                storage.create(path, str(number).encode())
            else:
                with storage.writer(path) as file:
                    file.write(str(number).encode())
        except AlreadyExistsError:
            continue
        won.append(path)
    results.put(won)
