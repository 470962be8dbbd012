"""Metrics of jobs: now, of the last hours, and as Prometheus takes them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from penstock.jobs.metrics.job_metrics import PERIOD_MS, PERIODS, JobMetrics, Point, read_history, read_metrics
from penstock.server.endpoints import Answer, Call, Endpoint, Parameter
from penstock.server.metrics.prometheus import CONTENT_TYPE, exposition

MINUTES = Parameter(
    name="minutes", kind="integer", least=1, most=PERIODS * PERIOD_MS // 60_000, about="How far back; 60 if it is not given."
)


class MetricsShown(msgspec.Struct, frozen=True):
    """What a job does. `metrics`: null until its first epoch is committed; `told_s_ago`: how old they are."""

    job: str
    metrics: JobMetrics | None
    told_s_ago: float | None
    snapshot_age_s: float | None


class HistoryShown(msgspec.Struct, frozen=True):
    """The last hours, by ten seconds, oldest first. Where the job did not run there are no points."""

    job: str
    points: list[Point]


async def show_metrics(call: Call) -> Answer:
    job = call.jobs[call.path["job"]]
    now_ms = time.time() * 1000
    found = await asyncio.to_thread(read_metrics, job.storage)
    told = None if found is None else max(0.0, now_ms - found.at_ms) / 1000
    age = None if found is None or found.committed_ms is None else max(0.0, now_ms - found.committed_ms) / 1000
    return Answer(body=MetricsShown(job.name, found, told, age))


async def show_history(call: Call) -> Answer:
    job = call.jobs[call.path["job"]]
    now_ms = round(time.time() * 1000)
    since_ms = now_ms - call.query.get("minutes", 60) * 60_000
    points = await asyncio.to_thread(read_history, job.storage, now_ms, since_ms)
    return Answer(body=HistoryShown(job.name, points))


async def prometheus(call: Call) -> Answer:
    def read() -> list[JobMetrics]:
        found = ((job.name, read_metrics(job.storage)) for job in call.jobs.all())
        return [msgspec.structs.replace(one, name=name) for name, one in found if one is not None]

    jobs = await asyncio.to_thread(read)
    text: Any = exposition(jobs, round(time.time() * 1000), call.jobs.measures.registry)
    return Answer(encoded=text, content_type=CONTENT_TYPE)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs/{job}/metrics",
        name="show_metrics",
        about="What a job does now, by step.",
        handler=show_metrics,
        answers=MetricsShown,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/metrics/history",
        name="show_history",
        about="What a job did in the last hours.",
        handler=show_history,
        parameters=(MINUTES,),
        answers=HistoryShown,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        root="",
        name="prometheus",
        about="Metrics of all jobs and of the server, for Prometheus.",
        handler=prometheus,
        content_type="text/plain",
    ),
)
