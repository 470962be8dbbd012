"""How much a caller may ask, and how slowly."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLERS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`rate`: requests per second of a caller, `burst` of them at once; `head_bytes`, `body_bytes`: of a request; `head_s`,
    `body_s`: how long they may take to come; `connections`: at once; `streams`: subscriptions of a caller."""

    rate: float = 5000.0
    burst: int = 10_000
    body_bytes: int = 1 << 20
    head_bytes: int = 32 * 1024
    body_s: float = 10.0
    head_s: float = 10.0
    connections: int = 512
    streams: int = 64


class Rates:
    """A bucket for each caller, which fills at a rate: a request takes one token out."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """Zero if the caller may go on now; otherwise in how many seconds."""
        now = self._now()
        left, since = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate
