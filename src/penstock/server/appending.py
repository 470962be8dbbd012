"""Appending to the logs of jobs' sources, and reading what became of it."""

from __future__ import annotations

import asyncio
import time
from weakref import WeakKeyDictionary

from penstock.connectors.append_log.log import Appended, AppendLog, FullLogError, NoLogError, RefusedAppendError
from penstock.connectors.append_log.positions import read_up_to
from penstock.errors import SourceError
from penstock.jobs.manifest import Manifest
from penstock.query.errors import (
    BadRequestError,
    EpochNotReachedError,
    QueryError,
    TooManyRequestsError,
    UnknownSourceError,
)
from penstock.query.reading import Reading
from penstock.server.served_jobs import ServedJob

_MOST_LOGS = 1000
"""Of one job."""


class AppendFailedError(QueryError):
    """Not known whether the records are in the log: to send them again with their id is safe."""

    code = "append_failed"
    status = 503
    retry_after_s = 1.0


_logs: WeakKeyDictionary[ServedJob, dict[str, AppendLog]] = WeakKeyDictionary()


async def append(job: ServedJob, source: str, records: list[bytes], id: str | None) -> Appended:
    """Append records to a source's log. Returns when they are durable."""
    log = await log_of(job, source)
    try:
        waiting = await asyncio.to_thread(log.submit, records, id=id)
        return await asyncio.shield(asyncio.wrap_future(waiting))
    except RefusedAppendError as error:
        raise BadRequestError(error.what, detail=error.detail, hint=error.hint) from None
    except FullLogError as error:
        raise TooManyRequestsError(error.what, hint=error.hint) from None
    except SourceError as error:
        raise AppendFailedError(error.what, hint="send them again, with the same id") from error
    except OSError as error:
        raise AppendFailedError("the records could not be written", hint="send them again, with the same id") from error


async def log_of(job: ServedJob, source: str) -> AppendLog:
    """The log of a source, kept open."""
    logs = _logs.setdefault(job, {})
    if source not in logs:
        try:
            opened = await asyncio.to_thread(AppendLog, job.storage, source)
        except NoLogError as error:
            raise UnknownSourceError(f"the job has no source {source!r:.100} that is appended to", hint=error.hint) from None
        while len(logs) >= _MOST_LOGS:
            logs.pop(next(iter(logs))).abandon()
        kept = logs.setdefault(source, opened)
        if kept is not opened:
            opened.abandon()
    return logs[source]


async def reading_after(job: ServedJob, position: str, wait_s: float) -> Reading:
    """State that has seen what was appended at a position; to be closed. Waits for it."""
    source, separator, number = position.rpartition(":")
    if not (separator and number.isascii() and number.isdecimal() and len(number) < 19):
        raise BadRequestError("position= is not what an append was answered with", hint="as SOURCE:NUMBER")
    identity = (await log_of(job, source)).identity
    deadline = time.monotonic() + wait_s
    while True:
        reading = await job.reading()
        if has_read(reading.manifest, source, identity) >= int(number):
            return reading
        reading.close()
        left = deadline - time.monotonic()
        if left <= 0:
            raise EpochNotReachedError(f"no epoch has read {position:.200} yet", hint="wait longer, with wait=")
        await job.turn(left)


def has_read(manifest: Manifest, source: str, log: str) -> int:
    """How many records of a log an epoch has read. Pure."""
    steps = {known: step for step, known in manifest.state.known_as.items()}
    state = manifest.sources.get(steps.get(source, source))
    return 0 if state is None else read_up_to(log, state.position, state.rest, state.skip)
