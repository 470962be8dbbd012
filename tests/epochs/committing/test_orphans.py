"""Files that failed attempts left are removed while the job goes on, and no other file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import RestartPolicy
from penstock.epochs.committing import orphans
from penstock.epochs.committing.orphans import settled_orphans
from penstock.epochs.history import EpochRecord
from penstock.errors import EpochFailedError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Term
from penstock.runtime.messages import EpochOrder, TaskReport
from tests.laws.trying import check_exact, manifests, program

AGAIN = RestartPolicy(attempts=5, first_delay=0)


class Failing(InlineExecutor):
    """Every third epoch fails when all its tasks have written what they write."""

    def run(self, order: EpochOrder) -> list[TaskReport]:
        reports = super().run(order)
        if order.plan % 3 == 0:
            raise EpochFailedError("lost")
        return reports


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder / "storage")) for path in (folder / "storage" / "state").rglob("*") if path.is_file()}


def named(folder: Path) -> set[str]:
    return {ref.name for manifest in manifests(folder) for stage in manifest.state.chains for chain in stage for ref in chain}


def plan_of(path: str) -> str:
    return Path(path).name.split("-")[2]


def run_failing(folder: Path, *, soon: bool, patch: pytest.MonkeyPatch) -> list[set[str]]:
    """Run with failures; after each epoch, the files that no manifest names."""
    patch.setattr(orphans, "AFTER_A_FAILURE_S", 0.0 if soon else 1000.0)
    left: list[set[str]] = []

    def look(record: EpochRecord) -> None:
        assert named(folder) <= files(folder)
        left.append(files(folder) - named(folder))

    env = program(folder, restart=AGAIN, keep=1000)
    result = env.execute(executor=Failing(), listener=look)
    assert result.restarts > 3
    check_exact(folder)
    return left


def test_they_go_while_the_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = run_failing(tmp_path, soon=True, patch=monkeypatch)
    failed = [{plan_of(path) for path in paths if "-c" not in path} for paths in left]
    assert all(len(plans) <= 1 for plans in failed), failed  # at most those of the failure just before
    assert not failed[-1] or failed[-1] != failed[-3]


def test_without_the_sweep_they_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = run_failing(tmp_path, soon=False, patch=monkeypatch)
    assert len({plan_of(path) for path in left[-1] if "-c" not in path}) > 3


def test_what_may_go() -> None:
    def path(attempt: str) -> str:
        return f"state/s1/p0/0000000009-{attempt}.delta"

    attempts = ["7-4-1-0-1", "7-4-1-0-2", "7-5-1-0-1", "7-6-1-0-1", "6-4-1-0-1", "8-1-1-0-1", "7-c1", "7-c2", "6-c1"]
    listed = [*map(path, attempts), "state/imported/abc/part-0.parquet", "state/s1/p0/notes.txt"]
    found = settled_orphans(listed, Term(7), 5, {path("7-4-1-0-1")}, {"7-c2"})
    assert found == [path("7-4-1-0-2"), path("7-5-1-0-1"), path("7-c1")]
