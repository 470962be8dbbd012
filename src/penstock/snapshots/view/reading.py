"""Snapshots, looked into: `read(uri)` gives the states of a savepoint, or of a job's epoch, as Arrow, pandas and Spark."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.data_frames import as_pandas
from penstock.errors import StateError
from penstock.ids import MIN_WATERMARK, Epoch, Milliseconds
from penstock.jobs.manifest import Restored, SourceState, StateInfo
from penstock.snapshots.savepoint.format import SavedJob, SavedState
from penstock.snapshots.view.content import Content, SavepointContent, open_content, state_of
from penstock.snapshots.view.lookup import Lookup
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.kinds import StateKind, kind_of
from penstock.state.entries.state_table import StateTable
from penstock.storage.local import LocalStorage

if TYPE_CHECKING:
    import pandas as pd


def read(uri: str) -> Snapshot:
    """The savepoint in a folder, or an epoch of a job: `JOB@EPOCH`, or `JOB` for its newest one.

    An epoch stays (it is pinned) until the snapshot is closed, so use it `with`, or close it.
    """
    held = ExitStack()
    try:
        return Snapshot(open_content(str(uri), held, "reading"), held)
    except BaseException:
        held.close()
        raise


class Snapshot:
    """A snapshot: what it is of, where its sources stand, and its states."""

    def __init__(self, content: Content, held: ExitStack) -> None:
        self.content = content
        self.info = content.info
        self._close = weakref.finalize(self, held.close)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the epoch."""
        self._close()

    @property
    def uri(self) -> str:
        """The savepoint's, or `JOB@EPOCH`."""
        return self.content.source

    @property
    def job(self) -> SavedJob:
        return self.info.job

    @property
    def epoch(self) -> Epoch:
        return self.info.epoch

    @property
    def max_parallelism(self) -> int:
        return self.info.max_parallelism

    @property
    def sources(self) -> dict[str, SourceState]:
        """Where the sources stand, by step."""
        return self.info.sources

    @property
    def watermarks(self) -> dict[str, Milliseconds]:
        """Event time, by step."""
        return self.info.watermarks

    @property
    def parent(self) -> Restored | None:
        """What the job was last started from, or what this savepoint was made from."""
        return self.info.parent

    def states(self) -> list[SnapshotState]:
        """All states, by step and name."""
        return [SnapshotState(self, state) for state in sorted(self.info.states, key=lambda s: (s.info.step, s.info.name))]

    def state(self, step: str, name: str | None = None) -> SnapshotState:
        """A state by its step and its name (which a step with one state need not be given)."""
        return SnapshotState(self, state_of(self.info, step, name))

    def __repr__(self) -> str:
        return f"<Snapshot {self.uri}: job {self.job.name!r}, epoch {self.epoch}, {len(self.info.states)} states>"


class SnapshotState:
    """One state of a snapshot."""

    def __init__(self, snapshot: Snapshot, saved: SavedState) -> None:
        self._snapshot = snapshot
        self._content = snapshot.content
        self.number = saved.number
        self.info: StateInfo = saved.info
        self.next_due = saved.next_due
        """When something is due first: a timer, a window."""
        self._columns: StateTable | None = None

    @property
    def step(self) -> str:
        return self.info.step

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def kind(self) -> str:
        return self.info.kind

    @property
    def entries(self) -> int:
        return self._content.sizes()[self.number][0]

    @property
    def bytes(self) -> int:
        """As it is stored: of a savepoint the size of its files, of an epoch that of keys and values."""
        return self._content.sizes()[self.number][1]

    @property
    def columns(self) -> StateTable:
        if self._columns is None:
            self._columns = self._content.columns(self.number)
        return self._columns

    @property
    def schema(self) -> pa.Schema:
        """The columns, as `to_arrow` and `batches` give them: see `penstock.state.entries.state_table`."""
        return self.columns.schema

    def batches(self, *, raw: bool = False) -> Iterator[pa.RecordBatch]:
        """The entries, a record batch at a time, by key group and key. `raw`: with `key_group`, `raw_key` and `raw_value`."""
        for batch in self._content.batches(self.number):
            yield batch if raw else batch.select(self.schema.names)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self, *, flatten: bool = False) -> pd.DataFrame:
        """A pandas DataFrame. Columns of integers that have nulls are `Int64`, not floats.

        `flatten`: a column for each field of nested values, such as `value.amount`."""
        return as_pandas(self.to_arrow(), flatten=flatten)

    def to_spark(self, spark: Any) -> Any:
        """A Spark DataFrame. Of a savepoint on a local disk, Spark reads the files itself."""
        content = self._content
        if isinstance(content, SavepointContent) and isinstance(content.storage, LocalStorage) and _spark_can_read(self.schema):
            files = [f"file://{content.storage.root}/{file.path}" for file in self._saved_files() if file.rows]
            if files:
                return spark.read.parquet(*files).select(*(f"`{name}`" for name in self.schema.names))
        return spark.createDataFrame(self.to_arrow())

    def _saved_files(self) -> Any:
        return next(state for state in self._snapshot.info.states if state.number == self.number).files

    def windows(self) -> Iterator[dict[str, Any]]:
        """Of windows over columns: a dict for each key and slice (or session), with the aggregates so far."""
        kind, entries = self._contents()
        if not kind.in_plain_text:
            raise StateError(f"{self!r} has no windows over columns that can be read", hint="to_arrow() gives its entries")
        for _, keys, values in entries:
            for of, aggregates in map(kind.shown, keys, values):
                yield {**of, **aggregates}

    @property
    def has_windows(self) -> bool:
        """It is of windows over columns, and `windows` can tell what they hold."""
        return self._contents()[0].in_plain_text

    def _contents(self) -> tuple[StateKind, GroupedEntries]:
        watermark = self._snapshot.watermarks.get(self.step, MIN_WATERMARK)
        return kind_of(self.info).contents(self._content.entries(self.number), self.info, watermark)

    def find(self, key: Any) -> pa.Table:
        """The rows of one key. Only its key group is read."""
        return self._finder().rows(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """What is kept for a key: a value, a list, a dict, the times of its timers; of windows, a dict by (start, end)."""
        return self._finder().value(key, default)

    def _finder(self) -> Lookup:
        return Lookup(self._content, self.number, self.info, self.columns)

    def __len__(self) -> int:
        return self.entries

    def __repr__(self) -> str:
        return f"<{self.kind} state {self.name!r} of step {self.step!r}>"


def _spark_can_read(schema: pa.Schema) -> bool:
    """Spark's Parquet has no durations and times."""
    text = str(schema)
    return "duration" not in text and "time64" not in text
