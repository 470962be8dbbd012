"""A job with several kinds of state, and what its committed files hold, read naively."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import (
    GeneratorSource,
    KeyedContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    StreamEnvironment,
    ValueState,
    Watermarks,
)
from penstock.jobs.manifest import Manifest
from penstock.snapshots.savepoint.format import SavepointInfo, read_state
from penstock.state.entries.store_keys import HEAD_SIZE, group_of_store_key, state_id_of_store_key
from penstock.state.files.durable import read_entries
from penstock.storage import Storage, open_storage
from penstock.testing import CollectSink

Saved = dict[tuple[str, str], dict[tuple[int, bytes], bytes]]
"""By step and state: by key group and raw key, the raw value."""


@dataclass(frozen=True)
class Visit:
    number: int
    page: str


class Visits(KeyedProcessFunction[int, int, int]):
    """State of several kinds, some of it deleted again, and timers."""

    seen = ValueState(int, default=0)
    last: ValueState[Visit] = ValueState(Visit)
    pages: MapState[str, int] = MapState(str, int)
    all: ListState[int] = ListState(int)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[int]:
        self.seen.update(self.seen.value + 1)
        self.pages.put(f"page {value % 5}", value)
        self.all.add(value)
        self.last.update(Visit(value, f"page {value % 5}"))
        if value % 3 == 0:
            self.last.clear()
            self.pages.remove(f"page {(value + 1) % 5}")
        ctx.timers.register_event_time(1_000_000 + value)
        yield self.seen.value


def visits(storage: Path | str, count: int = 400, keys: int = 37, **settings: Any) -> StreamEnvironment:
    """The job. It reads `count` numbers, 40 in an epoch."""
    defaults: dict[str, Any] = {"parallelism": 2, "max_parallelism": 16, "max_records_per_epoch": 40, "executor": "inline"}
    env = StreamEnvironment("visits", storage=str(storage), **{**defaults, **settings})
    numbers = env.from_source(
        GeneratorSource(int, count=count), name="numbers", watermarks=Watermarks.monotonous(timestamp=lambda number: number)
    )
    numbers.key_by(lambda number: number % keys).process(Visits(), name="visits").sink_to(CollectSink(), name="out")
    return env


def committed(storage: Storage, manifest: Manifest) -> Saved:
    """All entries of an epoch: its files, one after another, into a dictionary."""
    layout = manifest.state
    entries: dict[bytes, bytes | None] = {}
    for stage in layout.chains:
        for chain in stage:
            for ref in chain:
                for keys, values in read_entries(storage, ref):
                    entries.update(zip(keys, values, strict=True))
    saved: Saved = {(info.step, info.name): {} for info in layout.ids.values()}
    for key, value in entries.items():
        if value is not None:
            info = layout.ids[str(state_id_of_store_key(key))]
            saved[info.step, info.name][group_of_store_key(key), key[HEAD_SIZE:]] = value
    return saved


def contents(info: SavepointInfo) -> Saved:
    """All entries of a savepoint."""
    storage = open_storage(info.uri)
    saved: Saved = {}
    for state in info.states:
        entries = saved[state.info.step, state.info.name] = {}
        order: list[tuple[int, bytes]] = []
        for file in state.files:
            for group, keys, values in read_state(storage, file):
                order += [(group, key) for key in keys]
                entries.update(zip([(group, key) for key in keys], values, strict=True))
        assert order == sorted(set(order))
        assert len(order) == state.rows
    return saved
