"""What operators do, as the command line does it: savepoints, stopping, draining, rescaling.

Each is answered with a request, whose outcome is asked for by its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.api.job import Job
from penstock.query.errors import ForbiddenError
from penstock.server.endpoints import Answer, Call, Endpoint
from penstock.server.requested import Requested

Seconds = Annotated[float, Meta(ge=0, le=3600)]


class MakeSavepoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the newest epoch, or of one that is kept. It goes below the job's storage: where to is not for callers to say."""

    epoch: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`drain`: end all time first, for good; that takes the role admin. `savepoint`: make one of the last epoch."""

    drain: bool = False
    savepoint: bool = False
    timeout: Seconds = 60.0


class Rescale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parallelism: Annotated[int, Meta(ge=1, le=32768)]
    timeout: Seconds = 60.0


async def make_savepoint(call: Call) -> Answer:
    asked: MakeSavepoint = call.body

    def work(job: Job) -> tuple[str, dict[str, Any]]:
        info = job.savepoint(epoch=asked.epoch)
        return f"savepoint of epoch {info.epoch}", {
            "uri": info.uri,
            "epoch": info.epoch,
            "entries": info.rows,
            "bytes": info.bytes,
        }

    return _begun(call, "savepoint", work)


async def stop(call: Call) -> Answer:
    asked: Stop = call.body
    if asked.drain and not call.caller.may("admin"):
        raise ForbiddenError("draining a job takes the role admin", hint="a drained job cannot go on")

    def work(job: Job) -> tuple[str, dict[str, Any]]:
        done = job.stop(savepoint=asked.savepoint, drain=asked.drain, timeout=asked.timeout)
        made = None if done.savepoint is None else done.savepoint.uri
        return done.message, {"epoch": done.epoch, "drained": done.drained, "savepoint": made}

    return _begun(call, "drain" if asked.drain else "stop", work)


async def rescale(call: Call) -> Answer:
    asked: Rescale = call.body

    def work(job: Job) -> tuple[str, dict[str, Any]]:
        done = job.rescale(asked.parallelism, timeout=asked.timeout)
        return done.message, {"before": done.before, "parallelism": done.parallelism, "downtime": done.downtime}

    return _begun(call, "rescale", work)


async def show_request(call: Call) -> Answer:
    return Answer(body=call.jobs[call.path["job"]].requests.find(call.path["id"]))


def _begun(call: Call, kind: str, work: Callable[[Job], tuple[str, dict[str, Any]]]) -> Answer:
    served = call.jobs[call.path["job"]]
    made = served.requests.begin(kind, call.caller.name, lambda: work(Job(served.storage.uri)))
    return Answer(body=made, status=202)


def _endpoint(path: str, name: str, about: str, handler: Any, body: type[msgspec.Struct]) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/jobs/{job}" + path,
        name=name,
        about=about,
        handler=handler,
        role="operator",
        body=body,
        answers=Requested,
        errors=(202, 409),
    )


ENDPOINTS = (
    _endpoint(
        "/savepoints",
        "make_savepoint",
        "Make a savepoint of a job, running or stopped.",
        make_savepoint,
        MakeSavepoint,
    ),
    _endpoint("/stop", "stop_job", "Stop the running job after its current epoch.", stop, Stop),
    _endpoint("/rescale", "rescale_job", "Let the running job go on with another parallelism.", rescale, Rescale),
    Endpoint(
        method="GET",
        path="/jobs/{job}/requests/{id}",
        name="show_request",
        about="A request, and what has come of it.",
        handler=show_request,
        role="operator",
        answers=Requested,
    ),
)
