"""Mirrors: whole at any time, started from after the loss of the first storage, with exact output."""

from __future__ import annotations

import shutil
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import failpoints
from penstock.config import JobConfig
from penstock.epochs.availability import mirror_start
from penstock.epochs.availability.lease_holder import SignOfLife
from penstock.epochs.availability.mirror import Mirror, MirrorReplacedError
from penstock.epochs.availability.mirror_start import check_start
from penstock.epochs.history import EpochRecord
from penstock.errors import ConfigError, CorruptFileError, StorageError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch, JobId, Term
from penstock.jobs import paths
from penstock.jobs.manifest import load_manifest
from penstock.jobs.mirror_record import GAP, MirrorInfo, passed_over, read_mirror, write_mirror
from penstock.jobs.pins import kept_epochs
from penstock.jobs.terms import Head, find_head, read_job, take_term
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.state.files.durable import verify_file
from penstock.storage import Storage, open_storage
from tests.laws.test_atomic_epochs import _die
from tests.laws.trying import Crash, Interrupted, check_exact, crash, program, run


def whole(target: Storage) -> list[Epoch]:
    """The epochs of a mirror, each of them whole: done, and with every file it names."""
    epochs, done = kept_epochs(target)
    assert epochs == done or set(epochs) - set(done) <= {max(epochs)}
    for epoch in epochs:
        for stage in load_manifest(target, epoch).state.chains:
            for chain in stage:
                for ref in chain:
                    verify_file(target, ref)
    return epochs


def mirror(folder: Path, *, keep: int = 4) -> Mirror:
    """A mirror that is told what to do by the test."""
    storage = open_storage(folder / "storage")
    term = find_head(storage).manifest
    assert term is not None
    return Mirror(storage, str(folder / "mirror"), read_job(storage), term.term, keep)


def go_on(folder: Path, **settings: Any) -> list[str]:
    """The first storage is lost: run the job from the mirror; what it says."""
    shutil.rmtree(folder / "storage", ignore_errors=True)
    heard = Heard()
    program(folder, storage=str(folder / "mirror"), **settings).execute(listener=heard)
    return heard.lines


class Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, record: EpochRecord) -> None:
        pass

    def standing_by(self, name: str, text: str) -> None:
        self.lines.append(text)


# --- mirroring ----------------------------------------------------------------------------------------------------------------


def test_a_job_and_its_mirror(tmp_path: Path) -> None:
    result = run(tmp_path, mirror=str(tmp_path / "mirror"))
    target = open_storage(tmp_path / "mirror")
    info = read_mirror(target)
    assert info is not None
    assert info.mirrored == info.committed == result.last_epoch
    epochs = whole(target)
    assert epochs[-1] == result.last_epoch
    assert len(epochs) <= 4
    assert (info.storage, info.job) == (open_storage(tmp_path / "storage").uri, result.job)


def test_what_is_lost_is_done_again(tmp_path: Path) -> None:
    """The mirror is at an epoch in the middle; all output that came after it is taken back."""

    def copy() -> None:
        mirror(tmp_path).mirror()

    with pytest.raises(Crash):
        run(tmp_path, Interrupted(5, copy))  # mirrors, then goes on
        raise Crash
    info = read_mirror(open_storage(tmp_path / "mirror"))
    assert info is not None
    write_mirror(open_storage(tmp_path / "mirror"), MirrorInfo(1, info.job, info.storage, info.term, Epoch(12), info.mirrored, 0))
    lines = go_on(tmp_path)
    check_exact(tmp_path)
    assert f"as of epoch {info.mirrored}: epochs {info.mirrored + 1} to 12 are lost" in lines[0]
    target = open_storage(tmp_path / "mirror")
    newest = find_head(target).manifest
    assert newest is not None
    assert newest.epoch > 12 + GAP
    after = read_mirror(target)
    assert after is not None
    assert after.started_ms is not None
    assert run(tmp_path, storage=str(tmp_path / "mirror")).epochs == 0, "an ordinary job, finished"
    again = find_head(target).manifest
    assert again is not None
    assert again.epoch == newest.epoch + 1


def test_a_mirror_that_is_further_than_it_has_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All that is said names one epoch: the newest that is there, not the one that was noted last."""

    def copy() -> None:
        mirror(tmp_path).mirror()

    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, copy))
        raise Crash
    target = open_storage(tmp_path / "mirror")
    info, newest = read_mirror(target), find_head(target).manifest
    assert info is not None
    assert newest is not None
    write_mirror(target, msgspec.structs.replace(info, committed=Epoch(info.mirrored - 3), mirrored=Epoch(info.mirrored - 3)))
    lines = go_on(tmp_path)
    check_exact(tmp_path)
    assert f"as of epoch {newest.epoch}: no epoch is known to be lost" in lines[0]
    assert lines[-1].startswith(f"goes back to epoch {newest.epoch}: output published after it")
    assert f"the job goes back to epoch {newest.epoch}, from epoch " in caplog.text


@pytest.mark.parametrize("at", [1, 3, 8])
@pytest.mark.parametrize("place", ["mirror:half-copied", "mirror:files", "mirror:manifest"])
def test_a_crash_in_the_middle_of_mirroring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, at: int) -> None:
    monkeypatch.setattr(failpoints, "_act", _die)

    class Mirrored(InlineExecutor):
        """A mirror that dies on its way, in the `at`-th epoch: another one goes on in the next."""

        def __init__(self) -> None:
            super().__init__()
            self.mirror: Mirror | None = None
            self.epochs = 0

        def run(self, order: EpochOrder) -> list[TaskReport]:
            reports = super().run(order)
            self.epochs += 1
            if self.epochs > at + 2:
                crash()
            self.mirror = self.mirror or mirror(tmp_path)
            if self.epochs == at:
                failpoints.arm(f"{place}=crash@1")
            try:
                self.mirror.mirror()
            except Crash:
                self.mirror = None
            failpoints.arm("")
            if (tmp_path / "mirror" / "epochs").exists():
                whole(open_storage(tmp_path / "mirror"))
            return reports

    with pytest.raises(Crash):
        run(tmp_path, Mirrored())
    go_on(tmp_path)
    check_exact(tmp_path)


def test_one_that_was_left_half_way_is_started_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an epoch that never came to be there are no harm."""
    monkeypatch.setattr(failpoints, "_act", _die)
    copier: list[Mirror] = []

    def first() -> None:
        copier.append(mirror(tmp_path))
        copier[0].mirror()

    def second() -> None:
        failpoints.arm("mirror:files=crash@1")
        copier[0].mirror()

    class Twice(InlineExecutor):
        epochs = 0

        def run(self, order: EpochOrder) -> list[TaskReport]:
            self.epochs += 1
            if self.epochs in (3, 6):
                first() if self.epochs == 3 else second()
            return super().run(order)

    with pytest.raises(Crash):
        run(tmp_path, Twice())
    failpoints.arm("")
    go_on(tmp_path)
    check_exact(tmp_path)


def test_damage_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash), mirror=str(tmp_path / "mirror"), compact_after=100)
    shutil.rmtree(tmp_path / "mirror", ignore_errors=True)
    mirror(tmp_path).mirror()
    file = max((tmp_path / "mirror" / "state").rglob("*.delta"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)
    with pytest.raises(CorruptFileError):
        go_on(tmp_path, parallelism=3)


def test_a_source_file_that_is_damaged_is_not_mirrored(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash), compact_after=100)
    file = max((tmp_path / "storage" / "state").rglob("*.delta"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)
    with pytest.raises(CorruptFileError):
        mirror(tmp_path).mirror()
    assert kept_epochs(open_storage(tmp_path / "mirror"))[0] == []
    assert not list((tmp_path / "mirror").rglob(file.name))


def test_a_mirror_that_does_not_answer_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.epochs.availability.mirror.AGAIN_S", 0.05)
    broken = threading.Event()
    whole_copy = Mirror._copy

    def copy(self: Mirror, manifest: Any) -> None:
        if not broken.is_set():
            raise StorageError("no route to the mirror")
        whole_copy(self, manifest)

    class Mended(InlineExecutor):
        epochs = 0

        def run(self, order: EpochOrder) -> list[TaskReport]:
            self.epochs += 1
            if self.epochs == 10:
                broken.set()
            return super().run(order)

    monkeypatch.setattr(Mirror, "_copy", copy)
    result = run(tmp_path, Mended(), mirror=str(tmp_path / "mirror"))
    check_exact(tmp_path)
    assert whole(open_storage(tmp_path / "mirror"))[-1] == result.last_epoch


# --- whose mirror it is -------------------------------------------------------------------------------------------------------


def test_places_that_are_not_for_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / name)
    with pytest.raises(ConfigError, match="holds another job"):
        run(tmp_path / "a", mirror=str(tmp_path / "b" / "storage"))
    shutil.copytree(tmp_path / "a" / "storage", tmp_path / "copy")
    with pytest.raises(ConfigError, match="is a job's storage, not a mirror"):
        run(tmp_path / "a", mirror=str(tmp_path / "copy"))


def test_a_mirror_that_was_started_is_mirrored_into_no_more(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash), mirror=str(tmp_path / "mirror"))
    late = mirror(tmp_path)
    late.mirror()
    run(tmp_path, storage=str(tmp_path / "mirror"))
    check_exact(tmp_path)
    with pytest.raises((MirrorReplacedError, ConfigError)):
        late.mirror()
    with pytest.raises(ConfigError, match="a job was started from the mirror"):
        run(tmp_path, mirror=str(tmp_path / "mirror"))


def test_a_program_that_names_its_mirror_is_started_from_it(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash), mirror=str(tmp_path / "mirror"))
    if not (tmp_path / "mirror" / "epochs").exists():
        mirror(tmp_path).mirror()
    go_on(tmp_path, mirror=str(tmp_path / "mirror"))
    check_exact(tmp_path)


def _driven(folder: Path) -> SignOfLife:
    storage = open_storage(folder / "storage")
    config = JobConfig(name="numbers", storage=str(folder / "storage"), lease=timedelta(milliseconds=400))
    life = SignOfLife(storage, config)
    life.take_term(storage)
    life.committed()
    return life


def test_while_the_first_is_driven_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash))
    mirror(tmp_path).mirror()
    life = _driven(tmp_path)
    settings: dict[str, Any] = {"storage": str(tmp_path / "mirror"), "lease": timedelta(milliseconds=400)}
    try:
        with pytest.raises(ConfigError, match="is the mirror of a running job"):
            run(tmp_path, **settings)
        run(tmp_path, Interrupted(2, lambda: None), **settings, force=True)
    finally:
        life.close()
    check_exact(tmp_path)


def test_a_driver_that_is_silent_is_none(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash))
    mirror(tmp_path).mirror()
    life = _driven(tmp_path)
    life.close()
    run(tmp_path, storage=str(tmp_path / "mirror"), lease=timedelta(milliseconds=400))
    check_exact(tmp_path)


def test_what_mirror_json_says(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    assert read_mirror(storage) is None
    info = MirrorInfo(1, JobId("j"), "there", Term(2), Epoch(9), Epoch(7), 0)
    write_mirror(storage, info)
    assert read_mirror(storage) == info
    assert info.lost == "epochs 8 to 9 are lost"
    assert passed_over(info, Head(None, (), (Epoch(6), Epoch(7)))) == 9 + GAP
    assert passed_over(info, Head(None, (), (Epoch(10 + GAP),))) == 0
    data = (tmp_path / paths.MIRROR).read_bytes()
    (tmp_path / paths.MIRROR).write_bytes(data.replace(b'"committed":9', b'"committed":8'))
    with pytest.raises(CorruptFileError, match="is damaged"):
        read_mirror(storage)


def test_a_first_storage_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(uri: str) -> Storage:
        raise StorageError("no route to host")

    monkeypatch.setattr(mirror_start, "open_storage", unreachable)
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(8, crash))
    mirror(tmp_path).mirror()
    lines: list[str] = []
    check_start(open_storage(tmp_path / "mirror"), 1.0, force=False, fall_back=False, tell=lines.append)
    assert any("cannot be read: no route to host" in line for line in lines)


def test_two_terms_of_one_job(tmp_path: Path) -> None:
    """The driver that comes later mirrors; the one before finds out, and does not."""
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(5, crash))
    old = mirror(tmp_path)
    old.mirror()
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(5, crash))
    new = mirror(tmp_path)
    new.mirror()
    with pytest.raises(MirrorReplacedError):
        old.mirror()
    whole(open_storage(tmp_path / "mirror"))
    assert take_term(open_storage(tmp_path / "mirror")) > 2


@pytest.mark.parametrize("gone", [1, 3])
def test_manifests_that_are_gone_from_a_mirror(tmp_path: Path, gone: int) -> None:
    """It says how far it is; what is missing of that is not taken for lost with the first storage."""
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(4, crash))
    mirror(tmp_path).mirror()
    for _ in range(2):
        with pytest.raises(Crash):
            run(tmp_path, Interrupted(3, crash))
        mirror(tmp_path).mirror()
    shutil.rmtree(tmp_path / "storage")
    epochs = tmp_path / "mirror" / "epochs"
    kept = sorted(path.stem for path in epochs.glob("*.json"))
    for stem in kept[-gone:]:
        for path in epochs.glob(f"{stem}.*"):
            path.unlink()
    with pytest.raises(CorruptFileError, match=rf"(?s)epochs/{kept[-1]}.json is missing.*--fall-back"):
        run(tmp_path, storage=str(tmp_path / "mirror"))
    if gone < len(kept):
        run(tmp_path, storage=str(tmp_path / "mirror"), fall_back=True)
        check_exact(tmp_path)
