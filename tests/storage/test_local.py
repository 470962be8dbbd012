from __future__ import annotations

import os
import pickle
import stat
import time
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.storage import LocalStorage, Storage, open_storage
from tests.storage.contract import StorageContract, paths


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "not yet" / "made")


class TestLocalStorage(StorageContract):
    pass


def test_opens_paths_and_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = LocalStorage(tmp_path / "jobs")
    assert open_storage("jobs") == here
    assert open_storage("~/jobs") == here
    assert open_storage(f"file://{tmp_path}/jobs/") == here
    assert open_storage(tmp_path / "jobs").uri == f"file://{tmp_path}/jobs"
    assert open_storage("file:///a%20b") == LocalStorage("/a b")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("", "empty"),
        ("gs://bucket/x", "does not know: gs"),
        ("file://host/x", "not a path on this machine"),
        ("file:x", None),
        ("s3://", "names no bucket"),
        ("s3://bucket/x?regoin=eu", "does not know: regoin"),
        ("s3://bucket/x?endpoint=http://10.0.0.1:9000", "without encryption"),
        ("s3://me:secret@bucket/x", "credentials in its URI"),
    ],
)
def test_refuses_uris_that_make_no_sense(uri: str, says: str | None) -> None:
    if says is None:
        assert isinstance(open_storage(uri), LocalStorage)
        return
    with pytest.raises(StorageError, match=says) as caught:
        open_storage(uri)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.create("a/b/1", b"")
    os.unlink(tmp_path / "root/a/b/1")
    os.rmdir(tmp_path / "root/a/b")
    storage.create("a/b/2", b"")
    assert paths(storage) == ["a/b/2"]


def test_temporary_files_are_hidden_and_swept(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("a/kept", b"")
    left = tmp_path / "a" / ".tmp-1-abc"
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 7200, time.time() - 7200))
    young = tmp_path / "a" / ".tmp-2-def"
    young.write_bytes(b"half")
    assert paths(storage) == ["a/kept"]
    assert storage.sweep_temporary(timedelta(hours=1)) == 1
    assert not left.exists()
    assert young.exists()


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced, in turn: folders by their names, files as "file"."""
    found: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        found.append("file" if stat.S_ISREG(os.fstat(fd).st_mode) else os.path.relpath(name, tmp_path))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_durable_writes_sync_the_file_and_every_new_folder(tmp_path: Path, synced: list[str]) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.create("a/b/1", b"", durable=False)
    assert synced == []
    storage.create("a/b/2", b"")
    assert synced == [".", "root", "root/a", "file", "root/a/b"]
    synced.clear()
    with storage.writer("a/b/3"):
        pass
    assert synced == ["file", "root/a/b"]


def test_what_is_durable_is_not_synced_again_for_a_private_write(tmp_path: Path, synced: list[str]) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.make_private()
    assert synced == []
    storage.create("a", b"")
    assert synced == [".", "file", "root"]
    synced.clear()
    storage.private().create("programs/1", b"")
    assert synced == ["root", "file", "root/programs"]
    synced.clear()
    storage.private().create("programs/2", b"")
    assert synced == ["file", "root/programs"]


def test_a_retransmitted_link_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def done_but_refused(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(target)

    monkeypatch.setattr(os, "link", done_but_refused)
    storage = LocalStorage(tmp_path)
    storage.create("mine", b"1")
    assert storage.read("mine") == b"1"
    assert paths(storage) == ["mine"]
    assert os.listdir(tmp_path) == ["mine"]


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    storage = LocalStorage(tmp_path)
    with pytest.raises(StorageError, match="disk is full"):
        storage.create("a", b"1")
    with pytest.raises(StorageError, match="disk is full"):
        storage.replace("a", b"1")
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("a", b"1")
    with pytest.raises(StorageError, match="Could not create"):
        storage.create("a/b", b"2")
    storage.delete(["a/b"])
    assert not storage.exists("a/b")


# --- links ---------------------------------------------------------------------------------------------------------------------


def planted(tmp_path: Path) -> tuple[LocalStorage, Path]:
    """A storage with a link below `state/` to a folder with files that look like those of a job."""
    victim = tmp_path / "elsewhere"
    (victim / "p0").mkdir(parents=True)
    (victim / "p0" / "0000000001-1-1-0-0-1.delta").write_text("precious")
    (victim / "p0" / ".tmp-1-abc").write_text("precious")
    os.utime(victim / "p0" / ".tmp-1-abc", (0, 0))
    storage = LocalStorage(tmp_path / "job")
    storage.create("state/s1/p0/0000000002-1-2-0-0-1.delta", b"own")
    (tmp_path / "job" / "state" / "s0").symlink_to(victim)
    (tmp_path / "job" / "state" / "s1" / "p1").symlink_to(victim / "p0")
    return storage, victim


def test_links_below_a_folder_are_neither_listed_nor_swept(tmp_path: Path) -> None:
    storage, victim = planted(tmp_path)
    own = ["state/s1/p0/0000000002-1-2-0-0-1.delta"]
    assert paths(storage, "state") == own
    assert paths(storage) == own
    assert paths(storage, "state/s0") == []
    assert paths(storage, "state/s0/p0") == []
    storage.sweep_temporary(timedelta(0))
    storage.child("state").sweep_temporary(timedelta(0))
    assert len(list((victim / "p0").iterdir())) == 2


def test_nothing_is_deleted_through_a_link(tmp_path: Path) -> None:
    storage, victim = planted(tmp_path)
    storage.delete(["state/s0/p0/0000000001-1-1-0-0-1.delta", "state/s1/p1/0000000001-1-1-0-0-1.delta"])
    assert (victim / "p0" / "0000000001-1-1-0-0-1.delta").read_text() == "precious"
    storage.delete(paths(storage))
    assert list(storage.list()) == []


def test_a_link_to_a_file_is_deleted_and_not_the_file(tmp_path: Path) -> None:
    storage, victim = planted(tmp_path)
    (tmp_path / "job" / "state" / "s1" / "linked").symlink_to(victim / "p0" / ".tmp-1-abc")
    storage.delete(["state/s1/linked"])
    assert (victim / "p0" / ".tmp-1-abc").exists()
    assert not (tmp_path / "job" / "state" / "s1" / "linked").is_symlink()


def test_a_folder_of_the_storage_may_be_on_another_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "state").symlink_to(disk)
    storage = LocalStorage(tmp_path / "job")
    storage.create("state/s0/a", b"1")
    assert paths(storage, "state") == ["state/s0/a"]
    storage.delete(["state/s0/a"])
    assert paths(storage, "state") == []


# --- whose it is ---------------------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_private_only_its_user_can_read(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "job").private()
    storage.create("programs/a.json", b"1")
    storage.replace("programs/a.json", b"2")
    storage.replace("programs/b.json", b"3")
    assert [mode(tmp_path / "job" / "programs" / name) for name in ("a.json", "b.json")] == [0o600, 0o600]
    assert mode(tmp_path / "job" / "programs") == 0o700
    assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize(("umask", "folder"), [(0o022, 0o700), (0o077, 0o700), (0o002, 0o775), (0o007, 0o770)])
def test_a_job_folder_is_for_its_user_unless_the_umask_lets_a_group_write(tmp_path: Path, umask: int, folder: int) -> None:
    before = os.umask(umask)
    try:
        LocalStorage(tmp_path / "jobs" / "one").make_private()
    finally:
        os.umask(before)
    assert mode(tmp_path / "jobs" / "one") == folder
    os.chmod(tmp_path / "jobs" / "one", 0o755)
    LocalStorage(tmp_path / "jobs" / "one").make_private()
    assert mode(tmp_path / "jobs" / "one") == 0o755  # what was there stays as it is
