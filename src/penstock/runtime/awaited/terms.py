"""On which terms a step asks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import Retry
from penstock.errors import PlanError
from penstock.ids import Milliseconds
from penstock.timing.durations import to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """`capacity`: calls of a task at once; `threads`: of a plain function, in threads; `batch`: so many records in a call."""

    ordered: bool = True
    capacity: int = 100
    timeout_ms: Milliseconds | None = None
    retry: Retry | None = None
    threads: bool = False
    batch: int | None = None

    def __post_init__(self) -> None:
        for what in ("capacity", "batch"):
            number = getattr(self, what)
            if (type(number) is not int or number < 1) and not (what == "batch" and number is None):
                raise PlanError(f"{what}={number!r}", hint=f"{what} is a whole number, 1 or more")
        if self.timeout_ms is not None and self.timeout_ms < 1:
            raise PlanError("timeout= is less than a millisecond", hint="leave it out if an answer may take any time")
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise PlanError(f"retry={self.retry!r}", hint="for example retry=Retry(attempts=3, first_delay=0.1)")

    def describe(self) -> str:
        parts = ["in order" if self.ordered else "unordered", f"{self.capacity} at once in a task"]
        if self.batch is not None:
            parts.append(f"of up to {self.batch}")
        if self.threads:
            parts.append("in threads")
        if self.timeout_ms is not None:
            parts.append(f"timeout {self.timeout_ms} ms")
        if self.retry is not None and self.retry.attempts:
            first, longest = (to_ms(delay) for delay in (self.retry.first_delay, self.retry.longest_delay))
            parts.append(f"again {self.retry.attempts} times after {min(first, longest)} ms and up to {longest} ms")
        return ", ".join(parts)
