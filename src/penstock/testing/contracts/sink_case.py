"""A sink to be checked, with a target of its own, and the small loop that stages and commits as the engine does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.connectors.protocol import Committable, Committer, CommitterContext, Sink, SinkWriter, WriterContext
from penstock.errors import StorageError
from penstock.ids import Epoch, JobId, StepId
from penstock.plan import job_pickle
from penstock.records import Records
from penstock.storage import Storage


def plain_row(number: int) -> Any:
    return {"id": number, "text": f"row {number}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCase:
    """A sink with a new, empty target.

    - `visible`: what readers of the target see, as the numbers of the rows, in the target's order.
    - `row`: makes row n; by default `{"id": n, "text": "row n"}`.
    - `keeps_order`: rows of a partition are seen in the order they were written.
    - `guarantee`: `exactly-once`, or `at-least-once` of a sink that may repeat rows after a crash.
    """

    sink: Sink
    storage: Storage
    visible: Callable[[], Sequence[int]]
    row: Callable[[int], Any] = plain_row
    keeps_order: bool = True
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"


SinkFactory = Callable[[], SinkCase]


@dataclass(slots=True)
class SinkRun:
    """Stages rows and commits epochs. `storage` may be one that fails."""

    case: SinkCase
    attempt: int = 0
    dead: set[str] = field(default_factory=set)
    """Attempts whose leftovers may be removed."""
    sink: Sink = field(init=False)

    def __post_init__(self) -> None:
        self.sink = job_pickle.loads(job_pickle.dumps(self.case.sink))

    def writer(self, epoch: int, partition: int = 0) -> SinkWriter:
        self.attempt += 1
        return self.sink.writer(
            WriterContext(
                job=_JOB,
                step=_STEP,
                epoch=Epoch(epoch),
                partition=partition,
                attempt=f"1-{self.attempt}",
                storage=self.case.storage,
            )
        )

    def stage(self, epoch: int, numbers: Iterable[int], partition: int = 0) -> Committable:
        writer = self.writer(epoch, partition)
        writer.write(self.batch(numbers))
        return writer.prepare()

    def batch(self, numbers: Iterable[int]) -> Records:
        return Records([self.case.row(number) for number in numbers])

    def committer(self, storage: Storage | None = None) -> Committer:
        return self.sink.committer(
            CommitterContext(
                job=_JOB,
                step=_STEP,
                storage=storage or self.case.storage,
                job_name="contract",
                sweepable=self.dead.__contains__,
            )
        )

    def all_attempts_are_dead(self) -> None:
        self.dead |= {f"1-{attempt}" for attempt in range(1, self.attempt + 1)}


_JOB = JobId("11111111-2222-3333-4444-555555555555")
_STEP = StepId("out")


class DyingStorage:
    """Fails at the n-th call and at all after it, as for a driver that is cut off. `late`: the n-th call is still carried out."""

    def __init__(self, inner: Storage, at: int, *, late: bool) -> None:
        self._inner = inner
        self.at = at
        self._late = late
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls > self.at or (self.calls == self.at and not self._late):
                raise StorageError(f"no answer to call {self.calls} ({name})")
            result = found(*args, **kwargs)
            if self.calls == self.at:
                raise StorageError(f"no answer to call {self.calls} ({name})")
            return result

        return call
