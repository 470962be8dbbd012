from __future__ import annotations

import os
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


def test_durable_writes_sync_the_file_and_every_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        synced.append("file" if stat.S_ISREG(os.fstat(fd).st_mode) else os.path.relpath(name, tmp_path))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    storage = LocalStorage(tmp_path / "root")
    storage.create("a/b/1", b"", durable=False)
    assert synced == []
    storage.create("a/b/2", b"")
    assert synced == [".", "root", "root/a", "file", "root/a/b"]
    synced.clear()
    with storage.writer("a/b/3"):
        pass
    assert synced == ["file", "root/a/b"]


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
