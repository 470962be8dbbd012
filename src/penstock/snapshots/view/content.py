"""What is in a snapshot, wherever it is: a savepoint's folder, or the files of a job's epoch.

Law: entries come in order of key group and store key, in lists of bounded size, and of one committed epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pyarrow as pa

from penstock.jobs.manifest import Manifest, StateInfo
from penstock.jobs.pins import pin
from penstock.jobs.terms import JobInfo, read_job
from penstock.snapshots.restore.reference import locate
from penstock.snapshots.savepoint.format import SavedState, SavepointInfo, read_info
from penstock.snapshots.savepoint.savepoint import as_savepoint
from penstock.snapshots.savepoint.state_file import open_state
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.kinds import state_named
from penstock.state.entries.state_table import StateTable
from penstock.state.files.merging import StateEntries, read_states
from penstock.state.files.row_groups import KEY_GROUP, RAW_KEY, RAW_VALUE
from penstock.state.key_groups import kept_groups_of
from penstock.storage import Storage

SAMPLE = 1000
"""How many entries are looked at to infer what was not declared."""


class Content(Protocol):
    """The entries of a snapshot. `info`: what it is; of a job's epoch its states have no files."""

    info: SavepointInfo
    source: str
    is_savepoint: bool

    def entries(self, number: int, groups: range | None = None) -> GroupedEntries: ...

    def columns(self, number: int) -> StateTable:
        """How the entries of a state are shown."""
        ...

    def batches(self, number: int, groups: range | None = None) -> Iterator[pa.RecordBatch]:
        """Key group, readable columns, raw key and raw value."""
        ...

    def sizes(self) -> dict[int, tuple[int, int]]:
        """Entries and bytes of each state."""
        ...


def open_content(text: str, held: ExitStack, why: str) -> Content:
    """The snapshot behind a savepoint's URI, a job's, or `JOB@EPOCH`. An epoch is pinned for as long as `held` is open."""
    located = locate(text)
    place = located.storage
    if located.is_savepoint:
        return SavepointContent(place)
    manifest = held.enter_context(pin(place, located.epoch, why))
    return EpochContent(place, read_job(place), manifest)


def with_raw(columns: StateTable) -> pa.Schema:
    """The columns of a state file."""
    ends = pa.field(RAW_KEY, pa.binary(), nullable=False), pa.field(RAW_VALUE, pa.binary(), nullable=False)
    return pa.schema([pa.field(KEY_GROUP, pa.int32(), nullable=False), *columns.schema, *ends], columns.schema.metadata)


class SavepointContent:
    is_savepoint = True

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.info = read_info(storage)
        self.source = storage.uri
        self._states = {state.number: state for state in self.info.states}

    def entries(self, number: int, groups: range | None = None) -> GroupedEntries:
        for file in self._states[number].files:
            yield from open_state(self.storage, file).entries(groups)

    def columns(self, number: int) -> StateTable:
        state = self._states[number]
        for file in state.files:
            if file.rows:
                return StateTable.like(state.info, self.info.key_groups, open_state(self.storage, file).schema)
        return StateTable(state.info, self.info.key_groups)

    def batches(self, number: int, groups: range | None = None) -> Iterator[pa.RecordBatch]:
        """As they are in the files. Parts that were written with other types of undeclared keys are converted."""
        columns = self.columns(number)
        schema = with_raw(columns)
        for file in self._states[number].files:
            reader = open_state(self.storage, file)
            if reader.schema.equals(schema):
                for _, table in reader.tables(groups):
                    yield from table.replace_schema_metadata(schema.metadata).to_batches()
            else:
                yield from converted(reader.entries(groups), columns)

    def sizes(self) -> dict[int, tuple[int, int]]:
        return {state.number: (state.rows, state.bytes) for state in self.info.states}


class EpochContent:
    is_savepoint = False

    def __init__(self, storage: Storage, job: JobInfo, manifest: Manifest) -> None:
        self.storage = storage
        self.source = f"{storage.uri}@{manifest.epoch}"
        self._layout = manifest.state
        self.info = as_savepoint(storage, job, manifest)
        self._sizes: dict[int, tuple[int, int]] | None = None

    def entries(self, number: int, groups: range | None = None) -> GroupedEntries:
        for stage, numbers in enumerate(self._layout.stages):
            if number in numbers:
                yield from ((group, keys, values) for group, _, keys, values in self._read(stage, frozenset((number,)), groups))

    def columns(self, number: int) -> StateTable:
        keys: list[bytes] = []
        values: list[bytes] = []
        for _, more_keys, more_values in self.entries(number):
            keys += more_keys
            values += more_values
            if len(keys) >= SAMPLE:
                break
        return StateTable.sampled(self._info(number), self.info.key_groups, keys[:SAMPLE], values[:SAMPLE])

    def batches(self, number: int, groups: range | None = None) -> Iterator[pa.RecordBatch]:
        yield from converted(self.entries(number, groups), self.columns(number))

    def sizes(self) -> dict[int, tuple[int, int]]:
        """Counted, once."""
        if self._sizes is None:
            found = {int(number): (0, 0) for number in self._layout.ids}
            for stage, numbers in enumerate(self._layout.stages):
                for _, number, keys, values in self._read(stage, frozenset(numbers), None):
                    rows, size = found.get(number, (0, 0))
                    found[number] = rows + len(keys), size + sum(map(len, keys)) + sum(map(len, values))
            self._sizes = found
        return self._sizes

    def _info(self, number: int) -> StateInfo:
        return self._layout.ids[str(number)]

    def _read(self, stage: int, kept: frozenset[int], groups: range | None) -> StateEntries:
        layout = self._layout
        for partition, chain in enumerate(layout.chains[stage]):
            own = kept_groups_of(partition, layout.parallelism, layout.max_parallelism)
            wanted = own if groups is None else range(max(own.start, groups.start), min(own.stop, groups.stop))
            if wanted:
                yield from read_states(self.storage, chain, wanted, kept.__contains__)


def converted(entries: GroupedEntries, columns: StateTable) -> Iterator[pa.RecordBatch]:
    """Entries as record batches."""
    schema = with_raw(columns)
    for group, keys, values in entries:
        arrays = [pa.repeat(pa.scalar(group, pa.int32()), len(keys)), *columns.read(keys, values)]
        yield pa.record_batch([*arrays, pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=schema)


def state_of(info: SavepointInfo, step: str, name: str | None) -> SavedState:
    """A state by step and name: see `state_named`."""
    found = state_named([state.info for state in info.states], step, name)
    return next(state for state in info.states if state.info is found)
