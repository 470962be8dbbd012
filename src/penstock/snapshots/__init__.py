"""Snapshots that people operate: savepoints, and the epochs of jobs, read, edited, built, compared, restored,
replayed.

    from penstock import snapshots

    with snapshots.read("savepoints/monday") as monday:
        monday.state("ledger", "orders").to_pandas()

May import everything below it; `pyspark` is not imported here.
"""

from penstock.snapshots.building import SnapshotBuilder, build
from penstock.snapshots.comparing import Change, SnapshotDiff, StateDiff, diff
from penstock.snapshots.editing import SnapshotEditor, StateEditor, edit
from penstock.snapshots.output_diff import OutputDiff, diff_output
from penstock.snapshots.preflight import Preflight, check
from penstock.snapshots.reading import Snapshot, SnapshotState, read
from penstock.snapshots.regrouping import regroup
from penstock.snapshots.replaying.choice import Replayable, replayable
from penstock.snapshots.replaying.replay import replay
from penstock.snapshots.replaying.result import Replay, StepReplay

__all__ = [
    "Change",
    "OutputDiff",
    "Preflight",
    "Replay",
    "Replayable",
    "Snapshot",
    "SnapshotBuilder",
    "SnapshotDiff",
    "SnapshotEditor",
    "SnapshotState",
    "StateDiff",
    "StateEditor",
    "StepReplay",
    "build",
    "check",
    "diff",
    "diff_output",
    "edit",
    "read",
    "regroup",
    "replay",
    "replayable",
]
