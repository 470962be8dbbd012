"""How much an epoch takes: epochs aim at a target duration, within the limits on records and bytes.

An epoch has a cost of its own, however little it reads. Where that alone is near the target (a busy machine, a distant storage),
smaller epochs would only read less in the same time; so the aim is never below twice that cost, which is learned from epochs of
different sizes.
"""

from __future__ import annotations

from penstock.connectors.protocol import Limits
from penstock.ids import Milliseconds

FIRST = 20_000
"""What an epoch takes before anything is known."""

_LEAST = 100
_MEMORY = 0.8
"""The weight of what was learned before, against the newest epoch."""


class Admission:
    """Learns from each epoch how many records fit into the target duration."""

    def __init__(self, *, target_ms: Milliseconds, max_records: int, max_bytes: int, readers: int, first: int = FIRST) -> None:
        self._target_ms = target_ms
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._readers = readers
        self._records = min(first, max_records)
        self._cost = _Cost()

    @property
    def records(self) -> int:
        """How many records the next epoch may take."""
        return self._records

    def limits(self, sources: int) -> Limits:
        """What each of `sources` sources may give to the next epoch."""
        share = max(1, sources)
        return Limits(records=max(1, self._records // share), bytes=max(1, self._max_bytes // share), readers=self._readers)

    def learn(self, records: int, seconds: float) -> None:
        """An epoch of this many records took this long. Only a full epoch says that more would fit."""
        if records <= 0 or seconds <= 0:
            return
        self._cost.learn(records, seconds)
        target = max(self._target_ms / 1000, 2 * self._cost.fixed)
        factor = min(16.0, max(0.5, target / seconds))
        if factor > 1 and records < self._records * 0.7:
            return
        self._records = max(min(_LEAST, self._max_records), min(self._max_records, int(self._records * factor)))


class _Cost:
    """Seconds as a straight line over records, the past fading: `fixed` is where it begins."""

    def __init__(self) -> None:
        self.fixed = 0.0
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def learn(self, records: int, seconds: float) -> None:
        self._weight = _MEMORY * self._weight + 1
        self._x = _MEMORY * self._x + records
        self._y = _MEMORY * self._y + seconds
        self._xx = _MEMORY * self._xx + records * records
        self._xy = _MEMORY * self._xy + records * seconds
        x, y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - x * x
        if spread > (0.1 * x) ** 2:  # epochs of one size tell nothing new
            slope = max(0.0, (self._xy / self._weight - x * y) / spread)
            self.fixed = max(0.0, y - slope * x)
