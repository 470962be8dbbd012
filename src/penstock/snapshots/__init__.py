"""Snapshots that people operate: savepoints, and the epochs of jobs, read, edited, built, compared, restored,
replayed.

    from penstock import snapshots

    with snapshots.read("savepoints/monday") as monday:
        monday.state("ledger", "orders").to_pandas()

Rooms, each of which imports those after it: `diff/`, `edit/`, `view/` and `replay/`, `restore/`, `savepoint/`. May
import everything but what a person writes (`api/`, `running/`); `pyspark` is not imported here.
"""

from penstock.snapshots.diff.comparing import Change, SnapshotDiff, StateDiff, diff
from penstock.snapshots.diff.output_diff import OutputDiff, diff_output
from penstock.snapshots.edit.building import SnapshotBuilder, build
from penstock.snapshots.edit.editing import SnapshotEditor, StateEditor, edit
from penstock.snapshots.edit.regrouping import regroup
from penstock.snapshots.replay.replay import replay
from penstock.snapshots.replay.result import Replay, StepReplay
from penstock.snapshots.replay.selection import Replayable, replayable
from penstock.snapshots.restore.preflight import Preflight, check
from penstock.snapshots.view.reading import Snapshot, SnapshotState, read

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
