"""What a step has counted: in a task's report, and in the manifest of the epoch."""

from __future__ import annotations

import msgspec


class StepMetrics(msgspec.Struct):
    """Counts of one step in one task."""

    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    busy_s: float = 0.0
    """How long its operator was running; of several tasks, of all together."""
    counters: dict[str, int] = {}
