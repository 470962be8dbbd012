"""What was asked of jobs by the API, and what came of it: the newest few hundred, in memory.

Law: a request is carried out once, in a thread, whoever still waits for it; its answer stays for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from penstock.errors import PenstockError
from penstock.query.errors import ConflictError, UnknownRouteError

log = logging.getLogger("penstock.server")

MOST_KEPT = 500
MOST_RUNNING = 4

Condition = Literal["running", "done", "failed"]


class Requested(msgspec.Struct):
    """A request, and how far it is. `result`: when it is done."""

    id: str
    kind: str
    caller: str
    asked_ms: int
    condition: Condition = "running"
    message: str = ""
    hint: str = ""
    result: dict[str, Any] = {}


class RequestBook:
    """The requests to one job."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Requested] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, kind: str, caller: str, work: Callable[[], tuple[str, dict[str, Any]]]) -> Requested:
        """Carry something out that gives a message and a result."""
        if len(self._tasks) >= MOST_RUNNING:
            raise ConflictError(f"{MOST_RUNNING} requests to this job are under way", hint="wait for their answers")
        made = Requested(id=uuid.uuid4().hex, kind=kind, caller=caller, asked_ms=round(time.time() * 1000))
        self._kept[made.id] = made
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        task = asyncio.create_task(self._run(made, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    def find(self, id: str) -> Requested:
        found = self._kept.get(id)
        if found is None:
            raise UnknownRouteError("no such request is known", hint="it was too long ago, or the server has started anew since")
        return found

    async def _run(self, made: Requested, work: Callable[[], tuple[str, dict[str, Any]]]) -> None:
        try:
            made.message, made.result = await asyncio.to_thread(work)
            made.condition = "done"
        except PenstockError as error:
            made.message, made.hint, made.condition = error.what, error.hint, "failed"
        except Exception:
            log.exception("a request to a job failed")
            made.message, made.hint, made.condition = "the server failed", "see its log", "failed"
