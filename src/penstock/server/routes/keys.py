"""State by key: one, or many at once."""

from __future__ import annotations

from penstock.query.answers import one_value
from penstock.server.endpoints import Answer, Call, Endpoint
from penstock.server.routes.reading import CONSISTENCY, Value, not_modified, reading_for, tag_of


async def read_key(call: Call) -> Answer:
    job, reading = await reading_for(call)
    with reading:
        unchanged = not_modified(call, reading)
        if unchanged is not None:
            return unchanged
        found = one_value(job.catalog, reading, call.path["step"], call.path["state"], call.path["key"])
        return Answer(body=Value(found.epoch, found.watermark, found.value), tag=tag_of(reading))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs/{job}/steps/{step}/state/{state}/{key:path}",
        name="read_key",
        about="What a state keeps for a key: a value; of windows a list with one object for each. A key that is no text is JSON.",
        handler=read_key,
        parameters=CONSISTENCY,
        answers=Value,
        errors=(304, 403, 409, 410, 413, 421),
    ),
)
