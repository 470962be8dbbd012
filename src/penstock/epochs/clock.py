"""Time for whoever drives a job."""

from __future__ import annotations

import time

from penstock.ids import Milliseconds


class Clock:
    """The wall clock; tests have their own."""

    def now_ms(self) -> Milliseconds:
        return round(time.time() * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
