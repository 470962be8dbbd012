"""What is in a snapshot, wherever it is: a savepoint's folder, or the files of a job's epoch.

Law: entries come in order of key group and store key, in lists of bounded size, and of one committed epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pyarrow as pa

from penstock.errors import StateError
from penstock.jobs.manifest import Manifest, StateInfo
from penstock.jobs.pins import pin
from penstock.jobs.terms import JobInfo, read_job
from penstock.snapshots.restore.reference import locate
from penstock.snapshots.savepoint.format import SavedJob, SavedState, SavepointInfo, read_info, version_of
from penstock.snapshots.savepoint.state_file import open_state
from penstock.snapshots.tabular.columns import Columns
from penstock.state.entries.layout import HEAD_SIZE, group_of_store_key, state_id_of_store_key
from penstock.state.files.durable import read_entries
from penstock.state.files.merging import live, newest
from penstock.state.files.row_groups import KEY_GROUP, RAW_KEY, RAW_VALUE
from penstock.state.key_groups import groups_of
from penstock.storage import Storage

Entries = Iterator[tuple[int, list[bytes], list[bytes]]]
"""(key group, raw keys, raw values), in order."""

SAMPLE = 1000
"""So many entries are looked at to find out what was not declared."""


class Content(Protocol):
    """The entries of a snapshot. `info`: what it is; of a job's epoch its states have no files."""

    info: SavepointInfo
    source: str
    is_savepoint: bool

    def entries(self, number: int, groups: range | None = None) -> Entries: ...

    def columns(self, number: int) -> Columns:
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


def with_raw(columns: Columns) -> pa.Schema:
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

    def entries(self, number: int, groups: range | None = None) -> Entries:
        for file in self._states[number].files:
            yield from open_state(self.storage, file).entries(groups)

    def columns(self, number: int) -> Columns:
        state = self._states[number]
        for file in state.files:
            if file.rows:
                return Columns.like(state.info, self.info.key_groups, open_state(self.storage, file).schema)
        return Columns(state.info, self.info.key_groups)

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

    def entries(self, number: int, groups: range | None = None) -> Entries:
        for stage, numbers in enumerate(self._layout.stages):
            if number in numbers:
                yield from ((group, keys, values) for _, group, keys, values in self._read(stage, frozenset((number,)), groups))

    def columns(self, number: int) -> Columns:
        keys: list[bytes] = []
        values: list[bytes] = []
        for _, more_keys, more_values in self.entries(number):
            keys += more_keys
            values += more_values
            if len(keys) >= SAMPLE:
                break
        return Columns(self._info(number), self.info.key_groups, (keys[:SAMPLE], values[:SAMPLE]))

    def batches(self, number: int, groups: range | None = None) -> Iterator[pa.RecordBatch]:
        yield from converted(self.entries(number, groups), self.columns(number))

    def sizes(self) -> dict[int, tuple[int, int]]:
        """Counted, once."""
        if self._sizes is None:
            found = {int(number): (0, 0) for number in self._layout.ids}
            for stage, numbers in enumerate(self._layout.stages):
                for number, _, keys, values in self._read(stage, frozenset(numbers), None):
                    rows, size = found.get(number, (0, 0))
                    found[number] = rows + len(keys), size + sum(map(len, keys)) + sum(map(len, values))
            self._sizes = found
        return self._sizes

    def _info(self, number: int) -> StateInfo:
        return self._layout.ids[str(number)]

    def _read(
        self, stage: int, kept: frozenset[int], groups: range | None
    ) -> Iterator[tuple[int, int, list[bytes], list[bytes]]]:
        """`(state, group, raw keys, raw values)`, in order of group and state."""
        layout = self._layout
        for partition, chain in enumerate(layout.chains[stage]):
            own = groups_of(partition, layout.parallelism, layout.max_parallelism)
            wanted = own if groups is None else range(max(own.start, groups.start), min(own.stop, groups.stop))
            if not wanted:
                continue
            runs = [read_entries(self.storage, ref, groups=wanted, keep=kept.__contains__) for ref in chain]
            for keys, values in live(newest(runs)):
                heads = [key[:HEAD_SIZE] for key in keys]
                start = 0
                while start < len(keys):
                    head = heads[start]
                    stop = len(keys) if heads[-1] == head else next(n for n in range(start, len(keys)) if heads[n] != head)
                    raw = [key[HEAD_SIZE:] for key in keys[start:stop]]
                    yield state_id_of_store_key(head), group_of_store_key(head), raw, values[start:stop]
                    start = stop


def converted(entries: Entries, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Entries as record batches."""
    schema = with_raw(columns)
    for group, keys, values in entries:
        arrays = [pa.repeat(pa.scalar(group, pa.int32()), len(keys)), *columns.read(keys, values)]
        yield pa.record_batch([*arrays, pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=schema)


def as_savepoint(storage: Storage, job: JobInfo, manifest: Manifest) -> SavepointInfo:
    """What a savepoint of this epoch would say of itself, without files."""
    layout = manifest.state
    due: dict[int, int] = {}
    for stage in layout.next_due:
        for times in stage:
            for number, time in times.items():
                due[number] = min(time, due.get(number, time))
    return SavepointInfo(
        version=version_of(layout.key_hash, manifest.sources),
        identity=f"{manifest.job}@{manifest.epoch}",
        created_ms=manifest.created_ms,
        job=SavedJob(job.job, job.name, storage.uri),
        epoch=manifest.epoch,
        max_parallelism=layout.max_parallelism,
        key_hash=layout.key_hash,
        program=manifest.program,
        config={"parallelism": layout.parallelism, "max_parallelism": layout.max_parallelism},
        parent=manifest.restored,
        processing_time=manifest.processing_time,
        finished=manifest.finished,
        drained=manifest.drained,
        sources=manifest.sources,
        watermarks=manifest.watermarks,
        left_out=manifest.left_out,
        states=[SavedState(int(number), info, due.get(int(number)), []) for number, info in layout.ids.items()],
        uri=f"{storage.uri}@{manifest.epoch}",
    )


def state_of(info: SavepointInfo, step: str, name: str | None) -> SavedState:
    """A state by step and name; of a step with a single state that is not of timers, by step alone."""
    of_step = [state for state in info.states if state.info.step == step]
    for state in of_step:
        if state.info.name == name:
            return state
    kept = [state for state in of_step if state.info.kind != "timers"]
    if name is None and len(kept) == 1:
        return kept[0]
    steps = sorted({state.info.step for state in info.states})
    if not of_step:
        raise StateError(f"no step {step!r} has state here", hint=f"steps: {', '.join(steps)}" if steps else "there is no state")
    names = ", ".join(state.info.name for state in of_step)
    what = f"step {step!r} has several states" if name is None else f"step {step!r} has no state {name!r}"
    raise StateError(what, hint=f"its states: {names}")
