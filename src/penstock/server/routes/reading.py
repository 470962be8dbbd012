"""What all routes that read state have in common: which epoch, and how an answer says which one it is of."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.ids import Epoch
from penstock.query.errors import BadRequestError
from penstock.query.reading import Reading
from penstock.server.appending import reading_after
from penstock.server.endpoints import Answer, Call, Parameter
from penstock.server.served_jobs import LONGEST_WAIT_S, ServedJob

AT = Parameter(name="at", kind="integer", about="Read this epoch, if it is kept.")
LEAST = Parameter(name="least", kind="integer", about="Read this epoch or a later one; wait for it.")
WAIT = Parameter(
    name="wait",
    kind="number",
    most=LONGEST_WAIT_S,
    about="With least or position: wait so many seconds at most; 10 if it is not given.",
)
POSITION = Parameter(
    name="position",
    longest=1000,
    about="Read an epoch that has read what was appended at this position, or a later one; wait for it.",
)
CONSISTENCY = (AT, LEAST, POSITION, WAIT)

DEFAULT_WAIT_S = 10.0


class Value(msgspec.Struct, frozen=True):
    """What is kept for a key at an epoch. `watermark`: the step's event time, in milliseconds."""

    epoch: Epoch
    watermark: int | None
    value: Any


async def reading_for(
    call: Call, *, at: int | None = None, least: int | None = None, wait: float | None = None
) -> tuple[ServedJob, Reading]:
    """The job of a call, and its state at the epoch that its query asks for, or what is given here; to be closed."""
    job = call.jobs[call.path["job"]]
    at, least, position = call.query.get("at", at), call.query.get("least", least), call.query.get("position")
    if sum(one is not None for one in (at, least, position)) > 1:
        raise BadRequestError("more than one of at=, least= and position= were given", hint="give one of them")
    wait_s = call.query.get("wait", wait)
    wait_s = DEFAULT_WAIT_S if wait_s is None else wait_s
    if position is not None:
        return job, await reading_after(job, position, wait_s)
    return job, await job.reading(
        at=None if at is None else Epoch(at), least=None if least is None else Epoch(least), wait_s=wait_s
    )


def tag_of(reading: Reading) -> str:
    """The ETag of whatever is read at an epoch."""
    return f'"{reading.manifest.job[:16]}-{reading.epoch}"'


def not_modified(call: Call, reading: Reading) -> Answer | None:
    """The answer to who has it already."""
    tag = tag_of(reading)
    given = call.headers.get("if-none-match", "")
    if given and tag in (one.strip().removeprefix("W/") for one in given.split(",")):
        return Answer(status=304, tag=tag)
    return None
