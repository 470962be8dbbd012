"""Programs on the inline executor, a few epochs at a time if need be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from penstock.api.environment import StreamEnvironment
from penstock.api.stream import DataStream
from penstock.connectors.collecting.sink import CollectSink
from penstock.epochs.history import EpochRecord, JobResult
from penstock.epochs.loop import EpochLoop
from penstock.epochs.setup import Setup
from penstock.executors.inline import InlineExecutor
from penstock.ids import Milliseconds
from penstock.snapshots.restore.restore import starting_from
from penstock.state.stores.store import open_stores
from penstock.storage import open_storage
from penstock.testing.clock import VirtualClock

T = TypeVar("T")


def run_inline(stream: DataStream[T], **options: Any) -> list[T]:
    """Run a program and return the records of one of its streams. Options: those of `execute_inline`."""
    sink = CollectSink()
    stream.sink_to(sink)
    try:
        execute_inline(stream._env, **options)
        return list(sink.results())
    finally:
        sink.discard()


def execute_inline(
    env: StreamEnvironment,
    *,
    clock: VirtualClock | None = None,
    until: Milliseconds | None = None,
    epochs: int | None = None,
    **settings: Any,
) -> JobResult:
    """Run a program in this process, on virtual time: to its end, or until there is nothing to do.

    `until`: go on waiting, for records and for processing-time timers, until the clock shows this. `epochs`: stop after so many;
    with `storage=` a second call goes on from there.
    """
    clock = clock or VirtualClock()
    config = replace(env.config, **{"executor": "inline", "until_idle": until is None, **settings})
    left = epochs

    def count(record: EpochRecord) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left <= 0:
                loop.request_stop()

    with (
        _storage(config.storage) as uri,
        tempfile.TemporaryDirectory(prefix="penstock-local-", ignore_cleanup_errors=True) as local,
    ):
        storage = open_storage(uri)
        with starting_from(env.graph, config, storage) as start:
            setup = Setup(
                graph=env.graph,
                config=replace(config, local_dir=config.local_dir or local),
                storage=storage,
                executor=InlineExecutor(),
                clock=clock,
                listeners=(count,),
            )
            loop = EpochLoop(setup, start=start)
            if until is not None:
                clock.alarm(until, loop.request_stop)
            try:
                return loop.run()
            finally:
                close_stores(local)


def close_stores(folder: str) -> None:
    """Close the local stores below a folder that is about to go."""
    for store in open_stores():
        if store.path.startswith(os.path.realpath(folder) + os.sep):
            store.close()


@contextmanager
def _storage(uri: str | None) -> Iterator[str]:
    if uri is not None:
        yield uri
        return
    with tempfile.TemporaryDirectory(prefix="penstock-storage-") as folder:
        yield folder
