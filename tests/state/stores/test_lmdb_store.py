"""What LMDB's store promises beyond what every store does: many processes, a map that grows."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.store import Block, Entries, StoreBrokenError

spawn = multiprocessing.get_context("spawn")
HEAD = b"\0\1\0\1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    store = LmdbStore.open(str(tmp_path / "store"))
    yield store
    store.close()


def _content(store: LmdbStore) -> dict[bytes, bytes]:
    with store.view() as view:
        return dict(view.range(b"", None))


def _key(number: int) -> bytes:
    return HEAD + number.to_bytes(8, "big")


@pytest.mark.parametrize("once", [False, True])
def test_the_map_grows(tmp_path: Path, once: bool) -> None:
    store = LmdbStore.open(str(tmp_path / "s"), map_size=1 << 16)
    blocks: list[Block] = [([_key(b * 1000 + n) for n in range(1000)], [os.urandom(100)] * 1000) for b in range(10)]
    assert store.apply("a", None, iter(blocks) if once else blocks)
    assert store.map_size() >= 1 << 20
    assert len(_content(store)) == 10_000
    store.close()


def test_growing_waits_for_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LmdbStore.open(str(tmp_path / "s"), map_size=1 << 16)
    large: Entries = [(_key(n), bytes(100)) for n in range(2000)]
    monkeypatch.setattr(LmdbStore, "patience_s", 0.05)
    with store.view(), pytest.raises(StateError, match="must grow"):
        store.apply_entries("a", None, large)
    monkeypatch.setattr(LmdbStore, "patience_s", 10.0)
    view = store.view()
    threading.Timer(0.2, view.close).start()
    assert store.apply_entries("a", None, large)
    store.close()


def _in_child(target: Callable[..., None], *args: Any) -> multiprocessing.process.BaseProcess:
    process = spawn.Process(target=target, args=args)
    process.start()
    return process


def _fill(path: str) -> None:
    LmdbStore.open(path, map_size=1 << 16).apply_entries("b", "a", [(_key(n), bytes(100)) for n in range(5000)])


def test_another_process_may_grow_the_map(tmp_path: Path) -> None:
    store = LmdbStore.open(str(tmp_path / "s"), map_size=1 << 16)
    store.apply_entries("a", None, [(_key(1), b"1")])
    child = _in_child(_fill, store.path)
    child.join()
    assert child.exitcode == 0
    assert len(_content(store)) == 5000
    assert store.apply_entries("c", "b", [(_key(1), None)])
    assert store.entries() == 4999
    store.close()


def _apply_and_hang(path: str, ready: Any) -> None:
    def blocks() -> Iterator[Block]:
        yield [_key(n) for n in range(3000)], [b"new"] * 3000
        ready.set()
        time.sleep(60)

    LmdbStore.open(path).apply("b", "a", blocks())


def test_a_kill_in_mid_apply_leaves_the_old_content(store: LmdbStore) -> None:
    store.apply_entries("a", None, [(_key(n), b"old") for n in range(3000)])
    ready = spawn.Event()
    child = _in_child(_apply_and_hang, store.path, ready)
    assert ready.wait(30)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert (store.applied(), set(_content(store).values())) == ("a", {b"old"})
    assert store.apply_entries("b", "a", [(_key(n), b"new") for n in range(3000)])
    assert set(_content(store).values()) == {b"new"}


def _apply_for_ever(path: str) -> None:
    store = LmdbStore.open(path)
    while True:
        number = int(store.applied() or "0")
        store.apply_entries(str(number + 1), store.applied(), [(_key(n), str(number + 1).encode()) for n in range(500)])


def test_kills_at_any_time_leave_one_epoch(store: LmdbStore) -> None:
    for _ in range(3):
        before = int(store.applied() or "0")
        child = _in_child(_apply_for_ever, store.path)
        while int(store.applied() or "0") < before + 3:
            time.sleep(0.005)
        time.sleep(random.random() / 50)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        with store.view() as view:
            values = {value for _, value in view.scan(HEAD)}
            assert values == {str(view.applied).encode()}


def _read_and_hang(path: str, ready: Any) -> None:
    view = LmdbStore.open(path).view()
    ready.set()
    time.sleep(60)
    view.close()


def test_a_killed_reader_does_not_pin_pages(store: LmdbStore) -> None:
    def rounds(count: int) -> int:
        for _ in range(count):
            applied = store.applied()
            store.apply_entries(str(int(applied or "0") + 1), applied, [(_key(n), os.urandom(50)) for n in range(1000)])
        return store.bytes_used()

    settled = rounds(10)
    ready = spawn.Event()
    child = _in_child(_read_and_hang, store.path, ready)
    assert ready.wait(30)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert rounds(40) < 2 * settled


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_opens_its_own(store: LmdbStore) -> None:
    store.apply_entries("a", None, [(_key(1), b"1")])
    store.view().close()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                store.applied()
            except StateError:
                own = LmdbStore.open(store.path)
                code = 0 if own is not store and own.applied() == "a" and own.apply_entries("b", "a", [(_key(1), b"2")]) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _content(store) == {_key(1): b"2"}
    assert store.apply_entries("c", "b", [(_key(1), b"3")])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_does_not_end_the_views_of_its_parent(store: LmdbStore) -> None:
    store.apply_entries("a", None, [(_key(n), b"old") for n in range(1000)])
    with store.view() as view:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                view.close()
                LmdbStore.open(store.path)
            except StoreBrokenError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for number in range(5):
            store.apply_entries(str(number), store.applied(), [(_key(n), b"new%d" % number) for n in range(1000)])
        assert {value for _, value in view.scan(HEAD)} == {b"old"}
    with pytest.raises(StateError, match="closed view"):
        view.get(_key(1))
