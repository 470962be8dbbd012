"""How much an epoch takes: epochs aim at a target duration, within the limits on records and bytes.

An epoch's time is a fixed part and a part for each record. The least time of recent epochs stands for the fixed part: only
what is above it can be made smaller by taking fewer records.
"""

from __future__ import annotations

from collections import deque

from penstock.connectors.protocol import Limits
from penstock.ids import Milliseconds

_FIRST = 20_000
_LEAST = 1_000
_RECENT = 20


class Admission:
    """Learns from each epoch how many records fit into the target duration."""

    def __init__(self, *, target_ms: Milliseconds, max_records: int, max_bytes: int, readers: int) -> None:
        self._target = target_ms / 1000
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._readers = readers
        self._records = min(_FIRST, max_records)
        self._seconds: deque[float] = deque(maxlen=_RECENT)

    def limits(self, sources: int) -> Limits:
        """What each of `sources` sources may give to the next epoch."""
        share = max(1, sources)
        return Limits(records=max(1, self._records // share), bytes=max(1, self._max_bytes // share), readers=self._readers)

    def learn(self, records: int, seconds: float) -> None:
        """An epoch of so many records took so long. Only a full epoch says that more would fit."""
        if seconds <= 0:
            return
        self._seconds.append(seconds)
        if records <= 0:
            return
        fixed = min(self._seconds)
        for_records = max(seconds - fixed, 0.01 * seconds)
        wanted = records * max(self._target - fixed, 0.5 * self._target) / for_records
        if wanted > self._records and records < self._records * 0.7:
            return
        stepped = min(self._records * 4, max(self._records // 2, int(wanted)))
        self._records = max(min(_LEAST, self._max_records), min(self._max_records, stepped))
