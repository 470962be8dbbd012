"""Steps of the driver that may be repeated, and must be taken: tried again while the storage does not answer.

An epoch that fails is planned anew by the loop. Everything else that a driver does with its storage, from the first look to the
last word, goes through here: one restart policy decides how long an outage may last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.config import RestartPolicy
from penstock.diagnosis.failures import nature_of
from penstock.errors import AlreadyExistsError, NotFoundError, PenstockError, SinkError, SourceError, StorageError

log = logging.getLogger("penstock")

T = TypeVar("T")


def may_pass(error: PenstockError) -> bool:
    """May the same step go well the next time? The storage did not answer, or what a sink or source stands on. Pure."""
    if isinstance(error, AlreadyExistsError | NotFoundError):
        return False  # an answer
    if isinstance(error, StorageError):
        return nature_of(error) == "machine"
    return isinstance(error, SinkError | SourceError) and nature_of(error) == "transient"


def persist(
    action: Callable[[], T],
    policy: RestartPolicy,
    *,
    pause: Callable[[float], None],
    failed: Callable[[], None] = lambda: None,
) -> T:
    """The outcome of a step that may be repeated. `failed` is called before each further attempt."""
    failures = 0
    while True:
        try:
            return action()
        except PenstockError as error:
            failures += 1
            delay_ms = policy.delay_ms(failures) if may_pass(error) else None
            if delay_ms is None:
                if failures > 1:
                    error.add_note(f"gave up after {failures} failures in a row")
                raise
            log.warning("%s; trying again in %d ms", error.what, delay_ms)
            failed()
        pause(delay_ms / 1000)
