"""Recent records per second, and how busy each step has been recently."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_S = 5.0
"""The number of seconds that rates are averaged over."""


class RecentRate:
    """Records over the last seconds of this run. What ran before it, and the time that it took to start, do not count."""

    def __init__(self) -> None:
        self._counted: deque[tuple[float, int]] = deque()
        self._since: float | None = None

    def add(self, now: float, records: int, took: float) -> None:
        """An epoch of `took` seconds was committed."""
        if self._since is None:
            self._since = now - took
        self._counted.append((now, records))
        self._forget(now)

    def at(self, now: float) -> float:
        """Zero before the first epoch, and when there was none for a while."""
        if self._since is None:
            return 0.0
        self._forget(now)
        return sum(records for _, records in self._counted) / max(now - max(self._since, now - WINDOW_S), 0.001)

    def _forget(self, now: float) -> None:
        while self._counted and self._counted[0][0] < now - WINDOW_S:
            self._counted.popleft()


class RecentBusy:
    """The share of the last seconds in which epochs ran that each step was busy. One small epoch says little."""

    def __init__(self) -> None:
        self._epochs: deque[tuple[float, Mapping[str, float]]] = deque()
        self._ran = 0.0

    def add(self, ran: float, busy: Mapping[str, float]) -> None:
        """An epoch took `ran` seconds; `busy`: the share of them in which each step was at work."""
        self._epochs.append((ran, busy))
        self._ran += ran
        while self._ran - self._epochs[0][0] > WINDOW_S:
            self._ran -= self._epochs.popleft()[0]

    def shares(self) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for ran, busy in self._epochs:
            for step, share in busy.items():
                seconds[step] = seconds.get(step, 0.0) + ran * share
        return {step: round(one / self._ran, 3) for step, one in seconds.items()}
