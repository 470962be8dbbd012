"""Jobs and savepoints of the time when keys were grouped by crc32 go on with it, until a savepoint is rewritten."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from penstock import CollectSink, snapshots
from penstock.errors import ConfigError
from penstock.jobs.manifest import Manifest
from penstock.jobs.terms import find_head, read_job
from penstock.state.key_groups import CRC32, MIXED, KeyGroups
from penstock.storage import open_storage
from tests.compat.make import output
from tests.compat.program import program

HERE = Path(__file__).parent
OLD, NEW = HERE / "0.1.0-crc32", HERE / "0.1.0"
HASHES = {OLD: CRC32, NEW: MIXED}
END = 10**9


def expected(folder: Path) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in json.loads((folder / "expected.json").read_text()))


def head(storage: Path) -> Manifest:
    manifest = find_head(open_storage(str(storage))).manifest
    assert manifest is not None
    return manifest


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The storage of the old job."""
    return Path(shutil.copytree(OLD / "storage", tmp_path / "old"))


def test_the_fixture_is_old() -> None:
    for file in [OLD / "savepoint" / "savepoint.json", *(OLD / "storage").rglob("*.json")]:
        assert "key_hash" not in file.read_text()
    assert head(OLD / "storage").state.key_hash == CRC32
    assert head(NEW / "storage").state.key_hash == MIXED


@pytest.mark.parametrize("folder", [OLD, NEW], ids=lambda folder: folder.name)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_goes_on_with_its_hash(folder: Path, tmp_path: Path, parallelism: int) -> None:
    """At any parallelism. What it writes, an older Penstock can read if it could before."""
    storage = Path(shutil.copytree(folder / "storage", tmp_path / "job"))
    before = head(storage)
    assert output(storage=str(storage), parallelism=parallelism, until=END) == expected(folder)
    after = head(storage)
    assert after.state.key_hash == before.state.key_hash == HASHES[folder]
    assert after.version == before.version == HASHES[folder]


def test_an_old_job_is_rescaled_again_and_again(old: Path) -> None:
    found: Counter[str] = Counter()
    for parallelism in (3, 1, 4):
        found += output(storage=str(old), parallelism=parallelism, epochs=2)
    found += output(storage=str(old), parallelism=2, until=END)
    assert found == expected(OLD)
    assert head(old).state.key_groups == KeyGroups(4, CRC32)


def test_max_parallelism_need_not_be_said(old: Path, tmp_path: Path) -> None:
    """A job keeps its own, and a new one that of what it starts from."""
    assert output(storage=str(old), max_parallelism=None, until=END) == expected(OLD)
    fork = tmp_path / "fork"
    assert output(storage=str(fork), restore_from=str(OLD / "savepoint"), max_parallelism=None, until=END) == expected(OLD)
    assert read_job(open_storage(str(fork))).max_parallelism == 4
    with pytest.raises(ConfigError, match="parallelism is 5, max_parallelism 4"):
        output(storage=str(old), max_parallelism=None, parallelism=5, until=END)
    other = tmp_path / "other"
    with pytest.raises(ConfigError, match="parallelism is 5, max_parallelism 4"):
        output(storage=str(other), restore_from=str(OLD / "savepoint"), max_parallelism=None, parallelism=5, until=END)
    assert not (other / "job.json").exists()


def test_a_fork_keeps_the_hash(old: Path, tmp_path: Path) -> None:
    for number, source in enumerate((str(OLD / "savepoint"), f"{old}@latest", f"{old}@14")):
        fork = tmp_path / f"fork-{number}"
        assert output(storage=str(fork), restore_from=source, parallelism=3, until=END) == expected(OLD)
        assert head(fork).state.key_groups == KeyGroups(4, CRC32)
        assert head(fork).version == 1


@pytest.mark.parametrize("most", [None, 4, 64])
def test_a_rewritten_savepoint_starts_a_new_job(tmp_path: Path, most: int | None) -> None:
    info = snapshots.regroup(str(OLD / "savepoint"), most, str(tmp_path / "rewritten"))
    assert (info.version, info.key_groups) == (2, KeyGroups(most or 4, MIXED))
    assert snapshots.diff(str(OLD / "savepoint"), info.uri).same
    storage = tmp_path / "job"
    assert output(storage=str(storage), restore_from=info.uri, max_parallelism=None, parallelism=3, until=END) == expected(OLD)
    assert head(storage).state.key_groups == info.key_groups
    assert head(storage).version == 2


def test_an_old_job_is_converted_in_its_own_storage(old: Path, tmp_path: Path) -> None:
    """And can go back to an epoch from before, which is still grouped as it was."""
    rewritten = snapshots.regroup(str(old), None, str(tmp_path / "rewritten")).uri
    found = output(storage=str(old), restore_from=rewritten, epochs=3, keep=20)
    assert head(old).state.key_groups == KeyGroups(4, MIXED)
    assert found + output(storage=str(old), parallelism=3, until=END, keep=20) == expected(OLD)
    again = output(storage=str(old), restore_from=f"{old}@14", repeat_output=True, until=END)
    assert again == expected(OLD)
    assert head(old).state.key_groups == KeyGroups(4, CRC32)


def test_another_number_of_key_groups_needs_a_new_storage(old: Path, tmp_path: Path) -> None:
    rewritten = snapshots.regroup(str(old), 64, str(tmp_path / "rewritten")).uri
    for most in (None, 4):
        with pytest.raises(ConfigError, match="has 64 key groups; the job's max_parallelism is 4") as refused:
            output(storage=str(old), restore_from=rewritten, max_parallelism=most, until=END)
        assert "a new storage and new folders for its sinks" in refused.value.hint


def test_an_edited_savepoint_keeps_the_hash(tmp_path: Path) -> None:
    with snapshots.edit(str(OLD / "savepoint")) as edit:
        edit.state("account", "number").put([{"key": "key 3", "value": 1000}])
        info = edit.write(str(tmp_path / "edited"))
    assert info.key_groups == KeyGroups(4, CRC32)
    with snapshots.read(info.uri) as found:
        numbers = found.state("account", "number")
        assert numbers.get("key 3") == 1000
        assert None not in [numbers.get(f"key {n}") for n in range(12)]
    rows = output(storage=str(tmp_path / "job"), restore_from=info.uri, until=END)
    numbered = [row["number"] for row in map(json.loads, rows) if row["step"] == "account" and row["key"] == "key 3"]
    assert min(numbered) == 1001


def test_an_epoch_of_an_old_job_is_replayed(old: Path, tmp_path: Path) -> None:
    """All of it is reproduced but one state with a ttl in event time, which expired by batch then, and does by record now."""
    sink = CollectSink()
    replayed = snapshots.replay(old, 14, env=program(sink), step="account", record=str(tmp_path / "case.json"))
    (difference,) = replayed.verdict.differences
    assert replayed.verdict.more == 0
    assert (difference.step, difference.what, difference.key) == ("account", "state 'recent'", "key 0")
    assert (difference.committed, difference.replayed) == ([53, 93, 32], [13, 53, 93, 32])  # 13 has not expired yet
    assert json.loads((tmp_path / "case.json").read_text())["key_hash"] == CRC32
    sink.discard()
