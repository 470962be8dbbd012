"""Appending records to a job's sources."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.server.appending import append
from penstock.server.endpoints import Answer, Call, Endpoint

MOST_RECORDS = 10_000


class Append(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records, which are JSON objects. `id`: of this append; sent again with it, it is not made again."""

    records: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_RECORDS)]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


class AppendShown(msgspec.Struct, frozen=True):
    """An append that is durable. `position`: for the parameter of reads; `repeated`: it had been made before."""

    position: str
    records: int
    repeated: bool


async def append_records(call: Call) -> Answer:
    body: Append = call.body
    made = await append(call.jobs[call.path["job"]], call.path["source"], [bytes(one) for one in body.records], body.id)
    return Answer(body=AppendShown(made.position, made.records, made.repeated))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/jobs/{job}/sources/{source}",
        name="append_records",
        about="Append records to a source that is an AppendLogSource. They are durable when this is answered.",
        handler=append_records,
        role="operator",
        body=Append,
        answers=AppendShown,
    ),
)
