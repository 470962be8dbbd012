"""A source to be checked, and the small loop that plans, reads and commits as the engine does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.connectors.protocol import Enumerator, Limits, Ordering, Planned, Position, Reader, Source, SourceContext, Split
from penstock.ids import Epoch, JobId, StepId
from penstock.plan import job_pickle
from penstock.storage import Storage
from penstock.testing.contracts.broken import require

PLENTY = Limits(records=1 << 40, bytes=1 << 40, readers=2)
MOST_EPOCHS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCase:
    """A source, and what is in it.

    `expected`: its records by source partition, in order. `unit`: the most records of a partition that come in one piece,
    whatever the limits say. What is in the source must not change while it is checked; it need not be bounded.
    """

    source: Source
    storage: Storage
    expected: Mapping[str, Sequence[Any]]
    ordering: Ordering = "partition"
    parallelism: int = 2
    unit: int = 1
    now_ms: int = 1_700_000_000_000

    @property
    def context(self) -> SourceContext:
        return SourceContext(
            job=JobId("contract"),
            step=StepId("source"),
            storage=self.storage,
            parallelism=self.parallelism,
            ordering=self.ordering,
        )


class CrashError(Exception):
    """The driver and all workers are gone."""


@dataclass(slots=True)
class SourceRun:
    """Reads a source from the position that was committed last. `crash_at`: dies instead of making the n-th call, once."""

    case: SourceCase
    crash_at: int | None = None
    read: dict[str, list[Any]] = field(default_factory=dict)
    position: Position = None
    epoch: int = 0
    calls: int = 0
    _enumerator: Enumerator | None = None
    _reader: Reader | None = None

    def __post_init__(self) -> None:
        self.case = _pickled(self.case)

    @property
    def enumerator(self) -> Enumerator:
        if self._enumerator is None:
            self._enumerator = self.case.source.enumerator(self.case.context)
        return self._enumerator

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = self.case.source.reader()
        return self._reader

    def plan(self, limits: Limits = PLENTY) -> Planned:
        self._call()
        return self.enumerator.plan(self.position, limits, self.case.now_ms)

    def records(self, split: Split) -> list[Any]:
        self._call()
        return [value for batch in self.reader.read(split) for value in batch.values()]

    def commit(self, planned: Planned, records: Mapping[str, Sequence[Any]]) -> None:
        """The manifest is written; then the enumerator is told."""
        self._call()
        for partition, values in records.items():
            self.read.setdefault(partition, []).extend(values)
        self.position = json.loads(json.dumps(planned.position))
        self.epoch += 1
        self._call()
        self.enumerator.committed(self.position, Epoch(self.epoch))

    def step(self, limits: Limits = PLENTY) -> Planned:
        """An epoch."""
        planned = self.plan(limits)
        records: dict[str, list[Any]] = {}
        for split in planned.splits:
            records.setdefault(split.partition, []).extend(self.records(split))
        self.commit(planned, records)
        return planned

    def to_the_end(self, limits: Iterator[Limits] | None = None) -> None:
        """Epoch after epoch, across crashes, until there is nothing left to read."""
        for _ in range(MOST_EPOCHS):
            try:
                planned = self.step(PLENTY if limits is None else next(limits))
            except CrashError:
                self.close()
                continue
            if planned.exhausted or not planned.splits:
                self.close()
                return
        require(False, "a source comes to its end, or has nothing to read for now", f"not after {MOST_EPOCHS} epochs")

    def close(self) -> None:
        """What there is of driver and workers goes; another enumerator and another reader continue."""
        if self._reader is not None:
            self._reader.close()
        if self._enumerator is not None:
            self._enumerator.close()
        self._reader = self._enumerator = None

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.crash_at:
            raise CrashError


def _pickled(case: SourceCase) -> SourceCase:
    """As workers get it."""
    return replace(case, source=job_pickle.loads(job_pickle.dumps(case.source)))
