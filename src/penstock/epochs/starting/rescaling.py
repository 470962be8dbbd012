"""A running job continues with another parallelism: its loop ends, committed, and another one takes over in the same process.

State is read by ranges of key groups from the committed files, so it needs no savepoint. A crash in between is an ordinary one:
the next start takes the job over, with the parallelism it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.ids import Milliseconds
from penstock.jobs.requests import Request
from penstock.runtime.job import CompiledJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """A request that was accepted. `since_ms`: when, or when the last epoch before it was committed, if that is later."""

    request: Request
    parallelism: int
    before: int
    since_ms: Milliseconds = 0

    def summary(self, now_ms: Milliseconds) -> tuple[str, dict[str, Any]]:
        """The answer to the request, once the job is ready again."""
        down_ms = max(0, now_ms - self.since_ms)
        down = f"{down_ms} ms" if down_ms < 1000 else f"{down_ms / 1000:.1f} s"
        message = f"rescaled from {self.before} to {self.parallelism} partitions; no epoch committed for {down}"
        return message, {"parallelism": self.parallelism, "before": self.before, "downtime_ms": down_ms}


def asked_rescale(request: Request, job: CompiledJob) -> int | str:
    """The parallelism that is asked for, or why it cannot be. Pure."""
    wanted = request.options.get("parallelism")
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= job.max_parallelism:
        return f"cannot rescale to parallelism {wanted!r}: choose 1 to max_parallelism ({job.max_parallelism})"
    return wanted
