"""What a source and a sink are.

A source is a *definition* that makes an **enumerator** (driver) and a **reader** (worker).

- `Enumerator.plan(position, limits, now_ms)` is told where the last committed epoch ended and answers which splits the next one
  reads and where that ends. It keeps no position of its own: asked twice with the same position it may answer with more, never
  with other data for the same ground. A position is small and JSON-able.
- `Reader.read(split)` yields the same batches, in the same order, whenever it is asked for the same split.
- A split names its source partition. Splits of one partition are read one after another, in the order planned, by one task: event
  time is kept per partition.

A sink is a definition that makes **writers** (worker) and a **committer** (driver).

- A writer stages what it is given where nobody sees it; `prepare` makes it durable and returns a committable (JSON-able or
  bytes).
- `Committer.commit(epoch, committables)` publishes them. It must be idempotent on (job, sink, epoch): recovery calls it again.
- Enumerators and committers are called by one thread at a time, though not always by the same one. A `close` that hangs is left
  behind.
- `volatile` sinks (print, collect) hand their output to the driver in the committable; it is never written to a manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.changes import Changelog
from penstock.ids import Epoch, JobId, StepId
from penstock.plan.schema import Schema
from penstock.records import Batch, RowType
from penstock.storage import Storage

Position = Any
"""JSON-able; None before the first epoch."""

Committable = Any
"""JSON-able (bytes are allowed for volatile sinks only)."""


class Split(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of input for one epoch: `partition` is the source partition, `what` is for the reader.

    `records`: how many it holds, if that is known; `estimated`: about so many."""

    partition: str
    what: Any
    records: int | None = None
    bytes: int | None = None
    estimated: bool = False


class Limits(msgspec.Struct, frozen=True):
    """How much an epoch should take from a source, at most. At least one unit of progress is always allowed.

    `readers` is how many tasks can read at once (the parallelism); `shed` asks an at-most-once source to skip ahead.
    """

    records: int
    bytes: int
    readers: int = 1
    full: frozenset[str] = frozenset()
    """Partitions that have enough planned already: they should get nothing now, if that is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An enumerator's answer.

    `partitions` are all source partitions that exist now and may still get data: those of them without a split hold event
    time back until they are idle. `exhausted`: after these splits nothing will ever come. `wake_ms`: when to ask again if there
    are no splits now (None: soon). `backlog`: records (estimated) left to read after these splits, if known.

    `more`: the partitions that have more to read now, beyond these splits. A source that says so can be read in order of event
    time: an epoch may stop anywhere in its splits, and one that was begun is read again in the next epoch, without the rows
    that were taken; also after `committed` was called with a later position. Give a partition several small splits then. Its
    definition has `reads_in_order = True`, for explain; `extras["in_order"]` of the `SourceContext` tells whether steps follow
    that see order. A partition that has more and is not `full` must get a split.
    """

    splits: Sequence[Split] = ()
    position: Position = None
    partitions: Sequence[str] = ()
    exhausted: bool = False
    wake_ms: int | None = None
    backlog: int | None = None
    more: Sequence[str] | None = None


class Enumerator(Protocol):
    """On the driver: decides what to read."""

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned: ...

    def committed(self, position: Position, epoch: Epoch) -> None:
        """Everything up to `position` is durably processed (acknowledge, clean up). May be called again after recovery."""

    def close(self) -> None: ...


class Reader(Protocol):
    """In the worker: reads a split. Yields lists of records, or Arrow record batches."""

    def read(self, split: Split) -> Iterator[Batch]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What an enumerator is told about its job."""

    job: JobId
    step: StepId
    storage: Storage
    parallelism: int
    extras: dict[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """The definition of a source: frozen and picklable."""

    @property
    def bounded(self) -> bool: ...

    @property
    def row(self) -> RowType: ...

    def enumerator(self, context: SourceContext) -> Enumerator: ...

    def reader(self) -> Reader: ...

    def describe(self) -> str: ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterContext:
    """What a committer is told about its job. `sweepable(attempt)`: may staged leftovers of this attempt be removed?"""

    job: JobId
    step: StepId
    storage: Storage
    job_name: str = ""
    sweepable: Callable[[str], bool] = lambda attempt: False


class SinkWriter(Protocol):
    """In the worker, one for each partition and epoch; made only if there is something to write."""

    def write(self, batch: Batch) -> None: ...

    def prepare(self) -> Committable: ...

    def abort(self) -> None: ...


class Committer(Protocol):
    """On the driver: publishes what the writers prepared."""

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None: ...

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        """The epoch will never be committed: its staged output may go."""

    def close(self) -> None: ...


class Sink(Protocol):
    """The definition of a sink: frozen and picklable."""

    @property
    def volatile(self) -> bool: ...

    def writer(self, context: WriterContext) -> SinkWriter: ...

    def committer(self, context: CommitterContext) -> Committer: ...

    def describe(self) -> str: ...


@runtime_checkable
class TakesChanges(Protocol):
    """A sink that may take more than rows that are added. Batches of a stream that updates have `kinds`."""

    @property
    def changelog(self) -> Changelog: ...


@runtime_checkable
class KnowsIdle(Protocol):
    """An enumerator whose input comes by itself: that there are no splits does not mean that there is nothing to come."""

    def idle(self) -> bool:
        """Has everything been handed over that was there? Asked when there is nothing to read and the job runs until idle."""


@runtime_checkable
class KnowsColumns(Protocol):
    """A source that can say what its records look like before they are read."""

    def known_columns(self) -> Schema | None:
        """Their columns; None if it cannot be told now. May look at the input, and must not fail if that is not there."""
        ...


@runtime_checkable
class PrunesColumns(Protocol):
    """A source that can leave columns unread."""

    def with_columns(self, columns: Sequence[str], *, strict: bool) -> Source | None:
        """The same source, which reads only these columns; None if it has to read all. `strict`: a record that lacks one of them
        must be as it was, not one with a null."""
        ...


@runtime_checkable
class CountsSkipped(Protocol):
    """A reader that may leave out records it cannot read."""

    @property
    def skipped(self) -> int:
        """How many it has left out so far."""
        ...


@runtime_checkable
class Sheds(Protocol):
    """An enumerator that can skip input when an at-most-once job is overloaded."""

    def shed(self, position: Position, now_ms: int) -> tuple[Position, int]:
        """The position of the newest input, and how many records lie between (they will not be read)."""


class Published(msgspec.Struct, frozen=True):
    """What a sink tells of its output: `newest` is the newest epoch it knows of at all; the rest is about what it published
    after some epoch and readers still see. None: not known. `obstacle`: why that cannot be taken back, if it cannot."""

    newest: Epoch | None = None
    epochs: int | None = None
    records: int | None = None
    obstacle: str = ""


@runtime_checkable
class TellsPublished(Protocol):
    """A committer that can say what it has published."""

    def published_after(self, epoch: Epoch) -> Published: ...


@runtime_checkable
class KnowsPlaces(Protocol):
    """A committer that can tell output of its own place from output that was published while the sink wrote to another."""

    def elsewhere(self, committables: Sequence[Committable]) -> dict[str, int]:
        """The other places that an epoch's output was published to, with the number of records."""
        ...


@runtime_checkable
class RollsBack(TellsPublished, Protocol):
    """A committer that can take back what it published, when the job goes back to an earlier epoch.

    Called after the take-over epoch `at` is committed, and again if it is not known to have ended well. From then on nothing of
    an epoch below `at` is published. `to` is 0 when the job begins anew.
    """

    def roll_back(self, to: Epoch, at: Epoch) -> None:
        """Show what was published when `to` was the newest epoch (of its line, if the job went back before)."""


@runtime_checkable
class Repairs(RollsBack, Protocol):
    """A committer that can keep the old output visible until the new one has caught up, and then replace it at once."""

    def begin_repair(self, to: Epoch, at: Epoch) -> None:
        """Like `roll_back`, but nobody sees it yet: what is committed from now on is held back."""

    def repairing(self) -> bool:
        """Is output held back?"""

    def finish_repair(self, at: Epoch) -> None:
        """Show what was held back, instead of what is shown. `at`: the newest epoch committed."""


@runtime_checkable
class Fences(Protocol):
    """A committer that cannot take output back, but can see to it that nothing of an epoch below `at` is published any more."""

    def fence(self, at: Epoch) -> None: ...


@runtime_checkable
class ComparesPositions(Protocol):
    """An enumerator that can tell whether everything read at one position is also read at another."""

    def reached(self, position: Position, goal: Position) -> bool | None:
        """Is everything read at `position` that was read at `goal`? None: it cannot be told."""


def rows_of(batches: Iterable[Batch]) -> Iterator[Any]:
    for batch in batches:
        yield from batch.values()
