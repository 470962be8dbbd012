"""Counts what epochs did, and writes it to `metrics/` while a job runs: a listener like any other.

What an epoch costs is a few additions for each step; what is written is written by a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from penstock.epochs.clock import Clock
from penstock.epochs.history import EpochRecord, JobResult
from penstock.epochs.lifecycle import State
from penstock.epochs.rates import RecentBusy, RecentRate
from penstock.errors import FencedError
from penstock.jobs import paths
from penstock.jobs.metrics.job_metrics import (
    EVERY_MS,
    PERIOD_MS,
    PERIODS,
    POINT_MS,
    JobMetrics,
    Period,
    Point,
    StepNow,
    read_period,
)
from penstock.storage import Storage

log = logging.getLogger("penstock")


class MetricsWriter:
    """A `RunListener` and `StateListener`. Until its first epoch is committed it writes nothing: the storage may be another's."""

    def __init__(self, storage: Storage, name: str, clock: Clock | None = None) -> None:
        self._storage = storage
        self._clock = clock or Clock()
        self._counting = threading.Lock()
        self._due = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None
        self._state = ""
        self.started(name, "")

    # --- what is heard of

    def started(self, name: str, storage: str) -> None:
        """A standby may run the job several times."""
        now = self._clock.now_ms()
        self._now = JobMetrics(name, started_ms=now, state=self._state)
        self._rate, self._busy = RecentRate(), RecentBusy()
        self._step_rates: dict[str, RecentRate] = {}
        self._since = now
        self._base = _copied(self._now)
        self._longest = 0.0
        self._period: Period | None = None

    def entered(self, state: State) -> None:
        with self._counting:
            self._state = self._now.state = state
            self._now.restarts += state == "recovering"

    def __call__(self, record: EpochRecord) -> None:
        with self._counting:
            self._count(record)
        if self._thread is None:
            self._over = False
            self._thread = threading.Thread(target=self._serve, name="penstock-metrics", daemon=True)
            self._thread.start()

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._over = True
        self._due.set()
        thread.join(5)
        self._due.clear()
        if not isinstance(error, FencedError):
            self.write(last=True)

    def _count(self, record: EpochRecord) -> None:
        now, at = self._now, time.monotonic()
        self._rate.add(at, record.records_in, record.seconds)
        self._busy.add(record.run_seconds, record.busy)
        now.epoch, now.committed_ms = record.epoch, record.committed_ms
        now.epochs += 1
        now.records_in += record.records_in
        now.records_out += record.records_out
        now.epoch_seconds += record.seconds
        now.shed += record.shed
        self._longest = max(self._longest, record.seconds)
        for phase, seconds in record.phases.items():
            now.phase_seconds[phase] = now.phase_seconds.get(phase, 0.0) + seconds
        if record.state_entries is not None:
            now.state_entries = record.state_entries
        if record.state_bytes is not None:
            now.state_bytes = record.state_bytes
        for name, (came, went) in record.steps.items():
            step = now.steps.get(name)
            if step is None:
                step = now.steps[name] = StepNow()
                self._step_rates[name] = RecentRate()
            step.records_in += came
            step.records_out += went
            step.watermark_lag_ms = record.watermark_lag.get(name)
            self._step_rates[name].add(at, came, record.seconds)
        for name, (late, skipped, dead_letters) in record.left_out_by_step.items():
            step = now.steps[name]
            step.late += late
            step.skipped += skipped
            step.dead_letters += dead_letters
        for name, watermark in record.step_watermarks.items():
            if name in now.steps:
                now.steps[name].watermark_ms = watermark
        for name, backlog in record.backlog.items():
            if name in now.steps:
                now.steps[name].backlog = backlog

    # --- what is written

    def _serve(self) -> None:
        while not self._over:
            self.write()
            self._due.wait(EVERY_MS / 1000)

    def write(self, *, last: bool = False) -> None:
        """Write what there is now, and what is due of the history."""
        with self._counting:
            shown = self._shown()
            longest = self._longest
        self._put(paths.LATEST_METRICS, lambda: msgspec.json.encode(shown))
        if not last and shown.at_ms - self._since < POINT_MS:
            return
        number = shown.at_ms // PERIOD_MS
        try:
            period = self._period or read_period(self._storage, number)
        except OSError as error:
            log.debug("the history of metrics was not read, and is not added to now: %s", error)
            return
        with self._counting:
            self._longest = 0.0
        point = point_between(self._base, shown, longest)
        self._since, self._base = shown.at_ms, shown
        earlier = period.points if period is not None and period.number == number else []
        self._period = written = Period(number, [*earlier, point])
        self._put(paths.metrics_period(number % PERIODS), lambda: msgspec.json.encode(written))

    def _shown(self) -> JobMetrics:
        at = time.monotonic()
        shown = _copied(self._now)
        shown.at_ms = self._clock.now_ms()
        shown.records_in_per_second = round(self._rate.at(at), 1)
        shares = self._busy.shares()
        for name, step in shown.steps.items():
            step.busy = shares.get(name, 0.0)
            step.records_in_per_second = round(self._step_rates[name].at(at), 1)
        return shown

    def _put(self, path: str, data: Callable[[], bytes]) -> None:
        try:
            self._storage.replace(path, data(), durable=False)
        except OSError as error:
            log.debug("%s was not written: %s", path, error)


def point_between(before: JobMetrics, after: JobMetrics, longest: float) -> Point:
    """What happened between two looks. Pure."""
    epochs = after.epochs - before.epochs
    nothing = StepNow()
    steps = {}
    for name, step in after.steps.items():
        then = before.steps.get(name, nothing)
        came, went = step.records_in - then.records_in, step.records_out - then.records_out
        steps[name] = (came, went, step.busy, step.watermark_lag_ms, step.backlog)
    return Point(
        at_ms=after.at_ms,
        epoch=after.epoch,
        epochs=epochs,
        records_in=after.records_in - before.records_in,
        records_out=after.records_out - before.records_out,
        epoch_ms=round((after.epoch_seconds - before.epoch_seconds) * 1000 / epochs, 2) if epochs else None,
        longest_epoch_ms=round(longest * 1000, 2) if epochs else None,
        state_entries=after.state_entries,
        state_bytes=after.state_bytes,
        restarts=after.restarts - before.restarts,
        steps=steps,
    )


def _copied(metrics: JobMetrics) -> JobMetrics:
    return msgspec.structs.replace(
        metrics,
        phase_seconds=dict(metrics.phase_seconds),
        steps={name: msgspec.structs.replace(step) for name, step in metrics.steps.items()},
    )
