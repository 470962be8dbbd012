"""Names in stored files lead to nothing outside of the folder that they are in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import FileSink, FileSource, StreamEnvironment, ValueState, read_output, snapshots
from penstock.config import NO_RESTART
from penstock.connectors.files.writing.committer import FileCommitter
from penstock.connectors.files.writing.log_format import encode_entry, read_entry
from penstock.connectors.protocol import CommitterContext
from penstock.connectors.staging.rows import staged_rows
from penstock.epochs.availability.mirror import Mirror
from penstock.errors import CorruptFileError, PenstockError, StorageError
from penstock.ids import Epoch, JobId, StepId, Term
from penstock.jobs import paths
from penstock.jobs.lineage import Note, read_lineage
from penstock.jobs.manifest import load_manifest
from penstock.jobs.requests import Inbox, Request
from penstock.jobs.terms import read_job
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.state.stores.local import store_path
from penstock.storage import open_named, open_storage
from penstock.storage.sealed import seal
from tests.security.hostile import (
    Keeping,
    forge_document,
    forge_manifest,
    forge_savepoint,
    keeping,
    newest_manifest,
    penstock,
)

OUTSIDE = ["../../victim", "state/../../../victim", "/etc/victim", "job.json", "terms/000001.json", "state", "state/", "state/.x"]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    keeping(tmp_path / "job", Keeping(ValueState(int))).execute()
    (tmp_path / "victim").write_text("mine")
    return tmp_path / "job"


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- manifests and savepoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_manifest_names_state_files_only(storage: Path, tmp_path: Path, name: str) -> None:
    def change(whole: dict[str, Any]) -> None:
        next(ref for stage in whole["state"]["chains"] for chain in stage for ref in chain)["name"] = name

    forge_manifest(storage, change)
    epoch = Epoch(int(newest_manifest(storage).stem))
    with pytest.raises(CorruptFileError, match="names an impossible state file"):
        load_manifest(open_storage(storage), epoch)
    before = everything(tmp_path)
    with pytest.raises(PenstockError):
        keeping(storage, Keeping(ValueState(int)), count=8).execute()
    for command in (["state", storage], ["savepoint", storage, "--to", tmp_path / "made"], ["replay", f"{storage}@latest"]):
        assert penstock(*command).exit_code == 1
    after = everything(tmp_path)
    told = {str(storage / name) for name in ("status.json", "lease.json", "take-over.json")}
    assert {path: after.get(path) for path in before.keys() - told} == {path: before[path] for path in before.keys() - told}
    assert all(path.startswith(f"{storage}/") for path in after.keys() - before.keys())


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_savepoint_names_its_own_files_only(storage: Path, tmp_path: Path, name: str) -> None:
    place = tmp_path / "savepoint"
    make_savepoint(open_storage(storage), to=str(place))

    def change(info: Any) -> Any:
        first, *rest = info.states
        files = [msgspec.structs.replace(file, path=name) for file in first.files]
        return msgspec.structs.replace(info, states=[msgspec.structs.replace(first, files=files), *rest])

    forge_savepoint(place, change)
    with pytest.raises(CorruptFileError, match="names an impossible state file"), snapshots.read(str(place)):
        pass
    with pytest.raises(CorruptFileError):
        keeping(tmp_path / "new", Keeping(ValueState(int))).execute(restore_from=str(place))
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_mirror_copies_nothing_to_another_place(storage: Path, tmp_path: Path) -> None:
    def change(whole: dict[str, Any]) -> None:
        next(ref for stage in whole["state"]["chains"] for chain in stage for ref in chain)["name"] = "terms/999999.json"

    forge_manifest(storage, change)
    source = open_storage(storage)
    with pytest.raises(CorruptFileError):
        Mirror(source, str(tmp_path / "mirror"), read_job(source), Term(1), keep=3).mirror()
    assert not (tmp_path / "mirror" / "terms" / "999999.json").exists()


# --- job ids -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["../../victim", "..", "", "a/b", "a b", "\x1b[2J", "x" * 65])
def test_a_job_id_is_no_path(storage: Path, job: str, tmp_path: Path) -> None:
    """Local state and the checkpoints of Spark queries are kept below it."""
    forge_document(storage / "job.json", job=job)
    with pytest.raises(CorruptFileError, match="holds an impossible job id"):
        read_job(open_storage(storage))
    with pytest.raises(CorruptFileError):
        keeping(storage, Keeping(ValueState(int)), count=8).execute()
    assert "\x1b" not in penstock("jobs", tmp_path).output


@pytest.mark.parametrize("name", ["..", ".", "../../x", "/x"])
def test_local_state_stays_in_its_directory(tmp_path: Path, name: str) -> None:
    made = Path(store_path(str(tmp_path / "local"), name, name, 1, name, 0)).resolve()
    boot, *below = made.relative_to((tmp_path / "local").resolve()).parts
    assert len(below) == 3
    assert boot not in ("..", ".")


# --- sinks ---------------------------------------------------------------------------------------------------------------------

FILES = ["../victim", "data/../../victim", "/etc/victim", "_log/owner.json", "data/", "data//x"]


class Output:
    """A sink's folder with one epoch's output, and its committer."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "out"
        env = StreamEnvironment("job", executor="inline", parallelism=1, storage=str(top / "job"), restart=NO_RESTART)
        env.from_collection([{"n": 1}]).sink_to(FileSink(str(self.folder)), name="sink")
        env.execute()
        (top / "victim").write_text('{"n": 666}\n')
        self.victim = top / "victim"
        self.storage = open_storage(self.folder)
        job = read_job(open_storage(top / "job")).job
        self.context = CommitterContext(
            job=JobId(job), step=StepId("sink"), storage=open_storage(top / "job"), sweepable=lambda attempt: True
        )

    def names(self, path: str) -> None:
        """The newest entry of the log names another file."""
        numbered = max((self.folder / "_log").glob("0*.json"))
        entry = read_entry(self.storage, int(numbered.stem))
        file = msgspec.structs.replace(entry.files[0], path=path, bytes=self.victim.stat().st_size, checksum=None)
        numbered.write_bytes(encode_entry(msgspec.structs.replace(entry, files=(file,))))

    def committer(self) -> FileCommitter:
        return FileCommitter(FileSink(str(self.folder), tidy=True), self.context, self.storage)


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


@pytest.mark.parametrize("path", FILES)
def test_a_log_names_data_files_only(output: Output, path: str) -> None:
    output.names(path)
    with pytest.raises(CorruptFileError, match="names a file that no sink has written"):
        list(read_output(str(output.folder)))
    before = everything(output.folder.parent)
    with pytest.raises(CorruptFileError):
        output.committer().roll_back(Epoch(0), Epoch(99))
        output.committer()._remove_taken_back()
    with pytest.raises(CorruptFileError):
        output.committer().sweep()
    assert everything(output.folder.parent).keys() >= before.keys()
    assert output.victim.exists()


@pytest.mark.parametrize("path", FILES[:3])
def test_a_source_reads_no_file_outside_of_the_folder(output: Output, path: str, tmp_path: Path) -> None:
    output.names(path)
    env = StreamEnvironment("reader", executor="inline", parallelism=1, restart=NO_RESTART)
    rows = env.from_source(FileSource(str(output.folder), format="json"), name="in")
    with pytest.raises(CorruptFileError, match="names a file that no sink has written"):
        rows.execute_and_collect()


@pytest.mark.parametrize("path", FILES)
def test_a_manifest_has_nothing_outside_of_the_sinks_folder_published_or_removed(output: Output, path: str) -> None:
    before = everything(output.folder.parent)
    given = [{"files": [{"path": path, "rows": 1, "bytes": 1}], "folder": str(output.folder)}]
    for action in (output.committer().commit, output.committer().abort, output.committer().confirm):
        with pytest.raises(CorruptFileError, match="a manifest names a file that no sink has written"):
            action(Epoch(99), given)
    assert everything(output.folder.parent) == before


def test_staged_rows_are_read_and_removed_in_the_storage_only(storage: Path) -> None:
    given = [{"path": "../victim", "rows": 1}]
    with pytest.raises(StorageError, match="is refused"):
        list(staged_rows(open_storage(storage), given, lambda data: []))
    with pytest.raises(StorageError, match="is refused"):
        open_storage(storage).delete(["../victim"])
    assert (storage.parent / "victim").exists()


# --- requests, and other places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", ["../../victim", "../job", "other"])
def test_a_request_is_answered_under_its_own_name(storage: Path, identity: str) -> None:
    (storage / "requests").mkdir(exist_ok=True)
    mine = "1763490000000-0123abcd"
    (storage / "requests" / f"{mine}.json").write_bytes(msgspec.json.encode(Request(identity, "stop", 0)))
    assert Inbox(open_storage(storage)).pending() == []
    (storage / "requests" / f"{mine}.json").write_bytes(msgspec.json.encode(Request(mine, "stop", 0)))
    assert [request.identity for request in Inbox(open_storage(storage)).pending()] == [mine]


def test_no_endpoint_that_a_storage_names_is_contacted(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    evil = "s3://bucket/job?endpoint=https://evil.example"
    own = open_storage(storage)
    with pytest.raises(StorageError, match="at another endpoint, which is not contacted"):
        open_named(evil, own)
    assert open_named(evil, open_storage("s3://other?endpoint=https://evil.example")).uri
    assert open_named(str(storage.parent), own).uri == open_storage(storage.parent).uri

    def contacted(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("contacted")

    monkeypatch.setattr("penstock.storage.object_store.S3Storage.read", contacted)
    job = read_job(own).job
    for kind in ("restore", "fork"):
        note = Note(kind=kind, identity=kind, made_ms=0, place=evil, epoch=Epoch(1), job=JobId(f"not{job}"), home=evil)
        own.create(paths.lineage(kind, kind), seal(note))
    found = read_lineage(own)
    assert [child.reachable for _, child in found.forks] == [False]
    assert json.dumps(found.describe())
