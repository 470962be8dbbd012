"""Savepoints built from batch data, for a program that is to start with state.

    build = snapshots.build(env)
    build.state("ledger", "orders").put(spark.table("history").groupBy("shop").count()...)
    build.write("savepoints/history")          # then: penstock run app.py --from savepoints/history

Laws:
- States have the types that the program declares, and keys are the bytes that the running job makes of them. Every value is
  decoded once as the program will.
- Entries that expire have the timers that remove them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import pyarrow as pa

from penstock.compile.compatibility import describe_state
from penstock.compile.compiler import claim
from penstock.errors import PlanError, StateError
from penstock.ids import MAX_WATERMARK, Epoch, JobId, Milliseconds
from penstock.jobs.manifest import SourceState
from penstock.plan.definition import StateDeclaration
from penstock.plan.nodes import Graph
from penstock.runtime.operators.source import SourceStep
from penstock.runtime.services import TIMER_STATES
from penstock.snapshots.edit.editing import StateEditor
from penstock.snapshots.edit.row_input import tables_of
from penstock.snapshots.edit.sorting import Sorter, as_entries, write_entries
from penstock.snapshots.savepoint.format import SavedJob, SavepointInfo, SavepointWriter
from penstock.state.encoding.stored_values import STAMP_SIZE, stamp_of
from penstock.state.entries.entry_columns import Undeclared
from penstock.state.entries.kinds import kind_of, state_named
from penstock.state.entries.state_table import StateTable, schema_of_keys
from penstock.state.entries.store_keys import sortable_time
from penstock.state.files.merging import newest
from penstock.state.key_groups import NEW_JOBS, KeyGroups, check_parallelism, default_max_parallelism
from penstock.state.overlay.handles import state_codec
from penstock.state.tabular.conversions import JSON_METADATA
from penstock.storage import open_storage
from penstock.windows.step import KEY_TIMERS


def build(program: Any, max_parallelism: int | None = None) -> SnapshotBuilder:
    """Begin a savepoint for a program: its `StreamEnvironment`, or its graph."""
    graph = getattr(program, "graph", program)
    if not isinstance(graph, Graph):
        raise PlanError(f"{program!r} is not a program", hint="give the StreamEnvironment that the program is written with")
    config = getattr(program, "config", None)
    settled = (
        config.max_parallelism or default_max_parallelism(config.parallelism)
        if config is not None
        else default_max_parallelism(1)
    )
    return SnapshotBuilder(graph, max_parallelism or settled, config.name if config is not None else "built")


class BuiltState(StateEditor):
    """A state that is being built: what is put is checked against the program's own types."""

    def __init__(self, declaration: StateDeclaration, key_groups: KeyGroups, held: ExitStack, builder: SnapshotBuilder) -> None:
        info = describe_state(declaration)
        super().__init__(info, StateTable(info, key_groups), lambda: iter(()), held)
        self._declaration = declaration
        self._builder = builder

    def _sorted(self, rows: Any) -> Sorter:
        sorter = self._sorter()
        for table in tables_of(rows, self._schema_for(rows)):
            self._find_out(table)
            sorter.add(self.write(self._with_expiry(table)))
        return sorter

    def write(self, table: pa.Table) -> Iterable[tuple[int, bytes, bytes]]:
        entries = self.columns.write(table)
        self._check(entries)
        self._builder.expire(self._declaration, entries)
        return entries

    def _schema_for(self, rows: Any) -> pa.Schema:
        """Of rows that are dicts, keys whose type is not declared have the type of the first one."""
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            self._set_undeclared(**{name: schema_of_keys([_listed(rows[0].get(name))]) for name in ("key", "map_key")})
        return self.schema

    def _find_out(self, table: pa.Table) -> None:
        """What keys are that the program does not declare, from the types that they have."""
        if any(name in table.column_names and table.schema.field(name).metadata != JSON_METADATA for name in ("key", "map_key")):
            self._set_undeclared(**{name: _key_schema(table, name) for name in ("key", "map_key")})

    def _set_undeclared(self, key: Any, map_key: Any) -> None:
        before = self.columns.undeclared
        found = Undeclared(
            key if self.info.key_schema is None else before.key,
            map_key if self.info.sub_schema == "any" else before.map_key,
            before.naive,
        )
        if found != before:
            self.columns = StateTable(self.info, self.columns.key_groups, found)

    def _with_expiry(self, table: pa.Table) -> pa.Table:
        ttl = None if self._declaration.state is None else self._declaration.state.ttl
        if ttl is None or "expires" not in self.schema.names or "expires" in table.column_names:
            return table
        if ttl.time == "event":
            raise StateError(
                f"state {self.info.name!r} of step {self.info.step!r} expires by event time: rows need a column 'expires'",
                hint="give the time of each entry plus the state's ttl; null is never",
            )
        expires = pa.repeat(pa.scalar(self._builder.now_ms + ttl.ms, pa.int64()), len(table))
        return table.append_column("expires", expires)

    def _check(self, entries: list[tuple[int, bytes, bytes]]) -> None:
        state = self._declaration.state
        if state is None:
            return
        codec, skip = state_codec(state), STAMP_SIZE if state.ttl is not None else 0
        if codec.needs_trust:
            return
        kind = kind_of(self.info)
        for _, _, value in entries:
            for item in kind.items(value):
                codec.read(item[skip:])


def _listed(key: Any) -> Any:
    return [_listed(part) for part in key] if isinstance(key, tuple) else key


def _key_schema(table: pa.Table, name: str) -> Any:
    return _schema_of_type(table.schema.field(name).type) if name in table.column_names else "any"


def _schema_of_type(kind: pa.DataType) -> Any:
    """The schema of keys in a column of this type."""
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "str"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    if pa.types.is_timestamp(kind):
        return "datetime"
    if pa.types.is_struct(kind):
        return {"tuple": [_schema_of_type(field.type) for field in kind]}
    return "any"


class SnapshotBuilder:
    """A savepoint in the making, for a program."""

    def __init__(self, graph: Graph, max_parallelism: int, name: str) -> None:
        check_parallelism(1, max_parallelism)
        self._held = ExitStack()
        self._name = name
        self._key_groups = KeyGroups(max_parallelism, NEW_JOBS)
        self._declared = {
            (str(d.step), d.name): d for node in claim(graph, None, {}, allow_dropped=False).graph for d in node.states()
        }
        self._known_sources = [str(node.step) for node in graph if isinstance(node.definition, SourceStep)]
        self._states: dict[tuple[str, str], StateEditor] = {}
        self._ttl_timers: dict[tuple[str, str], Sorter] = {}
        self.now_ms: Milliseconds = round(time.time() * 1000)
        self.sources: dict[str, SourceState] = {}
        self.watermarks: dict[str, Milliseconds] = {}

    def __enter__(self) -> SnapshotBuilder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._held.close()

    def state(self, step: str, name: str | None = None) -> StateEditor:
        """A state of the program; timers are states too, `timers:event` and `timers:processing`."""
        info = state_named(map(describe_state, self._declared.values()), step, name)
        key = (info.step, info.name)
        if key not in self._states:
            self._states[key] = BuiltState(self._declared[key], self._key_groups, self._held, self)
        return self._states[key]

    def move_source(self, step: str, position: Any) -> None:
        """Where a source is to go on, as its positions are; without it, it starts as the program says."""
        if step not in self._known_sources:
            raise StateError(f"the program has no source {step!r}", hint=f"sources: {', '.join(self._known_sources) or 'none'}")
        self.sources[step] = SourceState(position=position)

    def expire(self, declaration: StateDeclaration, entries: list[tuple[int, bytes, bytes]]) -> None:
        """Set the timers that remove entries whose time to live is over, as the running job would."""
        ttl = None if declaration.state is None else declaration.state.ttl
        if ttl is None:
            return
        event = ttl.time == "event"
        queues = [(str(declaration.step), names[2 if event else 3]) for names in (TIMER_STATES, KEY_TIMERS)]
        key = next(q for q in queues if q in self._declared and self._declared[q].namespace == declaration.namespace)
        info = describe_state(declaration)
        kind = kind_of(info)
        spaces = kind.split([raw for _, raw, _ in entries], info.namespace).spaces
        granule = max(1, ttl.ms // 10)
        due = {
            (group, sortable_time(-(-stamp // granule) * granule) + space, b"")
            for (group, _, value), space in zip(entries, spaces, strict=True)
            for item in kind.items(value)
            if (stamp := stamp_of(item)) < MAX_WATERMARK
        }
        self._ttl_queue(key).add(due)

    def _ttl_queue(self, key: tuple[str, str]) -> Sorter:
        if key not in self._ttl_timers:
            self._ttl_timers[key] = self._held.enter_context(Sorter())
        return self._ttl_timers[key]

    def write(self, to: str) -> SavepointInfo:
        """Make the savepoint in an empty folder."""
        with SavepointWriter(open_storage(to), key_groups=self._key_groups) as savepoint:
            for key in [key for key in self._declared if key in self._states or key in self._ttl_timers]:
                editor, timers = self._states.get(key), self._ttl_timers.get(key)
                info = describe_state(self._declared[key])
                runs = [editor.blocks()] if editor is not None else []
                runs += [timers.blocks()] if timers is not None else []
                write_entries(savepoint.state(info), as_entries(newest(runs)))
            return savepoint.finish(
                job=SavedJob(JobId(uuid.uuid4().hex), self._name),
                epoch=Epoch(0),
                config={"max_parallelism": self._key_groups.count},
                processing_time=self.now_ms,
                sources=self.sources,
                watermarks=self.watermarks,
            )
