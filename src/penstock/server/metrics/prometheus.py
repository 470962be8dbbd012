"""Metrics of jobs in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.jobs.metrics.job_metrics import JobMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, eq=False)
class JobsCollector(Collector):
    """Those of some jobs, as of one moment."""

    jobs: Sequence[JobMetrics]
    now_ms: int

    def collect(self) -> Iterable[Metric]:
        yield from self._of_jobs()
        yield from self._of_steps()

    def _of_jobs(self) -> Iterable[Metric]:
        jobs = self.jobs
        yield _counter("records_in", "Records read.", ((one.name, one.records_in) for one in jobs))
        yield _counter("records_out", "Records written by sinks.", ((one.name, one.records_out) for one in jobs))
        yield _counter("epochs", "Epochs committed.", ((one.name, one.epochs) for one in jobs))
        yield _counter("restarts", "Times that a failed epoch was begun again.", ((one.name, one.restarts) for one in jobs))
        yield _counter("records_shed", "Records of the input that are never read.", ((one.name, one.shed) for one in jobs))
        yield _counter(
            "epoch_seconds", "Time from the beginning of epochs to their commit.", ((one.name, one.epoch_seconds) for one in jobs)
        )
        phases = CounterMetricFamily("penstock_epoch_phase_seconds", "The same, by phase.", labels=["job", "phase"])
        for one in jobs:
            for phase, seconds in one.phase_seconds.items():
                phases.add_metric([one.name, phase], seconds)
        yield phases
        yield _gauge("epoch", "The newest committed epoch.", ((one.name, one.epoch) for one in jobs))
        yield _gauge("state_entries", "Entries of keyed state.", ((one.name, one.state_entries) for one in jobs))
        yield _gauge("state_bytes", "Size of the committed state in the storage.", ((one.name, one.state_bytes) for one in jobs))
        yield _gauge(
            "snapshot_age_seconds", "Time since the newest epoch was committed.", ((one.name, self._age(one)) for one in jobs)
        )
        yield _gauge("metrics_age_seconds", "Time since the driver told these.", ((one.name, self._told(one)) for one in jobs))

    def _of_steps(self) -> Iterable[Metric]:
        labels = ["job", "step"]
        for name, about in (
            ("records_in", "Records that came to a step."),
            ("records_out", "Records that a step gave."),
            ("late", "Records that came too late."),
            ("skipped", "Records that a function failed on, and that were left out."),
            ("dead_letters", "Records that a function failed on, and that went to the dead letters."),
        ):
            counter = CounterMetricFamily(f"penstock_step_{name}", about, labels=labels)
            for job in self.jobs:
                for step, now in job.steps.items():
                    counter.add_metric([job.name, step], getattr(now, name))
            yield counter
        for name, field, scale, about in (
            ("busy_ratio", "busy", 1, "Share of the time that a step was at work."),
            ("watermark_seconds", "watermark_ms", 1000, "Event time that a step has reached."),
            ("watermark_lag_seconds", "watermark_lag_ms", 1000, "How far event time is behind the clock."),
            ("backlog", "backlog", 1, "Records that a source has not read, as far as it knows."),
        ):
            gauge = GaugeMetricFamily(f"penstock_step_{name}", about, labels=labels)
            for job in self.jobs:
                for step, now in job.steps.items():
                    value = getattr(now, field)
                    if value is not None:
                        gauge.add_metric([job.name, step], value / scale)
            yield gauge

    def _age(self, job: JobMetrics) -> float | None:
        return None if job.committed_ms is None else max(0, self.now_ms - job.committed_ms) / 1000

    def _told(self, job: JobMetrics) -> float:
        return max(0, self.now_ms - job.at_ms) / 1000


def exposition(jobs: Sequence[JobMetrics], now_ms: int, *registries: CollectorRegistry) -> bytes:
    """All of it, in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobsCollector(jobs, now_ms))
    return b"".join(generate_latest(one) for one in (registry, *registries))


def _counter(name: str, about: str, values: Iterable[tuple[str, float]]) -> Metric:
    found = CounterMetricFamily(f"penstock_job_{name}", about, labels=["job"])
    for job, value in values:
        found.add_metric([job], value)
    return found


def _gauge(name: str, about: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    found = GaugeMetricFamily(f"penstock_job_{name}", about, labels=["job"])
    for job, value in values:
        if value is not None:
            found.add_metric([job], value)
    return found
