"""Steps of the driver that may be repeated, and must be taken: tried again while the storage does not answer.

An epoch that fails is planned anew by the loop. Everything else that a driver does with its storage, from first to last, goes
through here: one restart policy decides how long an outage may last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from penstock.config import RestartPolicy
from penstock.diagnosis.failures import nature_of
from penstock.epochs.clock import Clock
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


class Persistence:
    """`persist` for one loop. `stopping`: is the job to stop?"""

    def __init__(self, policy: RestartPolicy, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._policy = policy
        self._clock = clock
        self._stopping = stopping
        self.restarts = 0
        """How often something was tried again."""

    def __call__(self, action: Callable[[], T], *, failed: Callable[[], None] = lambda: None) -> T:
        def count() -> None:
            self.restarts += 1
            failed()

        return persist(action, self._policy, pause=self.pause, failed=count)

    def if_possible(self, action: Callable[[], object], otherwise: str) -> None:
        """The same, for a step whose failure changes nothing about the job."""
        try:
            self(action)
        except StorageError as error:
            log.warning("%s: %s", otherwise, error)

    def pause(self, seconds: float) -> None:
        """Wait before another attempt, but no longer than until the job is asked to stop."""
        already = self._stopping()
        self._clock.pause(seconds, lambda: self._stopping() and not already)
