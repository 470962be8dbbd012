"""The time of a driver."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.ids import Milliseconds

LOOK_S = 0.1
"""How often a pause looks whether it is over."""


class Clock:
    """The wall clock; tests have their own."""

    def now_ms(self) -> Milliseconds:
        return round(time.time() * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def pause(self, seconds: float, over: Callable[[], bool]) -> None:
        """Sleep, but not on when `over` says so: a person has pressed Ctrl-C, say."""
        while seconds > 0 and not over():
            self.sleep(min(seconds, LOOK_S))
            seconds -= LOOK_S
