"""One request, as often as it takes: which server, how long to wait, what to make of an answer. No I/O: the clients carry it out.

attempts = of(…); step = next(attempts)
Send(url, asked) → send in a Reply, or a Failure      Wait(seconds) → send in None      the end: the Reply
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.query.client.requests import Asked, ReplicaRange, is_again, problem_of
from penstock.query.errors import NotHereError, QueryError, RestoringError


@dataclass(frozen=True, slots=True)
class Send:
    url: str
    asked: Asked


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    data: bytes
    content_type: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The server could not be reached, or broke off."""

    why: str


Attempts = Generator[Send | Wait, Any, Reply]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


def attempts(
    servers: Sequence[ReplicaRange],
    asked: Asked,
    *,
    group: int | None,
    retry_s: float,
    repeatable: bool = True,
    now: Callable[[], float] = time.monotonic,
) -> Attempts:
    """`group`: of the key, if one is asked for; servers that have it come first."""
    ahead = [one for one in servers if one.groups is None or group is None or group in one.groups]
    order = [*ahead, *(one for one in servers if one not in ahead)]
    deadline = now() + retry_s
    pause = FIRST_PAUSE_S
    while True:
        problem: QueryError = NotHereError("no server has this key", hint="give the URLs of all replicas")
        wait_s = pause
        again = False
        for server in order:
            reply: Reply | Failure = yield Send(server.url, asked)
            if isinstance(reply, Failure):
                problem, again = RestoringError(f"{server.url} does not answer", detail=reply.why), True
                continue
            if reply.status < 400:
                return reply
            problem_here = problem_of(reply.status, reply.data)
            if isinstance(problem_here, NotHereError):
                continue
            if not is_again(reply.status):
                raise problem_here
            problem, again = problem_here, True
            wait_s = max(pause, min(reply.retry_after_s or 0.0, LONGEST_PAUSE_S))
        if not again or not repeatable or now() + wait_s > deadline:
            raise problem
        yield Wait(wait_s)
        pause = min(2 * pause, LONGEST_PAUSE_S)
