"""The state of some partitions of a committed epoch, written into a savepoint: what one process does.

Streaming: a few blocks of each state file, and one key group of each state as columns, are in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.failpoints import fail_point
from penstock.ids import Milliseconds
from penstock.jobs.manifest import StateLayout
from penstock.snapshots.savepoint.format import SavedState, StateWriter, state_path
from penstock.snapshots.savepoint.state_file import open_state
from penstock.state.files.merging import read_states
from penstock.state.key_groups import groups_of, kept_groups_of
from penstock.storage import Storage

Written = Callable[[int, int], None]
"""Called from time to time with the number of key groups and rows written since the last call."""


class Part(msgspec.Struct, frozen=True):
    """Partitions `first` to `last` of an epoch's state, for the savepoint `identity`. `number`: of several parts; only then are
    states without entries left out."""

    identity: str
    layout: StateLayout
    first: int
    last: int
    number: int | None = None


def cut(identity: str, layout: StateLayout, processes: int) -> list[Part]:
    """The state in as many parts as there are processes, by partitions."""
    count = max(1, min(processes, layout.parallelism))
    if count == 1:
        return [Part(identity, layout, 0, layout.parallelism - 1)]
    starts = [number * layout.parallelism // count for number in range(count + 1)]
    return [Part(identity, layout, starts[n], starts[n + 1] - 1, n) for n in range(count)]


def write_part(storage: Storage, place: Storage, part: Part, written: Written) -> list[SavedState]:
    """Write the states of a part, each to a file."""
    saved: list[SavedState] = []
    for stage, numbers in enumerate(part.layout.stages):
        if numbers:
            saved += _write_stage(storage, place, part, stage, written)
    return saved


def _write_stage(storage: Storage, place: Storage, part: Part, stage: int, written: Written) -> list[SavedState]:
    layout = part.layout
    writers = _Writers(place, part)
    kept = frozenset(layout.stages[stage]).__contains__
    try:
        if part.number is None:
            for number in layout.stages[stage]:
                writers[number]
        for partition in range(part.first, part.last + 1):
            own = groups_of(partition, layout.parallelism, layout.max_parallelism)
            groups = kept_groups_of(partition, layout.parallelism, layout.max_parallelism)
            at = own.start
            for group, number, keys, values in read_states(storage, layout.chains[stage][partition], groups, kept):
                writers[number].group(group, keys, values)
                upto = min(group, own.stop)  # the shared group is none of the key groups that progress counts
                written(upto - at, len(keys))
                at = upto
            written(own.stop - at, 0)
        saved = []
        for number in sorted(writers):
            file = writers[number].close()
            writer = writers.pop(number)
            saved.append(SavedState(number, writer.info, next_due(layout, stage, number), [file]))
            fail_point("savepoint:state")
        return saved
    except BaseException as error:
        for writer in writers.values():
            writer.abandon(error)
        raise


class _Writers(dict[int, StateWriter]):
    """A writer for each state that has entries."""

    def __init__(self, place: Storage, part: Part) -> None:
        super().__init__()
        self._place = place
        self._part = part

    def __missing__(self, number: int) -> StateWriter:
        part = self._part
        info = part.layout.ids[str(number)]
        path = state_path(number, info, part.number)
        writer = StateWriter(self._place, path, part.identity, number, info, part.layout.key_groups)
        self[number] = writer
        return writer


def next_due(layout: StateLayout, stage: int, number: int) -> Milliseconds | None:
    """When the first timer of a state is due, anywhere."""
    return min((times[number] for times in layout.next_due[stage] if number in times), default=None)


def joined(parts: list[list[SavedState]]) -> list[SavedState]:
    """The states of all parts, each with the files of all."""
    found: dict[int, SavedState] = {}
    for states in parts:
        for state in states:
            before = found.get(state.number)
            found[state.number] = msgspec.structs.replace(state, files=[*(before.files if before else ()), *state.files])
    return [found[number] for number in sorted(found)]


def of_one_form(place: Storage, state: SavedState) -> bool:
    """Have all files of a state the same columns? Where types are not declared each part has found them out for itself."""
    schemas = [open_state(place, file).schema for file in state.files]
    return all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)
