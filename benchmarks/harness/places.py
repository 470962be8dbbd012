"""Where the benchmarks keep things: all of it under build/, all of it safe to delete."""

from __future__ import annotations

import shutil
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
SOURCE = ROOT / "src"
"""The Penstock that is measured, unless another one is asked for."""
DATA = ROOT / "build" / "bench-data"
RUNS = ROOT / "build" / "bench-runs"
PEERS = ROOT / "build" / "peers"
COMMITS = ROOT / "build" / "commits"
"""Worktrees of other commits."""


def fresh_folder(*names: str) -> Path:
    """An empty folder for one run of one contender."""
    folder = RUNS.joinpath(*names)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
