"""Law: epoch numbers are never reused, also when a damaged epoch is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.epochs.starting import rewind, takeover
from penstock.errors import CorruptFileError, SinkError
from penstock.jobs import terms
from penstock.storage import Storage, open_storage
from tests.laws.trying import Crash, Interrupted, breaks, check_exact, crash, run


def test_the_next_epoch_comes_after_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(5, crash))
    newest = max((tmp_path / "storage" / "epochs").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(CorruptFileError, match=newest.name):
        run(tmp_path)
    head = terms.find_head(_storage(tmp_path), fall_back=True)
    assert head.manifest is not None
    assert head.manifest.epoch == int(newest.stem) - 1
    assert max(head.epochs) == int(newest.stem)
    run(tmp_path, fall_back=True, keep=100)
    after = [int(path.stem) for path in (tmp_path / "storage" / "epochs").glob("*.json")]
    assert max(after) > int(newest.stem)
    assert b'"crc"' in newest.read_bytes()[:10]
    check_exact(tmp_path)


def test_it_fails_when_a_damaged_epoch_is_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = terms.find_head

    def overlooking(storage: Storage, *, fall_back: bool = False, whole: Any = None) -> terms.Head:
        head = real(storage, fall_back=fall_back, whole=whole)
        epochs = tuple(e for e in head.epochs if head.manifest is not None and e <= head.manifest.epoch)
        return terms.Head(head.manifest, head.undone, epochs)

    monkeypatch.setattr(takeover, "find_head", overlooking)
    monkeypatch.setattr(rewind, "newest_published", lambda *args: 0)  # sinks remember it too
    breaks(lambda: test_the_next_epoch_comes_after_a_damaged_one(tmp_path))


def test_identities_are_the_jobs_not_its_name(tmp_path: Path) -> None:
    """Another job of the same name may not write where this one did."""
    run(tmp_path)
    with pytest.raises(SinkError, match="another job"):
        run(tmp_path, storage=str(tmp_path / "other"))
    check_exact(tmp_path)


def _storage(folder: Path) -> Storage:
    return open_storage(folder / "storage")
