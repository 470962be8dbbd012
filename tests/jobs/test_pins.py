"""Pinned epochs stay: before they would be retired, at that very moment, and after; stale pins do not count."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock.epochs.committing import retention
from penstock.epochs.committing.retention import Retention, files_of, orphans
from penstock.errors import ConfigError, CorruptFileError, NotFoundError
from penstock.failpoints import InjectedError, arm
from penstock.ids import Epoch, Term
from penstock.jobs import paths, pins
from penstock.jobs.listing import epochs_in
from penstock.jobs.manifest import load_manifest
from penstock.jobs.pins import Pin, pin, pinned
from penstock.state.files.durable import read_entries
from penstock.storage import LocalStorage, open_storage
from penstock.testing import execute_inline
from tests.laws.trying import program


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "GRACE_MS", 0)


def run(folder: Path, epochs: int) -> LocalStorage:
    execute_inline(program(folder, keep=3, compact_after=2), epochs=epochs)
    return LocalStorage(str(folder / "storage"))


def newest_done(storage: LocalStorage) -> Epoch:
    found = pins.newest_done(storage)
    assert found is not None
    return found


def readable(storage: LocalStorage, epoch_files: set[str]) -> bool:
    return all(storage.exists(name) for name in epoch_files)


@pytest.mark.usefixtures("no_grace")
def test_a_pinned_epoch_is_not_retired_and_its_files_stay(tmp_path: Path) -> None:
    storage = run(tmp_path, 4)
    with pin(storage, None, "test") as manifest:
        run(tmp_path, 10)  # compacts, retires, starts anew
        assert storage.exists(paths.manifest(manifest.epoch))
        for stage in manifest.state.chains:
            for ref in (ref for chain in stage for ref in chain):
                assert sum(len(keys) for keys, _ in read_entries(storage, ref)) == ref.entries
        assert len([e for e in storage.list(paths.EPOCHS) if e.path.endswith(".json")]) == 4  # keep=3, and it
    assert not list(storage.list(paths.PINS))
    run(tmp_path, 2)
    assert not storage.exists(paths.manifest(manifest.epoch))
    assert not readable(storage, files_of(manifest))


@pytest.mark.usefixtures("no_grace")
def test_without_a_pin_the_files_go(tmp_path: Path) -> None:
    storage = run(tmp_path, 4)
    manifest = load_manifest(storage, newest_done(storage))
    run(tmp_path, 10)
    assert not storage.exists(paths.manifest(manifest.epoch))
    assert not readable(storage, files_of(manifest))


def retired_beside(storage: LocalStorage, epoch: Epoch, monkeypatch: pytest.MonkeyPatch, at: Callable[[], None]) -> Retention:
    """Retention that has read the pins and has not retired yet, when `at` is called."""
    keeping = Retention(storage, 1)
    keeping.load(list(epochs_in(storage).manifests))
    real = pinned

    def reads(place: LocalStorage) -> set[Epoch]:
        found = real(place)
        at()
        return found

    monkeypatch.setattr(retention, "pinned", reads)
    keeping.committed(load_manifest(storage, epoch))
    monkeypatch.setattr(retention, "pinned", real)
    return keeping


def test_pinned_after_the_pins_were_read_and_before_the_manifest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = run(tmp_path, 6)
    oldest = min(epochs_in(storage).manifests)
    held = pin(storage, oldest, "test")
    found = []
    keeping = retired_beside(storage, newest_done(storage), monkeypatch, lambda: found.append(held.__enter__()))
    assert not storage.exists(paths.manifest(oldest))  # too late for that
    keeping.sweep(everything=True)
    assert readable(storage, files_of(found[0]))  # but not for its files
    assert orphans(storage, set(), Term(99)) == []  # not even for a driver that knows nothing of it
    held.__exit__(None, None, None)
    keeping.sweep(everything=True)
    assert not readable(storage, files_of(found[0]))
    assert orphans(storage, set(), Term(99)) != []


def test_pinned_after_the_manifest_is_gone(tmp_path: Path) -> None:
    storage = run(tmp_path, 6)
    kept = list(epochs_in(storage).manifests)
    with pytest.raises(ConfigError, match="is not kept") as caught, pin(storage, Epoch(1), "test"):
        pass
    assert f"{kept[0]} to {kept[-1]}" in caught.value.detail
    assert not list(storage.list(paths.PINS))


def test_retired_between_listing_and_pinning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which epoch is the newest was found out, then it went: the next newest is taken. One that was asked for is refused."""
    storage = run(tmp_path, 6)
    newest = newest_done(storage)
    storage.delete([paths.manifest(newest)])
    answers = [newest, newest, Epoch(newest - 1)]
    monkeypatch.setattr(pins, "newest_done", lambda _: answers.pop(0))
    with pin(storage, None, "test") as manifest:
        assert manifest.epoch == newest - 1
        assert [Path(e.path).suffix for e in storage.list(paths.PINS)] == [".json"]
    with pytest.raises(ConfigError, match="not kept"), pin(storage, newest, "test"):
        pass


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    storage = run(tmp_path, 4)
    newest = newest_done(storage)
    storage.replace(paths.manifest(newest), b"damaged")
    with pytest.raises(CorruptFileError, match="damaged"), pin(storage, None, "test"):
        pass
    assert not list(storage.list(paths.PINS))


def test_only_done_epochs_are_pinned(tmp_path: Path) -> None:
    storage = run(tmp_path, 4)
    newest = newest_done(storage)
    storage.delete([paths.done(newest)])
    with pin(storage, None, "test") as manifest:
        assert manifest.epoch == newest - 1
    with pytest.raises(ConfigError, match="not all output of epoch"), pin(storage, newest, "test"):
        pass
    with pytest.raises(ConfigError, match="no epoch"), pin(LocalStorage(str(tmp_path / "empty")), None, "test"):
        pass


def test_stale_pins_are_ignored_and_removed(tmp_path: Path) -> None:
    storage = run(tmp_path, 4)
    arm("pin:made=raise")
    try:
        with pytest.raises(InjectedError), pin(storage, None, "test"):
            pass
    finally:
        arm("")
    (left,) = storage.list(paths.PINS)
    assert pinned(storage) == {newest_done(storage)}
    old = time.time() - pins.STALE_MS / 1000 - 1
    os.utime(tmp_path / "storage" / left.path, (old, old))
    assert pinned(storage) == set()
    assert not list(storage.list(paths.PINS))


def test_a_pin_that_is_held_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = run(tmp_path, 4)
    monkeypatch.setattr(pins, "RENEW_S", 0.02)
    with pin(storage, None, "test") as manifest:
        (held,) = storage.list(paths.PINS)
        old = time.time() - pins.STALE_MS / 1000 - 1
        os.utime(tmp_path / "storage" / held.path, (old, old))
        for _ in range(500):
            if pinned(storage):
                break
            time.sleep(0.01)
        assert pinned(storage) == {manifest.epoch}


def test_a_pin_says_whose_it_is(tmp_path: Path) -> None:
    storage = run(tmp_path, 2)
    with pin(storage, None, "for a test"):
        (held,) = storage.list(paths.PINS)
        read = msgspec.json.decode(storage.read(held.path), type=Pin)
    assert (read.why, read.pid, read.version) == ("for a test", os.getpid(), 1)


@pytest.mark.usefixtures("no_grace")
def test_epochs_that_are_pinned_and_read_while_others_are_retired(tmp_path: Path) -> None:
    """Whoever gets a manifest by a pin can read all its files, however fast epochs are retired."""
    storage = run(tmp_path, 2)
    stop = threading.Event()
    failed: list[BaseException] = []
    reads = 0

    def read() -> None:
        nonlocal reads
        while not stop.is_set():
            try:
                with pin(open_storage(storage.root), None, "test") as manifest:
                    for name in files_of(manifest):
                        storage.read(name)
                    reads += 1
            except (NotFoundError, CorruptFileError) as error:
                failed.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        execute_inline(program(tmp_path, keep=1, compact_after=1, max_records_per_epoch=2), epochs=100)
    finally:
        stop.set()
        reader.join()
    assert not failed
    assert reads > 0
