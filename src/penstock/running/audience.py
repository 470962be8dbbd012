"""The listeners of a run, each called for what it listens to; without one that shows it, a stop is announced on the terminal."""

from __future__ import annotations

import logging
import os
import sys

from penstock.epochs.history import (
    JobResult,
    Listener,
    RunListener,
    StandbyListener,
    StateListener,
    StopListener,
)
from penstock.epochs.lifecycle import State
from penstock.running.signals import AT_ONCE, NOTICE, say

log = logging.getLogger("penstock")


class Audience:
    """Of the runs of one job."""

    def __init__(self, name: str, listeners: tuple[Listener, ...]) -> None:
        everybody: tuple[object, ...] = listeners
        self._name = name
        self._of_runs = [one for one in everybody if isinstance(one, RunListener)]
        self._of_states = [one for one in everybody if isinstance(one, StateListener)]
        self._of_standby = [one for one in everybody if isinstance(one, StandbyListener)]
        self._of_stops = [one for one in everybody if isinstance(one, StopListener)]

    def started(self, storage: str) -> None:
        for listener in self._of_runs:
            listener.started(self._name, storage)

    def entered(self, state: State) -> None:
        for listener in self._of_states:
            listener.entered(state)

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        for listener in self._of_runs:
            listener.ended(result, error)

    def standing_by(self, text: str) -> None:
        log.info("%s", text)
        for listener in self._of_standby:
            listener.standing_by(self._name, text)

    def stopping(self) -> None:
        """A signal asks the job to stop. Runs in its handler."""
        for listener in self._of_stops:
            listener.stopping()
        if not self._of_stops and os.isatty(2):
            say(NOTICE)

    def interrupted(self) -> None:
        """Another one stops it at once; listeners hear of it as the run's error. Runs in the signal's handler."""
        if not self._of_stops:
            say(f"{AT_ONCE}\n")

    def stopped(self, text: str) -> None:
        for listener in self._of_stops:
            listener.stopped(text)
        if not self._of_stops:
            sys.stderr.flush()
            say(f"{text}\n")
