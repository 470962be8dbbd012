"""Law: committed state only. A local store holds what is committed, and one that holds anything else is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.ids import Epoch
from penstock.jobs.manifest import load_manifest
from penstock.runtime import deltas
from penstock.state.files.durable import FileRef
from penstock.state.stores import local
from penstock.state.stores.store import open_stores
from penstock.storage import open_storage
from tests.laws.trying import Crash, Interrupted, breaks, check_exact, crash, run
from tests.state.kinds import KINDS


def check_uncommitted(folder: Path, store: str = "lmdb") -> None:
    """A driver dies when all tasks have run and nothing is committed."""
    for epochs in (2, 3, 2):
        with pytest.raises(Crash):
            run(folder, Interrupted(epochs, crash, after=True), state_store=store)
        _only_committed(folder, store)
    run(folder, state_store=store)
    check_exact(folder)


def _only_committed(folder: Path, store: str) -> None:
    storage = open_storage(folder / "storage")
    newest = max(int(path.stem) for path in (folder / "storage" / "epochs").glob("*.json"))
    committed = {
        name
        for stage in load_manifest(storage, Epoch(newest)).state.chains
        for chain in stage
        for ref in chain
        for name in (ref.name, ref.covers)
    }
    mine = [store for store in open_stores() if store.path.startswith(str(folder))]
    assert mine or store == "rocksdb"  # which is closed between tasks
    assert {store.applied() for store in mine} - {None} <= committed


@pytest.mark.parametrize("store", KINDS)
def test_a_store_never_holds_what_is_not_committed(tmp_path: Path, store: str) -> None:
    check_uncommitted(tmp_path, store)


def test_it_fails_when_a_task_writes_to_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(ref: FileRef, entries: list[tuple[bytes, bytes | None]]) -> None:
        part = "/".join(ref.name.split("/")[1:3])  # state/s1/p0/…
        stage, partition = part[1:].split("/p")
        for store in open_stores():
            if store.path.startswith(str(tmp_path)) and f"/{stage}-{partition}/" in store.path:
                store.apply_entries(ref.mark, store.applied(), entries)

    monkeypatch.setattr(deltas, "remember_delta", at_once)
    breaks(lambda: check_uncommitted(tmp_path))


def check_foreign_store(folder: Path, store: str = "lmdb") -> None:
    """The store is ahead of what the job goes back to: the newest epoch was damaged and is given up."""
    with pytest.raises(Crash):
        run(folder, Interrupted(6, crash), keep=100, state_store=store)
    epochs = sorted((folder / "storage" / "epochs").glob("*.json"))
    for path in epochs[-2:]:
        path.write_bytes(b"damaged")
    for path in (folder / "out" / "_log").glob("[0-9]*.json"):  # what those two published goes with them
        if int(path.stem) > len(epochs) - 3:
            path.unlink()
    run(folder, fall_back=True, keep=100, state_store=store)
    check_exact(folder)


@pytest.mark.parametrize("store", KINDS)
def test_a_store_of_another_chain_is_not_used(tmp_path: Path, store: str) -> None:
    check_foreign_store(tmp_path, store)


def test_it_fails_when_any_store_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = local._position

    def whatever(applied: str | None, chain: list[FileRef]) -> int | None:
        found = real(applied, chain)
        return len(chain) if found is None else found

    monkeypatch.setattr(local, "_position", whatever)
    breaks(lambda: check_foreign_store(tmp_path))


def test_a_store_is_not_rebuilt_from_the_end_of_its_chain(tmp_path: Path) -> None:
    """Stores that vanish between epochs, when chains are longer than what tasks are told of them."""
    import shutil

    class Forgetful(Interrupted):
        def run(self, order: object) -> list[object]:  # type: ignore[override]
            for store in open_stores():
                if store.path.startswith(str(tmp_path)):
                    store.close()
            shutil.rmtree(tmp_path / "local", ignore_errors=True)
            return super().run(order)  # type: ignore[arg-type, return-value]

    run(tmp_path, Forgetful(1000, crash), compact_after=100)
    check_exact(tmp_path)
