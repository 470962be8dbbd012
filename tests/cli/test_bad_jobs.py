"""`penstock jobs` over jobs with bad files: one row says what is wrong with that job, the others are as ever."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import CorruptFileError
from penstock.ids import Epoch, Term
from penstock.jobs.lease import read_lease
from penstock.jobs.manifest import encode_manifest, load_manifest
from penstock.jobs.pins import pinned
from penstock.jobs.requests import Inbox
from penstock.jobs.status import read_status
from penstock.jobs.terms import read_job, read_term
from penstock.storage import LocalStorage
from penstock.storage.documents import LIST_BYTES, MANIFEST_BYTES, NOTE_BYTES, read_small
from tests.laws.trying import run

DEEP = b'{"version":' + b"[" * 200_000


def deep(path: Path) -> None:
    path.write_bytes(DEEP)


def no_text(path: Path) -> None:
    path.write_bytes(b'{"name": "\xff\xfe"}')


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)  # takes no room on the disk


def jobs(root: Path) -> dict[str, dict[str, Any]]:
    done = CliRunner().invoke(app, ["jobs", str(root), "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return {os.path.basename(job["storage"]): job for job in json.loads(done.stdout)}


def newest(job: Path) -> Path:
    return max((job / "epochs").glob("*.json"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("bad", "good"):
        run(tmp_path / name, storage=str(tmp_path / "jobs" / name))
    return tmp_path / "jobs"


@pytest.mark.parametrize("spoil", [deep, no_text, huge])
@pytest.mark.parametrize("file", ["job.json", "a manifest"])
def test_one_row_says_what_is_wrong(root: Path, file: str, spoil: Callable[[Path], None]) -> None:
    spoil(newest(root / "bad") if file == "a manifest" else root / "bad" / file)
    found = jobs(root)
    assert (found["good"]["condition"], found["good"]["problem"]) == ("finished", "")
    assert found["bad"]["condition"] == "damaged"
    assert (newest(root / "bad").name if file == "a manifest" else file) in found["bad"]["problem"]
    if spoil is huge:
        assert "is too large: 3,221,225,472 bytes" in found["bad"]["problem"]
    shown = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["jobs", str(root)])
    assert shown.exit_code == 0
    assert "damaged: " in shown.stdout


@pytest.mark.parametrize("spoil", [deep, no_text, huge])
@pytest.mark.parametrize("file", ["status.json", "lease.json", "terms/000001.json"])
def test_what_only_informs_is_left_out(root: Path, file: str, spoil: Callable[[Path], None]) -> None:
    spoil(root / "bad" / file)
    assert {name: job["name"] for name, job in jobs(root).items()} == {"bad": "numbers", "good": "numbers"}
    storage = LocalStorage(root / "bad")
    if file == "status.json":
        assert read_status(storage) is None
    elif file == "lease.json":
        assert read_lease(storage) is None
    else:
        assert read_term(storage, Term(1)) is None


@pytest.mark.parametrize("spoil", [deep, no_text, huge])
def test_requests_and_pins_are_passed_over(root: Path, spoil: Callable[[Path], None]) -> None:
    for folder, name in (("requests", "1700000000000-0123abcd"), ("pins", "0123456789abcdef" * 2)):
        (root / "bad" / folder).mkdir(exist_ok=True)
        spoil(root / "bad" / folder / f"{name}.json")
    storage = LocalStorage(root / "bad")
    assert Inbox(storage).pending() == []
    assert pinned(storage) == set()


def test_folders_whose_names_are_no_text(root: Path) -> None:
    os.rename(root / "bad", os.fsencode(root) + b"/b\xffd\n")
    assert len(jobs(root)) == 2
    shown = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["jobs", str(root)])
    assert shown.exit_code == 0, shown.exception


def test_a_large_manifest_that_is_whole_is_read(root: Path) -> None:
    storage = LocalStorage(root / "good")
    path = newest(root / "good")
    manifest = load_manifest(storage, Epoch(int(path.stem)))
    sources = {step: type(state)(position="x" * (30 << 20)) for step, state in manifest.sources.items()}
    whole = type(manifest)(**{**{f: getattr(manifest, f) for f in manifest.__struct_fields__}, "sources": sources})
    path.write_bytes(encode_manifest(whole))
    assert jobs(root)["good"]["condition"] == "finished"


@pytest.mark.parametrize("limit", [NOTE_BYTES, LIST_BYTES, MANIFEST_BYTES])
def test_a_file_of_its_limit_is_read_and_no_larger_one(tmp_path: Path, limit: int) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", limit + 1)
    with pytest.raises(CorruptFileError, match="too large"):
        read_small(storage, "file", limit)
    if limit < MANIFEST_BYTES:
        os.truncate(tmp_path / "file", limit)
        assert len(read_small(storage, "file", limit)) == limit


@pytest.mark.parametrize("spoil", [deep, no_text, huge])
def test_a_start_says_which_file_it_is(root: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(root / "bad" / "job.json")
    with pytest.raises(CorruptFileError, match=r"job\.json"):
        read_job(LocalStorage(root / "bad"))
    with pytest.raises(CorruptFileError, match=r"job\.json"):
        run(tmp_path / "bad", storage=str(root / "bad"))
