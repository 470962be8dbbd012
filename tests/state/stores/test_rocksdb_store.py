"""What the RocksDB store promises beyond what every store does: one process at a time, no log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocksdict", reason="the package rocksdict is not installed: pip install 'penstock[rocksdb]'")

from penstock.errors import StateError
from penstock.state.stores import rocksdb_store
from penstock.state.stores.rocksdb_store import RocksdbStore
from penstock.state.stores.store import Block, StoreBrokenError

spawn = multiprocessing.get_context("spawn")


def _key(number: int) -> bytes:
    return b"\0\1\0\1" + number.to_bytes(8, "big")


def _content(store: RocksdbStore) -> dict[bytes, bytes]:
    with store.view() as view:
        return dict(view.range(b"", None))


def _hold(path: str, ready: Any) -> None:
    store = RocksdbStore.open(path)
    store.apply_entries("b", "a", [(_key(1), b"2")])
    ready.set()
    time.sleep(60)


def _kill(child: Any) -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def test_what_rests_is_there_for_the_next_process(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    store = RocksdbStore.open(path)
    store.apply_entries("a", None, [(_key(n), b"1") for n in range(1000)])
    with store.view():
        store.rest()
        assert store.applied() == "a"  # somebody reads it here
    store.rest()
    with pytest.raises(StateError, match="is closed"):
        store.applied()
    again = RocksdbStore.open(path)
    assert (again is store, again.applied(), len(_content(again))) == (False, "a", 1000)
    again.close()


def test_a_kill_takes_it_back_to_an_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RocksdbStore, "patience_s", 0.1)
    path = str(tmp_path / "s")
    store = RocksdbStore.open(path)
    store.apply_entries("a", None, [(_key(1), b"1")])
    store.rest()
    ready = spawn.Event()
    child = spawn.Process(target=_hold, args=(path, ready))
    child.start()
    assert ready.wait(30)
    with pytest.raises(StoreBrokenError, match="cannot be opened"):
        RocksdbStore.open(path)  # another process has it
    _kill(child)
    store = RocksdbStore.open(path)
    assert (store.applied(), _content(store)) in [("a", {_key(1): b"1"}), ("b", {_key(1): b"2"})]
    store.close()


def test_a_file_larger_than_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_store, "LARGEST_WRITE", 1000)
    blocks: list[Block] = [([_key(b * 100 + n) for n in range(100)], [b"x" * 50] * 100) for b in range(5)]
    store = RocksdbStore.open(str(tmp_path / "s"))
    assert store.apply("a", None, blocks)
    assert (store.applied(), store.entries(), len(_content(store))) == ("a", 500, 500)
    assert store.apply("b", "a", [(keys, [None] * 100) for keys, _ in blocks[:3]])
    assert (store.applied(), store.entries(), len(_content(store))) == ("b", 200, 200)

    def broken() -> Iterator[Block]:
        yield from blocks
        raise StateError("damaged")

    with pytest.raises(StateError, match="damaged"):
        store.apply("c", "b", broken())
    store.close()
    store = RocksdbStore.open(str(tmp_path / "s"))
    with pytest.raises(StoreBrokenError, match="half filled"):  # never taken for whole
        store.applied()
    store.close()


def test_many_rests_do_not_slow_it_down(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    after = None
    for number in range(30):
        store = RocksdbStore.open(path)
        store.apply_entries(str(number), after, [(_key(n), b"%d" % number) for n in range(200)])
        after = str(number)
        store.rest()
    assert len([name for name in os.listdir(path) if name.endswith(".sst")]) <= 2 * rocksdb_store.TIDY_ABOVE
    store = RocksdbStore.open(path)
    assert set(_content(store).values()) == {b"29"}
    store.close()
