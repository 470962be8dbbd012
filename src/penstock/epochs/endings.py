"""Why a driver stops before its input ends: it was told to, there is nothing more to read, or it is to go on otherwise."""

from __future__ import annotations

from dataclasses import replace

from penstock.config import JobConfig
from penstock.epochs.clock import Clock
from penstock.epochs.control import Inbox, Request
from penstock.epochs.lease import Released
from penstock.epochs.rescaling import Rescale, asked_rescale
from penstock.runtime.manifest import Manifest


class Endings:
    """What was asked for so far. `handed_over` may be set by a signal handler or another thread."""

    def __init__(self, inbox: Inbox, config: JobConfig, clock: Clock) -> None:
        self._inbox = inbox
        self._config = config
        self._clock = clock
        self._stop: Request | None = None
        self.handed_over = False
        self.idle = False
        self.rescale: Rescale | None = None

    @property
    def stopped(self) -> bool:
        """Is the job to stop, rather than to go on with another parallelism?"""
        return self.handed_over or self.idle or self._stop is not None

    def look(self) -> bool:
        """Is this the end? Reads requests, and refuses those that cannot be."""
        if self._known():
            return True
        for request in self._inbox.pending():
            if request.kind == "stop":
                self._stop = request
            elif request.kind == "rescale":
                self._consider(request)
            else:
                self._inbox.answer(request, False, f"this job does not know the request {request.kind!r}")
            if self._known():
                return True
        return False

    def _known(self) -> bool:
        return self.stopped or self.rescale is not None

    def _consider(self, request: Request) -> None:
        wanted = asked_rescale(request, self._config)
        if isinstance(wanted, str):
            self._inbox.answer(request, False, wanted)
            return
        before, now = self._config.parallelism, self._clock.now_ms()
        self.rescale = Rescale(request=request, parallelism=wanted, before=before, since_ms=now)

    def settle(self, last: Manifest) -> None:
        """All is committed, `last` is the last epoch: answer a request to stop."""
        if self._stop is not None:
            self._inbox.answer(self._stop, True, f"stopped after epoch {last.epoch}", epoch=last.epoch)
        if self.rescale is not None:
            self.rescale = replace(self.rescale, since_ms=max(self.rescale.since_ms, last.created_ms))

    @property
    def named(self) -> Released:
        """How the lease calls it."""
        return "handed-over" if self.handed_over else "stopped"
