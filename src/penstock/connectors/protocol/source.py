"""A source: a *definition* that makes an **enumerator** (driver) and a **reader** (worker).

- `Enumerator.plan(position, limits, now_ms)` is given the position at which the last epoch ended, and says which splits the next
  one reads and at which position that ends. It keeps no position of its own: asked again with the same position it may answer
  with more, but never with other data for the same range. A position is small and JSON-able.
- `Reader.read(split)` yields the same batches, in the same order, whenever it is asked for the same split.
- A split names its source partition. The splits of a partition are read one after another, as planned, by one task: event time
  is kept per partition.
- An enumerator is called by one thread at a time, but not always by the same one. A `close` that hangs is abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from penstock.ids import Epoch, JobId, StepId
from penstock.plan.schema import Schema
from penstock.records import DICT_ROW, Batch, RowType
from penstock.storage import Storage
from penstock.storage.protocol import segment

Position = Any
"""JSON-able; None before the first epoch."""

Ordering = Literal["none", "partition", "time"]
"""The order in which a job needs a source's records.

- none: any. No event time is kept, so partitions mean nothing: splits may be cut and spread as is fastest.
- partition: each partition's records in order.
- time: partitions are also read side by side in event time, because a step that follows sees order."""


class Split(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of input for one epoch: `partition` is the source partition, `what` is for the reader.

    `records`: how many it holds, if known; `estimated`: that is an estimate."""

    partition: str
    what: Any
    records: int | None = None
    bytes: int | None = None
    estimated: bool = False


class Limits(msgspec.Struct, frozen=True):
    """The most that an epoch should take from a source. At least one unit of progress is always allowed.

    `readers` is how many tasks can read at once (the parallelism).
    """

    records: int
    bytes: int
    readers: int = 1
    full: frozenset[str] = frozenset()
    """Partitions that have enough planned already: give them nothing now, if possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An enumerator's answer.

    `partitions` are all source partitions that exist now and may still get data: those of them without a split hold event
    time back until they are idle. `exhausted`: nothing will ever come after these splits. `wake_ms`: when to ask again if there
    are no splits now (None: soon). `backlog`: records (estimated) left to read after these splits, if known.

    `more`: the partitions that have more to read now, beyond these splits. A source that says so can be read in order of event
    time: an epoch may stop anywhere in its splits, and a split that was begun is read again in the next epoch, without the rows
    already taken, even if `committed` was called with a later position meanwhile. Give a partition several small splits then, and
    have the definition say `reads_in_order = True`. A partition that has more and is not `full` must get a split.
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
        return

    def close(self) -> None:
        """Release what it holds."""
        return


class Reader(Protocol):
    """In the worker: reads a split. Yields lists of records, or Arrow record batches."""

    def read(self, split: Split) -> Iterator[Batch]: ...

    def close(self) -> None:
        """Release what it holds."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What an enumerator knows of its job. `step` is the name under which the outside world knows the source."""

    job: JobId
    step: StepId
    storage: Storage
    parallelism: int
    ordering: Ordering = "partition"
    local_dir: str | None = None
    """A folder on this host that the job may use, if it was given one."""
    spark: Callable[[], Any] | None = None
    """Gives the `SparkSession` of a job that runs on Spark."""

    @property
    def folder(self) -> str:
        """Where in the storage this source may keep what it needs."""
        return f"feeds/{segment(self.step)}"


@runtime_checkable
class Source(Protocol):
    """The definition of a source: frozen and picklable."""

    @property
    def bounded(self) -> bool:
        """Does its input end by itself?"""
        ...

    @property
    def row(self) -> RowType:
        """The class of its records; by default there is none, and what is read as columns becomes dicts."""
        return DICT_ROW

    def enumerator(self, context: SourceContext) -> Enumerator: ...

    def reader(self) -> Reader: ...

    def describe(self) -> str: ...


# --- what a source may have -------------------------------------------------------------------------------------------


@runtime_checkable
class ReadsInOrder(Protocol):
    """A source whose enumerator says `Planned.more`, so that it can be read in order of event time."""

    @property
    def reads_in_order(self) -> bool: ...


@runtime_checkable
class PositionKind(Protocol):
    """A source whose positions are not named after its class, say because the class was renamed."""

    @property
    def position_kind(self) -> str: ...


@runtime_checkable
class KnowsColumns(Protocol):
    """A source that can say what its records look like before they are read."""

    def known_columns(self) -> Schema | None:
        """Their columns; None if they are not known now. May look at the input, and must not fail if that is not there."""
        ...


@runtime_checkable
class PrunesColumns(Protocol):
    """A source that can leave columns unread."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The only columns that it reads; None: all."""
        ...

    def with_columns(self, columns: Sequence[str], *, strict: bool) -> Source | None:
        """The same source, reading only these columns; None if it has to read all. `strict`: a record that lacks one of them
        must be as it was, not one with a null."""
        ...


# --- what an enumerator may have --------------------------------------------------------------------------------------


@runtime_checkable
class KnowsIdle(Protocol):
    """An enumerator whose input arrives by itself: no splits now does not mean that nothing is on its way."""

    def idle(self) -> bool:
        """Has everything that was there been handed over? Asked when there is nothing to read and the job runs until idle."""


@runtime_checkable
class RemovesInput(Protocol):
    """An enumerator that removes input that has been read."""

    def unread(self, splits: Sequence[Split]) -> None:
        """Called before `committed`: what was planned up to its position and has not been read. It has to stay."""
        ...


@runtime_checkable
class Sheds(Protocol):
    """An enumerator that can skip input when an at-most-once job is overloaded."""

    def shed(self, position: Position, now_ms: int) -> tuple[Position, int]:
        """The position of the newest input, and how many records lie between (they will not be read)."""


@runtime_checkable
class ComparesPositions(Protocol):
    """An enumerator that can compare how far two positions are."""

    def reached(self, position: Position, goal: Position) -> bool | None:
        """Is everything read at `position` that was read at `goal`? None: that cannot be known."""


# --- what a reader may have -------------------------------------------------------------------------------------------


@runtime_checkable
class CountsSkipped(Protocol):
    """A reader that may leave out records it cannot read."""

    @property
    def skipped(self) -> int:
        """How many it has left out so far."""
        ...
