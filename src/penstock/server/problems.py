"""Errors as answers: `{"error": {"code", "message", "hint"}}`, and nothing of what is inside."""

from __future__ import annotations

import logging
import math

import msgspec

from penstock.errors import PenstockError
from penstock.query.errors import QueryError
from penstock.server.endpoints import Answer

log = logging.getLogger("penstock.server")


class Problem(msgspec.Struct, frozen=True):
    """`code`: for programs; it stays the same."""

    code: str
    message: str
    detail: str = ""
    hint: str = ""


class ProblemAnswer(msgspec.Struct, frozen=True):
    error: Problem


def answer_to(error: Exception) -> Answer:
    """What is told of an error. Of one that is not a query's, nothing but that there was one: the rest is in the log."""
    if isinstance(error, QueryError):
        headers = {}
        if error.retry_after_s is not None:
            headers["retry-after"] = str(math.ceil(error.retry_after_s))
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        told = Problem(error.code, error.what, error.detail, error.hint)
        return Answer(body=ProblemAnswer(told), status=error.status, headers=headers)
    log.error("a request failed", exc_info=error)
    what = "the job's storage could not be read" if isinstance(error, (PenstockError, OSError)) else "the server failed"
    told = Problem("failed", what, hint="see the server's log")
    return Answer(body=ProblemAnswer(told), status=503, headers={"retry-after": "5"})
