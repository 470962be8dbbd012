"""Time that passes only when somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.epochs.clock import Clock
from penstock.ids import Milliseconds


class VirtualClock(Clock):
    """For the epoch loop: sleeping takes no time, and the clock shows that it did."""

    def __init__(self, now: Milliseconds = 0) -> None:
        self.now = now
        self.slept: list[float] = []
        self._alarm: tuple[Milliseconds, Callable[[], None]] | None = None

    def now_ms(self) -> Milliseconds:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept = [*self.slept[-999:], seconds]
        self.now += max(1, round(seconds * 1000))
        if self._alarm is not None and self.now >= self._alarm[0]:
            self._alarm[1]()

    def pause(self, seconds: float, over: Callable[[], bool]) -> None:
        self.sleep(seconds)

    def alarm(self, time: Milliseconds, action: Callable[[], None]) -> None:
        """Do something at the first sleep that ends at `time` or later."""
        self._alarm = (time, action)
