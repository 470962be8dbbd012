"""A sink: a definition that makes **writers** (worker) and a **committer** (driver).

- A writer stages what it is given where nobody sees it; `prepare` makes it durable and returns a committable (JSON-able or
  bytes).
- `Committer.commit(epoch, committables)` publishes them. It must be idempotent on (job, sink, epoch): recovery calls it again.
- A committer is called by one thread at a time, but not always by the same one. A `close` that hangs is abandoned.
- `volatile` sinks (print, collect) hand their output to the driver in the committable; it is never written to a manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from penstock.changes import Changelog
from penstock.ids import Epoch, JobId, StepId
from penstock.records import Batch
from penstock.storage import Storage
from penstock.storage.protocol import segment

Committable = Any
"""JSON-able (bytes are allowed for volatile sinks only)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """Where and for what a writer writes. `attempt` is unique to this task attempt: use it in every name."""

    job: JobId
    step: StepId
    epoch: Epoch
    partition: int
    attempt: str
    storage: Storage | None = None
    """The job's storage, for sinks that stage their output there."""

    @property
    def folder(self) -> str:
        """Where in the storage this sink may keep what it needs."""
        return f"sinks/{segment(self.step)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterContext:
    """What a committer knows of its job. `sweepable(attempt)`: may staged leftovers of this attempt be removed?"""

    job: JobId
    step: StepId
    storage: Storage
    job_name: str = ""
    sweepable: Callable[[str], bool] = lambda attempt: False

    @property
    def folder(self) -> str:
        """Where in the storage this sink may keep what it needs: its writers have the same."""
        return f"sinks/{segment(self.step)}"


class SinkWriter(Protocol):
    """In the worker, one for each partition and epoch; made only if there is something to write."""

    def write(self, batch: Batch) -> None: ...

    def prepare(self) -> Committable: ...

    def abort(self) -> None:
        """The task has failed: remove what was staged."""
        return


class Committer(Protocol):
    """On the driver: publishes what the writers prepared."""

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None: ...

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        """The epoch will never be committed: its staged output may be removed."""
        return

    def close(self) -> None:
        """Release what it holds."""
        return


@runtime_checkable
class Sink(Protocol):
    """The definition of a sink: frozen and picklable."""

    @property
    def volatile(self) -> bool:
        """Is its output handed to the driver, and never stored?"""
        return False

    def writer(self, context: WriterContext) -> SinkWriter: ...

    def committer(self, context: CommitterContext) -> Committer: ...

    def describe(self) -> str: ...


@runtime_checkable
class TakesChanges(Protocol):
    """A sink that may take more than rows that are added. Batches of a stream that updates have `kinds`."""

    @property
    def changelog(self) -> Changelog: ...


# --- what a committer may have ----------------------------------------------------------------------------------------


@runtime_checkable
class Sweeps(Protocol):
    """A committer that can remove what failed attempts left staged."""

    def sweep(self) -> int:
        """Remove leftovers of attempts that are `sweepable`; how many there were. Called after recovery has committed what the
        newest manifest holds."""
        ...


@runtime_checkable
class Confirms(Protocol):
    """A committer that can check that committed output is still published."""

    def confirm(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        """Publish the output of this committed epoch again if it is lost. Called at a start, for the newest epoch with output."""
