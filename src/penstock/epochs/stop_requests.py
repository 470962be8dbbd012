"""Why a driver stops before its input ends: it was asked to, there is nothing more to read, or it is rescaled."""

from __future__ import annotations

from dataclasses import replace

from penstock.epochs.clock import Clock
from penstock.epochs.lifecycle import State
from penstock.epochs.starting.draining import why_not_drain
from penstock.epochs.starting.rescaling import Rescale, asked_rescale
from penstock.jobs.lease import Released
from penstock.jobs.manifest import Manifest
from penstock.jobs.requests import Inbox, Request
from penstock.runtime.job import CompiledJob


class StopRequests:
    """What was asked for so far. `handed_over` may be set by a signal handler or another thread.

    `drain`: an idle job is drained before it stops."""

    def __init__(self, inbox: Inbox, clock: Clock, *, drain: bool) -> None:
        self._inbox = inbox
        self._clock = clock
        self._drain = drain
        self._stop: Request | None = None
        self._hurried: Request | None = None
        """A request to stop that was found while the loop was held up."""
        self.handed_over = False
        self.idle = False
        self.rescale: Rescale | None = None
        self.refreshes: list[Request] = []
        """Requests to load tables anew."""

    @property
    def stopped(self) -> bool:
        """Is the job to stop, rather than to continue with another parallelism?"""
        return self.handed_over or self.idle or self._stop is not None or self._hurried is not None

    @property
    def draining(self) -> bool:
        """Is time to end before the job stops? Who stops it by a signal does not want to wait for that."""
        asked = self._stop is not None and bool(self._stop.options.get("drain"))
        return not self.handed_over and self._hurried is None and (asked or (self.idle and self._drain))

    @property
    def state(self) -> State:
        """What a driver does that is to end."""
        return "rescaling" if self.rescale is not None else "draining" if self.draining else "stopping"

    def look_ahead(self) -> bool:
        """Was the job asked to stop, without a drain? Reads requests though the loop is held up. From any thread."""
        if self._stop is None or self._stop.options.get("drain"):
            plain = (request for request in self._inbox.look() if request.kind == "stop" and not request.options.get("drain"))
            self._hurried = next(plain, None)
            return self._hurried is not None
        return True

    def look(self, job: CompiledJob, head: Manifest) -> bool:
        """Is this the end? Reads requests, and refuses those that cannot be."""
        if self._known():
            return True
        for request in self._inbox.pending():
            if request.kind == "stop":
                self._consider_stop(request, head)
            elif request.kind == "rescale":
                self._consider(request, job)
            elif request.kind == "refresh":
                self.refreshes.append(request)
            else:
                self._inbox.answer(request, False, f"this job does not know the request {request.kind!r}")
            if self._known():
                return True
        return False

    def _known(self) -> bool:
        return self.stopped or self.rescale is not None

    def _consider_stop(self, request: Request, head: Manifest) -> None:
        reason = why_not_drain(head) if request.options.get("drain") else ""
        if reason:
            self._inbox.answer(request, False, reason)
        else:
            self._stop = request

    def _consider(self, request: Request, job: CompiledJob) -> None:
        wanted = asked_rescale(request, job)
        if isinstance(wanted, str):
            self._inbox.answer(request, False, wanted)
            return
        before, now = job.parallelism, self._clock.now_ms()
        if wanted == before:
            same = {"parallelism": wanted, "before": before, "downtime_ms": 0}
            self._inbox.answer(request, True, f"the job already has {wanted} partition{'s' * (wanted != 1)}", **same)
            return
        self.rescale = Rescale(request=request, parallelism=wanted, before=before, since_ms=now)

    def settle(self, last: Manifest, left: str = "") -> None:
        """`last` is the last epoch: answer a request to stop. `left`: what is not committed was not waited for, and why."""
        if self._hurried is not None and self._hurried != self._stop:
            self._answer_stop(self._hurried, last, left)
        if self._stop is not None:
            self._answer_stop(self._stop, last, left)
        if self.rescale is not None:
            self.rescale = replace(self.rescale, since_ms=max(self.rescale.since_ms, last.created_ms))

    def _answer_stop(self, request: Request, last: Manifest, left: str) -> None:
        if not request.options.get("drain"):
            given_up = f"; what came after it was discarded: {left}" if left else ""
            self._inbox.answer(request, True, f"stopped after epoch {last.epoch}{given_up}", epoch=last.epoch)
        elif last.drained is not None:
            self._inbox.answer(request, True, f"drained by epoch {last.epoch}, and stopped", epoch=last.epoch, drained=True)
        else:
            self._inbox.answer(request, False, f"the job was stopped after epoch {last.epoch}, before it was drained")

    @property
    def named(self) -> Released:
        """How the lease calls it."""
        return "handed-over" if self.handed_over else "stopped"
