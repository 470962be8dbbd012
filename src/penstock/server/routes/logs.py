"""What a job's driver has logged."""

from __future__ import annotations

import asyncio

import msgspec

from penstock.jobs.metrics.kept_log import LINES, LogLine, read_log
from penstock.server.endpoints import Answer, Call, Endpoint, Parameter

MANY = Parameter(name="lines", kind="integer", least=1, most=LINES, about="The last so many lines; 100 if it is not given.")


class LogShown(msgspec.Struct, frozen=True):
    """Oldest first."""

    job: str
    lines: list[LogLine]


async def show_log(call: Call) -> Answer:
    job = call.jobs[call.path["job"]]
    lines = await asyncio.to_thread(read_log, job.storage)
    return Answer(body=LogShown(job.name, lines[-call.query.get("lines", 100) :]))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs/{job}/log",
        name="show_log",
        about="The last lines that the driver's process has logged, secrets masked.",
        handler=show_log,
        role="operator",
        parameters=(MANY,),
        answers=LogShown,
    ),
)
