"""Snapshots as people operate them: replay an epoch. May import everything below `penstock.api`.

`replay` runs a kept epoch again; `Replay` is what it found.
"""

from penstock.snapshots.replaying.choice import Replayable, replayable
from penstock.snapshots.replaying.replay import replay
from penstock.snapshots.replaying.result import Replay, StepReplay

__all__ = ["Replay", "Replayable", "StepReplay", "replay", "replayable"]
