"""How much an epoch takes: epochs aim at a target duration, within the limits on records and bytes."""

from __future__ import annotations

from penstock.connectors.protocol import Limits
from penstock.ids import Milliseconds

_FIRST = 20_000
_LEAST = 100


class Admission:
    """Learns from each epoch how many records fit into the target duration."""

    def __init__(self, *, target_ms: Milliseconds, max_records: int, max_bytes: int, readers: int) -> None:
        self._target_ms = target_ms
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._readers = readers
        self._records = min(_FIRST, max_records)

    def limits(self, sources: int) -> Limits:
        """What each of `sources` sources may give to the next epoch."""
        share = max(1, sources)
        return Limits(records=max(1, self._records // share), bytes=max(1, self._max_bytes // share), readers=self._readers)

    def learn(self, records: int, seconds: float) -> None:
        """An epoch of so many records took so long. Only a full epoch says that more would fit."""
        if records <= 0 or seconds <= 0:
            return
        factor = min(4.0, max(0.5, self._target_ms / 1000 / seconds))
        if factor > 1 and records < self._records * 0.7:
            return
        self._records = max(min(_LEAST, self._max_records), min(self._max_records, int(self._records * factor)))
