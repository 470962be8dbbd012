"""What there is: jobs, their steps, states with their schemas."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest
from penstock.query.errors import QueryError
from penstock.server.endpoints import Answer, Call, Endpoint
from penstock.server.routes.reading import tag_of
from penstock.server.served_jobs import ServedJob
from penstock.state.entries.kinds import is_internal


class JobShown(msgspec.Struct, frozen=True):
    """A job. `epoch`: the newest; none while it has committed nothing, or its state is not here yet (then `problem` says why)."""

    name: str
    uuid: str
    epoch: Epoch | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    key_hash: int | None = None
    key_groups: tuple[int, int] | None = None
    finished: bool = False
    replica: bool = False
    lag: int = 0
    """Of a replica: how many epochs of those that are kept its own stores lack."""
    problem: str = ""


class Jobs(msgspec.Struct, frozen=True):
    jobs: list[JobShown]


class StateShown(msgspec.Struct, frozen=True):
    """A state. `schema`, `key_schema`, `map_key_schema`: what its values and keys are; null if that was not declared."""

    name: str
    kind: str
    queryable: bool
    schema: Any = None
    key_schema: Any = None
    map_key_schema: Any = None
    scope: str = "keyed"
    windows: bool = False
    ttl: bool = False
    internal: bool = False


class StepShown(msgspec.Struct, frozen=True):
    name: str
    watermark: int | None
    states: list[StateShown]


class Steps(msgspec.Struct, frozen=True):
    epoch: Epoch
    steps: list[StepShown]


async def list_jobs(call: Call) -> Answer:
    return Answer(body=Jobs([await _shown(job) for job in call.jobs.all()]))


async def show_job(call: Call) -> Answer:
    return Answer(body=await _shown(call.jobs[call.path["job"]]))


async def list_steps(call: Call) -> Answer:
    job = call.jobs[call.path["job"]]
    with await job.reading() as reading:
        return Answer(body=Steps(reading.epoch, _steps(job, reading.manifest)), tag=tag_of(reading))


async def show_step(call: Call) -> Answer:
    job = call.jobs[call.path["job"]]
    with await job.reading() as reading:
        job.catalog.check_step(reading.manifest, call.path["step"])
        found = next(step for step in _steps(job, reading.manifest) if step.name == call.path["step"])
        return Answer(body=found, tag=tag_of(reading))


def _steps(job: ServedJob, manifest: Manifest) -> list[StepShown]:
    watermarks = {step: time for step, time in manifest.watermarks.items() if abs(time) < 2**62}
    return [
        StepShown(
            step,
            watermarks.get(step),
            [
                StateShown(
                    name=info.name,
                    kind=info.kind,
                    queryable=job.catalog.access.allows(info, manifest),
                    schema=info.schema,
                    key_schema=info.key_schema,
                    map_key_schema=info.sub_schema,
                    scope=info.scope,
                    windows=bool(info.namespace),
                    ttl=info.ttl,
                    internal=is_internal(info.kind),
                )
                for info in sorted(infos, key=lambda info: info.name)
            ],
        )
        for step, infos in sorted(job.catalog.steps(manifest).items())
    ]


async def _shown(job: ServedJob) -> JobShown:
    info = job.reader.job
    try:
        with await job.reading() as reading:
            layout, groups = reading.manifest.state, reading.groups
            return JobShown(
                name=info.name,
                uuid=info.job,
                epoch=reading.epoch,
                parallelism=layout.parallelism,
                max_parallelism=layout.max_parallelism,
                key_hash=layout.key_hash,
                key_groups=(groups.start, groups.stop - 1),
                finished=reading.manifest.finished,
                replica=job.reader.replica,
                lag=job.reader.lag,
            )
    except QueryError as error:
        return JobShown(name=info.name, uuid=info.job, problem=error.what)


ENDPOINTS = (
    Endpoint(method="GET", path="/jobs", name="list_jobs", about="The jobs that are served.", handler=list_jobs, answers=Jobs),
    Endpoint(method="GET", path="/jobs/{job}", name="show_job", about="One job.", handler=show_job, answers=JobShown),
    Endpoint(
        method="GET",
        path="/jobs/{job}/steps",
        name="list_steps",
        about="The steps of a job that have state, and their states with their schemas.",
        handler=list_steps,
        answers=Steps,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/steps/{step}",
        name="show_step",
        about="The states of one step.",
        handler=show_step,
        answers=StepShown,
    ),
)
