"""Law: immutable files. An attempt that goes on writing after another was chosen changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.executors import inline
from penstock.executors.inline import InlineExecutor
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage.local import LocalStorage
from tests.laws.trying import breaks, check_exact, manifests, run


class Twice(InlineExecutor):
    """Each epoch runs twice, as after the loss of an executor; the second attempt's files come last, the first one's are used."""

    def run(self, order: EpochOrder) -> list[TaskReport]:
        chosen = super().run(order)
        files = {path: path.read_bytes() for path in self.files}
        super().run(order)
        for path, data in files.items():
            assert path.read_bytes() == data, f"{path} was written again"
        return chosen

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    @property
    def files(self) -> list[Path]:
        places = (self._folder / "storage" / "state", self._folder / "out" / "data")
        return [path for place in places for path in place.rglob("*") if path.is_file()]


def check_zombies(folder: Path) -> None:
    run(folder, Twice(folder), compact_after=100)
    check_exact(folder)
    names = [ref.name for stage in manifests(folder)[-1].state.chains for chain in stage for ref in chain]
    assert len(set(names)) == len(names)


def test_attempts_write_files_of_their_own(tmp_path: Path) -> None:
    check_zombies(tmp_path)


def test_it_fails_when_attempts_share_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        inline, "attempt_name", lambda term, plan, stage, partition, attempt: f"{term}-{plan}-{stage}-{partition}"
    )
    breaks(lambda: check_zombies(tmp_path))


def check_created_once(folder: Path) -> None:
    storage = LocalStorage(folder)
    storage.create("a", b"1")
    with pytest.raises(FileExistsError):
        storage.create("a", b"2")
    assert storage.read("a") == b"1"


def test_a_file_cannot_be_created_twice(tmp_path: Path) -> None:
    check_created_once(tmp_path)


def test_it_fails_when_files_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStorage, "create", LocalStorage.replace)
    breaks(lambda: check_created_once(tmp_path))
