"""Snapshots, edited: a new savepoint from an old one (or from a job's epoch), with some things changed.

    with snapshots.edit("savepoints/monday") as edit:
        edit.state("ledger", "orders").put([{"key": "shop-1", "value": 0}])
        edit.write("savepoints/monday-mended")

Laws:
- Nothing is changed in place. What is not touched is copied byte for byte, and so is every row that a function gives back as it
  was. The new savepoint names the old one as its parent.
- Changes of a state are made in the order they are written here, and cost memory only up to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa

from penstock.errors import StateError
from penstock.ids import Epoch
from penstock.jobs.manifest import Restored, SourceState, StateInfo
from penstock.snapshots.edit.row_input import tables_of
from penstock.snapshots.edit.sorting import Blocks, Sorter, as_blocks, as_entries, write_entries
from penstock.snapshots.savepoint.format import SavedState, SavepointInfo, SavepointWriter
from penstock.snapshots.view.content import Content, converted, open_content, state_of
from penstock.snapshots.view.lookup import Lookup
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.kinds import kind_of
from penstock.state.entries.state_table import StateTable
from penstock.state.files.durable import Block
from penstock.state.files.merging import live, newest
from penstock.storage import open_storage

Row = dict[str, Any]


def edit(uri: str) -> SnapshotEditor:
    """Begin to edit a savepoint, or an epoch of a job. Use it `with`, or close it."""
    held = ExitStack()
    try:
        return SnapshotEditor(open_content(str(uri), held, "editing"), held)
    except BaseException:
        held.close()
        raise


class StateEditor:
    """Changes of one state. Rows have the columns that `schema` says: see `penstock.state.entries.state_table`."""

    def __init__(self, info: StateInfo, columns: StateTable, base: Blocks, held: ExitStack) -> None:
        self.info = info
        self.columns = columns
        self.changed = False
        self._blocks = base
        self._held = held

    @property
    def schema(self) -> pa.Schema:
        return self.columns.schema

    def put(self, rows: Any) -> None:
        """Add entries, or replace those that have the same key (and window, and map key, and chunk)."""
        self._over(self._sorted(rows))

    def remove(self, *keys: Any) -> None:
        """Remove all entries of these keys."""
        kind, before = kind_of(self.info), self._blocks
        if kind.many_keys:
            where = f"{self.info.name!r} of step {self.info.step!r}"
            raise StateError(f"state {where} keeps keys together in chunks", hint="remove whole chunks, by map")
        gone = {Lookup.encode(self.info, self.columns, key) for key in keys}

        def kept() -> Iterator[Block]:
            for block in live(before()):
                stay = [key not in gone for key in kind.keys([key[2:] for key in block[0]], self.info.namespace)]
                yield (
                    [key for key, one in zip(block[0], stay, strict=True) if one],
                    [value for value, one in zip(block[1], stay, strict=True) if one],
                )

        self._set(kept)

    def map(self, function: Callable[[Row], Row | None]) -> None:
        """Let a function see every row as a dict: it gives it back, changed or not, or None to remove it."""
        gone, put = self._sorter(), self._sorter()
        for batch in converted(as_entries(self._blocks()), self.columns):
            places = list(zip(batch.column("key_group").to_pylist(), batch.column("raw_key").to_pylist(), strict=True))
            changed: list[Row] = []
            for place, row in zip(places, batch.select(self.schema.names).to_pylist(), strict=True):
                result = function(dict(row))
                if result != row:
                    gone.add([(*place, None)])
                    if result is not None:
                        changed.append(result)
            for table in tables_of(changed, self.schema):
                put.add(self.write(table))
        self._over(gone)
        self._over(put)

    def map_tables(self, function: Callable[[pa.Table], pa.Table]) -> None:
        """Let a function see the rows as tables, one after another: what it gives back takes their place."""
        sorter = self._sorter()
        for batch in converted(as_entries(self._blocks()), self.columns):
            sorter.add(self.write(function(pa.Table.from_batches([batch.select(self.schema.names)]))))
        self._set(sorter.blocks)

    def replace(self, rows: Any) -> None:
        """These entries, and no others. If it fails, the state is as it was."""
        self._set(self._sorted(rows).blocks)

    def clear(self) -> None:
        self._set(lambda: iter(()))

    def entries(self) -> GroupedEntries:
        """What the state holds now."""
        return as_entries(self._blocks())

    def blocks(self) -> Iterator[Block]:
        """The same, with the key group in the key."""
        return self._blocks()

    def write(self, table: pa.Table) -> Iterable[tuple[int, bytes, bytes]]:
        return self.columns.write(table)

    def _sorted(self, rows: Any) -> Sorter:
        sorter = self._sorter()
        for table in tables_of(rows, self.schema):
            sorter.add(self.write(table))
        return sorter

    def _sorter(self) -> Sorter:
        return self._held.enter_context(Sorter())

    def _over(self, sorter: Sorter) -> None:
        before = self._blocks
        self._set(lambda: newest([before(), sorter.blocks()]))

    def _set(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.changed = True


class SnapshotEditor:
    """A snapshot in the making, from another one."""

    def __init__(self, content: Content, held: ExitStack) -> None:
        self._content = content
        self._held = held
        self._states: dict[int, SavedState] = {state.number: state for state in content.info.states}
        self._editors: dict[int, StateEditor] = {}
        self.sources: dict[str, SourceState] = dict(content.info.sources)
        self.watermarks = dict(content.info.watermarks)

    def __enter__(self) -> SnapshotEditor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._held.close()

    @property
    def info(self) -> SavepointInfo:
        """What is edited."""
        return msgspec.structs.replace(self._content.info, states=list(self._states.values()))

    def state(self, step: str, name: str | None = None) -> StateEditor:
        """The state to change."""
        saved = state_of(self.info, step, name)
        if saved.number not in self._editors:
            base = partial(_base, self._content, saved.number)
            self._editors[saved.number] = StateEditor(saved.info, self._content.columns(saved.number), base, self._held)
        return self._editors[saved.number]

    def drop(self, step: str, name: str | None = None) -> None:
        """Leave out a state, or all states of a step with its timers."""
        gone = [s.number for s in self._states.values() if s.info.step == step and name in (None, s.info.name)]
        if not gone:
            state_of(self.info, step, name)
        for number in gone:
            del self._states[number]

    def rename_step(self, step: str, to: str) -> None:
        """Give the states of a step, its timers, its time and, of a source, its position to another step."""
        known = {s.info.step for s in self._states.values()} | self.sources.keys() | self.watermarks.keys()
        if step not in known:
            raise StateError(f"there is nothing of a step {step!r}", hint=f"steps: {', '.join(sorted(known))}")
        if to in known:
            raise StateError(f"there is a step {to!r} already", hint="drop it first")
        for number, saved in self._states.items():
            if saved.info.step == step:
                self._rename(number, saved, step=to)
        if step in self.sources:
            self.sources[to] = self.sources.pop(step)
        if step in self.watermarks:
            self.watermarks[to] = self.watermarks.pop(step)

    def rename_state(self, step: str, name: str, to: str) -> None:
        saved = state_of(self.info, step, name)
        if any((s.info.step, s.info.name) == (step, to) for s in self._states.values()):
            raise StateError(f"step {step!r} has a state {to!r} already", hint="drop it first")
        self._rename(saved.number, saved, name=to)

    def _rename(self, number: int, saved: SavedState, **names: str) -> None:
        self._states[number] = msgspec.structs.replace(saved, info=msgspec.structs.replace(saved.info, **names))

    def move_source(self, step: str, position: Any) -> None:
        """Let a source go on from another position: a value, or a function of the old one. Event time stays as it is."""
        if step not in self.sources:
            raise StateError(f"there is no source {step!r}", hint=f"sources: {', '.join(sorted(self.sources)) or 'none'}")
        before = self.sources[step]
        new = position(before.position) if callable(position) else position
        self.sources[step] = msgspec.structs.replace(before, position=new, ended=False)

    def drop_source(self, step: str) -> None:
        """Forget a source's position: it will start as the program says."""
        if self.sources.pop(step, None) is None:
            raise StateError(f"there is no source {step!r}", hint=f"sources: {', '.join(sorted(self.sources)) or 'none'}")

    def write(self, to: str) -> SavepointInfo:
        """Make the new savepoint in an empty folder."""
        info = self._content.info
        with SavepointWriter(open_storage(to), key_groups=info.key_groups) as savepoint:
            for number, saved in self._states.items():
                editor = self._editors.get(number)
                changed = editor is not None and editor.changed
                due = None if changed else saved.next_due
                writer = savepoint.state(saved.info, number=number, next_due=due)
                entries = editor.entries() if editor is not None else self._content.entries(number)
                write_entries(writer, entries)
            made_of = {"parent": parent_of(self._content), "sources": self.sources, "watermarks": self.watermarks}
            return savepoint.finish(**{**info.about(), **made_of})


def _base(content: Content, number: int) -> Iterator[Block]:
    return as_blocks(content.entries(number))


def parent_of(content: Content) -> Restored:
    """A savepoint that was made from another snapshot has it as its parent."""
    info = content.info
    return Restored(source=content.source, identity=info.identity, epoch=info.epoch, at=Epoch(info.epoch))
