"""A small loop around a source: plan, read, commit, and sometimes crash."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.connectors.protocol import Limits, Ordering, Planned, Source, SourceContext
from penstock.ids import Epoch, JobId, StepId
from penstock.plan import job_pickle
from penstock.storage import LocalStorage

PLENTY = Limits(records=1 << 40, bytes=1 << 40, readers=2)


def context(folder: Path | str, parallelism: int = 2, ordering: Ordering = "partition", **more: Any) -> SourceContext:
    storage = LocalStorage(str(folder))
    return SourceContext(job=JobId("job"), step=StepId("in"), storage=storage, parallelism=parallelism, ordering=ordering, **more)


class Drive:
    """Runs a source as the epoch loop does; everything read is in `read`, by partition."""

    def __init__(self, source: Source, where: SourceContext) -> None:
        self.source: Source = job_pickle.loads(job_pickle.dumps(source))
        self.where = where
        self.position: Any = None
        self.read: dict[str, list[Any]] = defaultdict(list)
        self.batches: list[Any] = []
        self.now_ms = 1_000_000
        self.epoch = 0
        self.enumerator: Any = self.source.enumerator(where)

    def plan(self, limits: Limits = PLENTY) -> Planned:
        planned: Planned = self.enumerator.plan(self.position, limits, self.now_ms)
        return planned

    def crash(self) -> None:
        """A new driver: all that is left is the last committed position, as JSON."""
        self.enumerator.close()
        self.enumerator = self.source.enumerator(self.where)

    def values(self, planned: Planned) -> list[tuple[str, list[Any]]]:
        reader = self.source.reader()
        out = []
        for split in planned.splits:
            batches = list(reader.read(split))
            again = [value for batch in reader.read(split) for value in batch.values()]
            values = [value for batch in batches for value in batch.values()]
            assert repr(values) == repr(again), "a split read twice must give the same"
            self.batches += batches
            out.append((split.partition, values))
        reader.close()
        return out

    def commit(self, planned: Planned) -> None:
        for partition, values in self.values(planned):
            self.read[partition] += values
        self.position = json.loads(json.dumps(planned.position))
        self.epoch += 1
        self.enumerator.committed(self.position, Epoch(self.epoch))

    def step(self, limits: Limits = PLENTY) -> Planned:
        planned = self.plan(limits)
        self.commit(planned)
        return planned

    def run(self, limits: Iterable[Limits] = (), crashes: Iterable[bool] = ()) -> None:
        """To the end: with these limits in turn, and lost epochs and crashes where told."""
        ways = iter(limits)
        lost = iter(crashes)
        for _ in range(10_000):
            limit = next(ways, PLENTY)
            if next(lost, False):
                self.values(self.plan(limit))
                self.crash()
                continue
            if self.step(limit).exhausted:
                return
        raise AssertionError("the source does not come to an end")

    @property
    def all(self) -> list[Any]:
        return [value for partition in sorted(self.read) for value in self.read[partition]]
