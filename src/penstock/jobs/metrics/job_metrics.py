"""`metrics/` in a job's storage: what a job does, for people and tools. The engine never reads it.

    metrics/latest.json   now: replaced every other second while the job runs
    metrics/00.json …     the last hours: a file for each ten minutes, used again after six hours

Law: both are bounded, whatever the job does and however long it runs; a file of a version that is not known is passed over.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Epoch, Milliseconds
from penstock.jobs import paths
from penstock.storage import Storage
from penstock.storage.documents import LIST_BYTES, decode_json, read_small

VERSION = 1

Told = TypeVar("Told", "JobMetrics", "Period")

EVERY_MS = 2_000
POINT_MS = 10_000
PERIOD_MS = 600_000
PERIODS = 36

PHASES = ("run", "wait", "files", "manifest", "publish")
"""Of an epoch: its tasks; the commits before its own; files of state; the manifest; sinks and the done mark."""


class StepNow(msgspec.Struct, omit_defaults=True):
    """One step. Counts are of the present run of the job; `backlog`: of a source, about how many records it has not read."""

    records_in: int = 0
    records_out: int = 0
    late: int = 0
    skipped: int = 0
    dead_letters: int = 0
    records_in_per_second: float = 0.0
    busy: float = 0.0
    watermark_ms: Milliseconds | None = None
    watermark_lag_ms: Milliseconds | None = None
    backlog: int | None = None


class JobMetrics(msgspec.Struct, omit_defaults=True):
    """`metrics/latest.json`. Counts are of the present run, which began at `started_ms`."""

    name: str
    started_ms: Milliseconds
    at_ms: Milliseconds = 0
    state: str = ""
    epoch: Epoch | None = None
    committed_ms: Milliseconds | None = None
    """When that epoch was committed."""
    epochs: int = 0
    restarts: int = 0
    records_in: int = 0
    records_out: int = 0
    records_in_per_second: float = 0.0
    epoch_seconds: float = 0.0
    """Of all epochs together, from their beginning to their commit."""
    phase_seconds: dict[str, float] = {}
    """Of all epochs together; epochs that are committed together share their commit."""
    state_entries: int | None = None
    state_bytes: int | None = None
    """In the job's storage."""
    shed: int = 0
    steps: dict[str, StepNow] = {}
    version: int = VERSION


class Point(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ten seconds of a job; counts are of these. `steps`: records in and out, busy, watermark lag, backlog."""

    at_ms: Milliseconds
    epoch: Epoch | None
    epochs: int
    records_in: int
    records_out: int
    epoch_ms: float | None = None
    """On average."""
    longest_epoch_ms: float | None = None
    state_entries: int | None = None
    state_bytes: int | None = None
    restarts: int = 0
    steps: dict[str, tuple[int, int, float, Milliseconds | None, int | None]] = {}


class Period(msgspec.Struct, frozen=True):
    """A file of the history. `number`: of the ten minutes, since 1970."""

    number: int
    points: list[Point]
    version: int = VERSION


def read_metrics(storage: Storage) -> JobMetrics | None:
    """What a job's driver last wrote; None if there is nothing that can be read."""
    return _read(storage, paths.LATEST_METRICS, JobMetrics)


def read_period(storage: Storage, number: int) -> Period | None:
    """Ten minutes of the history, if they are kept."""
    found = _read(storage, paths.metrics_period(number % PERIODS), Period)
    return found if found is not None and found.number == number else None


def read_history(storage: Storage, now_ms: Milliseconds, since_ms: Milliseconds) -> list[Point]:
    """The points since a time, oldest first. Those of the last hours alone are kept."""
    last = now_ms // PERIOD_MS
    first = max(since_ms // PERIOD_MS, last - PERIODS + 1)
    periods = [read_period(storage, number) for number in range(first, last + 1)]
    return [point for period in periods if period is not None for point in period.points if point.at_ms >= since_ms]


def _read(storage: Storage, path: str, kind: type[Told]) -> Told | None:
    try:
        found = decode_json(read_small(storage, path, LIST_BYTES), kind, path)
    except (NotFoundError, CorruptFileError):
        return None
    return found if found.version <= VERSION else None
