from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state.long_keys import KEPT, STORED
from penstock.state.store import Block, LocalStore, StoreBehindError, open_stores
from penstock.state.store_snapshot import StoreBrokenError

spawn = multiprocessing.get_context("spawn")
Entries = list[tuple[bytes, bytes | None]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    store = LocalStore.open(str(tmp_path / "store"))
    yield store
    store.close()


def _content(store: LocalStore) -> dict[bytes, bytes]:
    with store.snapshot() as snapshot:
        return dict(snapshot.range(b"", None))


def _key(number: int) -> bytes:
    return b"\0\1\0\1" + number.to_bytes(8, "big")


HEAD = b"\0\1\0\1"
LONG = HEAD + b"x" * (KEPT - 6)
short_keys = st.builds(lambda k: b"\0\1\0" + k, st.binary(min_size=1, max_size=3))
tails = st.sampled_from([0, 1, 2, 5, 30, 37, 38, 60, 700])
long_keys = st.builds(lambda a, n, b: LONG + a + b"y" * n + b, st.binary(max_size=6), tails, st.binary(max_size=2))
look_alikes = st.builds(lambda b: (HEAD + b"z" * KEPT)[:KEPT] + b"\xc1" + b * 32, st.sampled_from([b"a", b"b"]))
any_keys = short_keys | long_keys | look_alikes
epochs = st.lists(st.dictionaries(any_keys, st.none() | st.binary(max_size=9), max_size=12), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
@given(epochs, st.lists(any_keys | st.builds(lambda k, n: k[:n], any_keys, st.integers(0, 600)), max_size=6))
def test_it_is_a_sorted_dict(tmp_path: Path, deltas: list[dict[bytes, bytes | None]], probes: list[bytes]) -> None:
    store = LocalStore.open(tempfile.mkdtemp(dir=tmp_path))
    model: dict[bytes, bytes] = {}
    after = None
    for number, delta in enumerate(deltas):
        assert store.apply_entries(f"d{number}", after, sorted(delta.items()))
        after = f"d{number}"
        model.update({k: v for k, v in delta.items() if v is not None})
        for key in [k for k, v in delta.items() if v is None]:
            model.pop(key, None)
    assert store.applied() == after
    assert store.entries() == len(model)
    with store.snapshot() as snapshot:
        assert snapshot.applied == after
        assert list(snapshot.range(b"", None)) == sorted(model.items())
        for probe in [*probes, *model]:
            if len(probe) >= 4:
                assert snapshot.get(probe) == model.get(probe)
            assert list(snapshot.scan(probe)) == sorted((k, v) for k, v in model.items() if k.startswith(probe))
            for other in probes:
                assert list(snapshot.range(probe, other)) == sorted((k, v) for k, v in model.items() if probe <= k < other)
    store.close()


def test_a_key_that_looks_like_a_long_one(store: LocalStore) -> None:
    key = (HEAD + b"z" * KEPT)[:KEPT] + b"\xc1" + b"a" * 32
    assert len(key) == STORED
    store.apply_entries("d", None, [(key, b"value")])
    assert _content(store) == {key: b"value"}


def test_a_file_is_applied_once_and_in_order(store: LocalStore) -> None:
    assert store.apply_entries("a", None, [(_key(1), b"1")])
    assert not store.apply_entries("a", None, [(_key(1), b"2")])
    with pytest.raises(StoreBehindError, match="c follows b, but the local store is at a"):
        store.apply_entries("c", "b", [(_key(1), b"3")])
    with pytest.raises(StoreBehindError):
        store.apply_entries("b", None, [])
    assert _content(store) == {_key(1): b"1"}
    assert store.apply_entries("b", "a", [])
    assert store.applied() == "b"


def test_a_failed_apply_has_no_effect(store: LocalStore) -> None:
    def broken() -> Iterator[Block]:
        yield [_key(1)], [b"1"]
        raise StateError("damaged")

    with pytest.raises(StateError, match="damaged"):
        store.apply("a", None, broken())
    with pytest.raises(StateError, match="not sorted"):
        store.apply("a", None, [([_key(2), _key(1)], [b"", b""])])
    assert (store.applied(), store.entries()) == (None, 0)


def test_a_snapshot_does_not_move(store: LocalStore) -> None:
    store.apply_entries("a", None, [(_key(1), b"1")])
    with store.snapshot() as snapshot:
        store.apply_entries("b", "a", [(_key(1), b"2"), (_key(2), b"2")])
        assert (snapshot.applied, snapshot.get(_key(1)), snapshot.get(_key(2))) == ("a", b"1", None)
    assert _content(store) == {_key(1): b"2", _key(2): b"2"}


@pytest.mark.parametrize("once", [False, True])
def test_the_map_grows(tmp_path: Path, once: bool) -> None:
    store = LocalStore.open(str(tmp_path / "s"), map_size=1 << 16)
    blocks: list[Block] = [([_key(b * 1000 + n) for n in range(1000)], [os.urandom(100)] * 1000) for b in range(10)]
    assert store.apply("a", None, iter(blocks) if once else blocks)
    assert store.map_size() >= 1 << 20
    assert len(_content(store)) == 10_000
    store.close()


def test_growing_waits_for_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore.open(str(tmp_path / "s"), map_size=1 << 16)
    large: Entries = [(_key(n), bytes(100)) for n in range(2000)]
    monkeypatch.setattr(LocalStore, "patience_s", 0.05)
    with store.snapshot(), pytest.raises(StateError, match="must grow"):
        store.apply_entries("a", None, large)
    monkeypatch.setattr(LocalStore, "patience_s", 10.0)
    snapshot = store.snapshot()
    threading.Timer(0.2, snapshot.close).start()
    assert store.apply_entries("a", None, large)
    store.close()


def _in_child(target: Callable[..., None], *args: Any) -> multiprocessing.process.BaseProcess:
    process = spawn.Process(target=target, args=args)
    process.start()
    return process


def _fill(path: str) -> None:
    LocalStore.open(path, map_size=1 << 16).apply_entries("b", "a", [(_key(n), bytes(100)) for n in range(5000)])


def test_another_process_may_grow_the_map(tmp_path: Path) -> None:
    store = LocalStore.open(str(tmp_path / "s"), map_size=1 << 16)
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

    LocalStore.open(path).apply("b", "a", blocks())


def test_a_kill_in_mid_apply_leaves_the_old_content(store: LocalStore) -> None:
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
    store = LocalStore.open(path)
    while True:
        number = int(store.applied() or "0")
        store.apply_entries(str(number + 1), store.applied(), [(_key(n), str(number + 1).encode()) for n in range(500)])


def test_kills_at_any_time_leave_one_epoch(store: LocalStore) -> None:
    for _ in range(3):
        before = int(store.applied() or "0")
        child = _in_child(_apply_for_ever, store.path)
        while int(store.applied() or "0") < before + 3:
            time.sleep(0.005)
        time.sleep(random.random() / 50)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        with store.snapshot() as snapshot:
            values = {value for _, value in snapshot.scan(HEAD)}
            assert values == {str(snapshot.applied).encode()}


def _read_and_hang(path: str, ready: Any) -> None:
    snapshot = LocalStore.open(path).snapshot()
    ready.set()
    time.sleep(60)
    snapshot.close()


def test_a_killed_reader_does_not_pin_pages(store: LocalStore) -> None:
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


def test_it_is_open_once_in_a_process(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    os.symlink(tmp_path, tmp_path.parent / f"{tmp_path.name}-link")
    store = LocalStore.open(path)
    assert LocalStore.open(str(tmp_path.parent / f"{tmp_path.name}-link" / "s")) is store
    assert store in open_stores()
    store.close()
    store.close()
    assert store not in open_stores()
    with pytest.raises(StateError, match="is closed"):
        store.snapshot()
    assert LocalStore.open(path) is not store
    LocalStore.open(path).close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_opens_its_own(store: LocalStore) -> None:
    store.apply_entries("a", None, [(_key(1), b"1")])
    store.snapshot().close()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                store.applied()
            except StateError:
                own = LocalStore.open(store.path)
                code = 0 if own is not store and own.applied() == "a" and own.apply_entries("b", "a", [(_key(1), b"2")]) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _content(store) == {_key(1): b"2"}
    assert store.apply_entries("c", "b", [(_key(1), b"3")])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_does_not_end_the_snapshots_of_its_parent(store: LocalStore) -> None:
    store.apply_entries("a", None, [(_key(n), b"old") for n in range(1000)])
    with store.snapshot() as snapshot:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                snapshot.close()
                LocalStore.open(store.path)
            except StoreBrokenError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for number in range(5):
            store.apply_entries(str(number), store.applied(), [(_key(n), b"new%d" % number) for n in range(1000)])
        assert {value for _, value in snapshot.scan(HEAD)} == {b"old"}
    with pytest.raises(StateError, match="closed snapshot"):
        snapshot.get(_key(1))
