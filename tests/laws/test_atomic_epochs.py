"""Law: atomic epochs. Wherever a driver dies, positions, state and output of an epoch are all there or all not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import failpoints
from penstock.epochs.committing import commit_protocol, group_commit
from penstock.epochs.committing.group_commit import GroupCommit
from penstock.epochs.starting import sequence
from penstock.jobs.manifest import Manifest
from tests.laws.trying import Crash, breaks, check_exact, run

PLACES = [
    "source:planned",
    "epoch:ran",
    "manifest:before",
    "manifest:after",
    "sink:committed",
    "done:before",
    "retention:retired",
    "task:read",
    "task:frame",
    "task:prepare",
    "task:delta",
    "half-written:delta",
    "half-written:json",
    "compaction:write",
    "recovery:before-commit",
    "recovery:committed",
    "recovery:taken-over",
]


def check_crashes(folder: Path, place: str, patch: pytest.MonkeyPatch) -> None:
    """Die at a place, again and again, each time one passing later; then finish."""
    patch.setattr(failpoints, "_act", _die)
    for passing in (1, 2, 3, 5):
        failpoints.arm(f"{place}=crash@{passing}")
        try:
            run(folder)
        except Crash:
            pass
        finally:
            failpoints.arm("")
    run(folder)
    check_exact(folder)


def _die(name: str) -> None:
    _, count = failpoints._armed[name]
    failpoints._passed[name] = failpoints._passed.get(name, 0) + 1
    if failpoints._passed[name] == count:
        raise Crash(name)


@pytest.mark.parametrize("place", PLACES)
def test_a_driver_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    check_crashes(tmp_path, place, monkeypatch)


def test_it_fails_when_recovery_does_not_finish_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "finish_commits", lambda *args, **options: None)
    monkeypatch.setattr(sequence, "confirm_output", lambda *args: None)  # which finds the output missing, and publishes it
    breaks(lambda: check_crashes(tmp_path, "manifest:after", monkeypatch))


def test_it_fails_when_sinks_are_committed_before_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(self: GroupCommit, manifest: Manifest) -> None:
        commit_protocol.commit_sinks(self.committers, manifest.committables, manifest.epoch)
        commit_protocol.write_manifest(self.setup.storage, manifest)
        commit_protocol.mark_done(self.setup.storage, manifest.epoch)
        self.retention.committed(manifest)

    monkeypatch.setattr(GroupCommit, "publish", backwards)
    monkeypatch.setattr(group_commit, "turn_back", lambda committers, manifest, guarantee: None)  # or the next start mends it
    breaks(lambda: check_crashes(tmp_path, "manifest:before", monkeypatch))


def test_it_fails_when_a_file_becomes_visible_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that writes in place: what is half-written has its name already."""
    from penstock.storage.local import LocalStorage

    def in_place(self: LocalStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        target = Path(self.root) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            failpoints.fail_point(f"half-written:{path.rpartition('.')[2]}")
            file.write(data[len(data) // 2 :])

    monkeypatch.setattr(LocalStorage, "create", in_place)

    def check() -> None:
        try:
            check_crashes(tmp_path, "half-written:json", monkeypatch)
        except FileExistsError as error:
            raise AssertionError("in the way of the next driver") from error

    breaks(check)
