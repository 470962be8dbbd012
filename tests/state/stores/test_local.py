from __future__ import annotations

import multiprocessing
import os
import random
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import CorruptFileError, StateError
from penstock.state.entries.store_keys import value_prefix
from penstock.state.files.durable import FileIdentity, FileRef, read_entries, write_base, write_delta
from penstock.state.stores import local, memory_store
from penstock.state.stores.directories import remove_stale
from penstock.state.stores.local import Origin, store_path
from penstock.state.stores.store import LocalStore, StoreKind, open_stores
from penstock.storage import LocalStorage
from tests.state.kinds import KINDS, needs_rocksdb

spawn = multiprocessing.get_context("spawn")
WHO = FileIdentity(job="j", epoch=1, stage="s", partition=0, attempt="a")
Model = dict[bytes, bytes]


class Job:
    """Files of a partition, and what state they make."""

    def __init__(self, folder: str) -> None:
        self.storage = LocalStorage(folder)
        self.chain: list[FileRef] = []
        self.models: list[Model] = [{}]
        self.reads: list[str] = []

    def epoch(self, changes: dict[bytes, bytes | None]) -> None:
        name = f"{len(self.models)}-{random.getrandbits(40)}.delta"
        self.chain.append(write_delta(self.storage, name, sorted(changes.items()), WHO))
        model = {**self.models[-1], **changes}
        self.models.append({k: v for k, v in model.items() if v is not None})

    def compact(self, upto: int) -> None:
        """Merge the first files of the chain into a base."""
        covers = self.chain[upto - 1].name
        base = write_base(self.storage, f"base-{covers}", sorted(self.models[upto].items()), WHO, covers=covers)
        self.chain[:upto] = [base]

    def read(self, ref: FileRef) -> Any:
        self.reads.append(ref.name)
        return read_entries(self.storage, ref)


def _key(number: int) -> bytes:
    return value_prefix(number % 16, 1) + number.to_bytes(4, "big")


def _content(store: LocalStore) -> Model:
    with store.view() as view:
        return dict(view.range(b"", None))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job = Job(str(tmp_path / "files"))
    job.epoch({_key(n): b"1" for n in range(50)})
    job.epoch({_key(n): b"2" if n % 2 else None for n in range(70)})
    job.epoch({_key(100): b"3"})
    return job


@pytest.fixture(params=KINDS)
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    path = store_path(str(tmp_path / "local"), "job", "fp", 2, "stage", 0, request.param)
    yield path
    for store in open_stores():
        if store.path.startswith(os.path.realpath(tmp_path)):
            store.close()


def kind_of(path: str) -> StoreKind:
    kind: StoreKind = Path(path).parent.name.rpartition("-")[2]  # type: ignore[assignment]
    return kind


def open_at(path: str, chain: list[FileRef], read: Any, cached: Any = lambda name: None) -> tuple[LocalStore, Origin]:
    """`local.open_at`, for the kind of store that the path is of."""
    return local.open_at(path, chain, read, cached, kind=kind_of(path))


on_disk = pytest.mark.parametrize("path", ["lmdb", pytest.param("rocksdb", marks=needs_rocksdb)], indirect=True)
in_memory = pytest.mark.parametrize("path", ["memory"], indirect=True)


def test_an_empty_chain_is_an_empty_store(path: str, job: Job) -> None:
    store, origin = open_at(path, [], job.read)
    assert (origin, store.applied(), _content(store)) == ("local", None, {})
    again, origin = open_at(path, job.chain, job.read)
    assert (again, origin, _content(again)) == (store, "local", job.models[-1])


def test_it_is_rebuilt_then_caught_up_then_local(path: str, job: Job) -> None:
    store, origin = open_at(path, job.chain[:1], job.read)
    assert (origin, _content(store)) == ("rebuilt", job.models[1])
    job.reads.clear()
    same, origin = open_at(path, job.chain, job.read)
    assert (same, origin, _content(same), job.reads) == (store, "local", job.models[-1], [ref.name for ref in job.chain[1:]])
    job.reads.clear()
    assert open_at(path, job.chain, job.read) == (store, "local")
    assert job.reads == []


def test_deltas_known_in_memory_are_not_read(path: str, job: Job) -> None:
    open_at(path, job.chain[:2], job.read)
    job.reads.clear()
    known = {job.chain[2].name: [(_key(100), b"3")]}
    store, _ = open_at(path, job.chain, job.read, lambda ref: known.get(ref.name))
    assert (_content(store), job.reads) == (job.models[-1], [])
    job.epoch({_key(1): b"x", _key(2): b"y"})
    limited = msgspec.structs.replace(job.chain[3], lo=0, hi=2)
    store, _ = open_at(path, [*job.chain[:3], limited], job.read, lambda name: pytest.fail("not the whole file is wanted"))
    assert _content(store) == {**job.models[3], _key(1): b"x"}


def test_a_compaction_does_not_cost_the_store(path: str, job: Job) -> None:
    store, _ = open_at(path, job.chain, job.read)
    job.compact(3)
    job.reads.clear()
    assert open_at(path, job.chain, job.read) == (store, "local")
    job.epoch({_key(7): None})
    assert open_at(path, job.chain, job.read) == (store, "local")
    assert (_content(store), job.reads) == (job.models[-1], [job.chain[-1].name])
    elsewhere = store_path(str(Path(path).parents[3] / "elsewhere"), "job", "fp", 2, "stage", 0, kind_of(path))
    fresh, origin = open_at(elsewhere, job.chain, job.read)
    assert (origin, _content(fresh)) == ("rebuilt", job.models[-1])


def test_another_history_is_rebuilt_elsewhere(path: str, job: Job) -> None:
    store, _ = open_at(path, job.chain, job.read)
    job.chain, job.models = job.chain[:1], job.models[:2]
    job.epoch({_key(5): b"other"})
    rebuilt, origin = open_at(path, job.chain, job.read)
    assert origin == "rebuilt"
    assert rebuilt is not store
    assert (rebuilt.path != store.path) == (kind_of(path) != "memory")
    assert _content(rebuilt) == job.models[-1]
    assert kind_of(path) == "memory" or not os.path.exists(store.path)


@on_disk
def test_a_directory_in_use_is_removed_later(path: str, job: Job) -> None:
    store, _ = open_at(path, job.chain, job.read)
    with store.view() as view:
        rebuilt, origin = open_at(path, job.chain[:1], job.read)
        assert (origin, rebuilt is not store, os.path.exists(store.path)) == ("rebuilt", True, True)
        assert remove_stale(path) == 0
        assert dict(view.range(b"", None)) == job.models[-1]
    store.close()
    assert remove_stale(path) == 1
    assert not os.path.exists(store.path)
    assert _content(rebuilt) == job.models[1]


@on_disk
@pytest.mark.parametrize("damage", [b"junk" * 5000, b""])
def test_a_damaged_store_is_rebuilt(path: str, job: Job, damage: bytes) -> None:
    store, _ = open_at(path, job.chain, job.read)
    store.close()
    (Path(store.path) / {"lmdb": "data.mdb", "rocksdb": "CURRENT"}[kind_of(path)]).write_bytes(damage)
    again, _ = open_at(path, job.chain, job.read)
    assert _content(again) == job.models[-1]


@on_disk
def test_a_pointer_to_nowhere_is_ignored(path: str, job: Job) -> None:
    for text in ("data-gone", "../../etc", ""):
        (Path(path) / "current").write_text(text)
        store, origin = open_at(path, job.chain, job.read)
        assert (origin, _content(store)) == ("rebuilt", job.models[-1])


def test_a_damaged_file_is_not_hidden(path: str, job: Job) -> None:
    job.storage.replace(job.chain[1].name, b"junk")
    with pytest.raises(CorruptFileError):
        open_at(path, job.chain, job.read)
    with pytest.raises(CorruptFileError):
        open_at(path, job.chain, job.read)
    assert open_at(path, job.chain[:1], job.read)[0].entries() == len(job.models[1])


def _race(path: str, folder: str, chains: list[list[FileRef]], models: list[Model], barrier: Any) -> None:
    storage = LocalStorage(folder)

    def read(ref: FileRef) -> Any:
        return read_entries(storage, ref)

    for chain, model in zip(chains, models, strict=True):
        barrier.wait()
        store, _ = open_at(path, chain, read)
        with store.view() as view:  # the other process may be a chain ahead; never anything else
            assert view.applied in {c[-1].name for c in chains}
            if view.applied == chain[-1].name:
                assert dict(view.range(b"", None)) == model
        store.rest()


@on_disk
def test_processes_that_open_at_once(path: str, job: Job, tmp_path: Path) -> None:
    for number in range(10):
        job.epoch({_key(n): str(number).encode() for n in range(number, 300)})
    chains = [job.chain[:n] for n in (1, 3, 4, 5, 9, 13)]
    models = [job.models[n] for n in (1, 3, 4, 5, 9, 13)]
    chains.append([*job.chain[:5]])  # and back: another history, for both at once
    models.append(job.models[5])
    barrier = spawn.Barrier(2)
    processes = [spawn.Process(target=_race, args=(path, str(tmp_path / "files"), chains, models, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    store, origin = open_at(path, chains[-1], job.read)
    assert (origin, _content(store)) == ("local", models[-1])
    remove_stale(path)
    assert len([name for name in os.listdir(path) if name.startswith(("data-", "gone-"))]) == 1


def test_paths_are_private_and_distinct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    monkeypatch.setenv("PENSTOCK_LOCAL_DIR", str(root))
    paths = [store_path(None, job, "fp", p, "a/b", n) for job in ("x", "../y") for p in (1, 2) for n in (0, 1)]
    assert len(set(paths)) == 8
    for path in paths:
        assert os.path.realpath(path).startswith(os.path.realpath(root) + os.sep)
    for folder, _, _ in os.walk(root):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StateError, match="another user"):
        store_path(None, "x", "fp", 1, "s", 0)


@in_memory
def test_a_memory_store_leaves_nothing_on_disk(path: str, job: Job) -> None:
    store, _ = open_at(path, job.chain, job.read)
    assert _content(store) == job.models[-1]
    assert os.listdir(path) == []


def test_memory_does_not_grow_with_layouts_and_jobs(tmp_path: Path, job: Job) -> None:
    def stores() -> set[str]:
        found = [store.path for store in open_stores() if store.path.startswith(os.path.realpath(tmp_path))]
        return {"/".join(path.split("/")[-3:]) for path in found}

    def opened(name: str, fingerprint: str, partition: int) -> LocalStore:
        path = store_path(str(tmp_path), name, fingerprint, 2, 1, partition, "memory")
        return local.open_at(path, job.chain, job.read, kind="memory")[0]

    for fingerprint in ("a", "b", "c"):
        for partition in (0, 1):
            opened("job", fingerprint, partition)
    assert stores() == {"job/c-p2-memory/1-0", "job/c-p2-memory/1-1"}
    for number in range(10):
        opened(f"job{number}", "a", 0)
    assert stores() == {f"job{number}/a-p2-memory/1-0" for number in range(10 - memory_store.LAYOUTS, 10)}
    kept = opened("job6", "a", 0)
    with kept.view() as view:  # in use: it stays as long as it is
        for number in range(20, 30):
            opened(f"job{number}", "a", 0)
        assert dict(view.range(b"", None)) == job.models[-1]
    for store in open_stores():
        if store.path.startswith(os.path.realpath(tmp_path)):
            store.close()
