"""Snapshots that people operate: savepoints, and the epochs of jobs, read, edited, built, compared, restored.

    from penstock import snapshots

    with snapshots.read("savepoints/monday") as monday:
        monday.state("ledger", "orders").to_pandas()

May import everything below it; `pyspark` is not imported here.
"""

from penstock.snapshots.building import SnapshotBuilder, build
from penstock.snapshots.comparing import Change, SnapshotDiff, StateDiff, diff
from penstock.snapshots.editing import SnapshotEditor, StateEditor, edit
from penstock.snapshots.output_diff import OutputDiff, diff_output
from penstock.snapshots.reading import Snapshot, SnapshotState, read
from penstock.snapshots.regrouping import regroup

__all__ = [
    "Change",
    "OutputDiff",
    "Snapshot",
    "SnapshotBuilder",
    "SnapshotDiff",
    "SnapshotEditor",
    "SnapshotState",
    "StateDiff",
    "StateEditor",
    "build",
    "diff",
    "diff_output",
    "edit",
    "read",
    "regroup",
]
