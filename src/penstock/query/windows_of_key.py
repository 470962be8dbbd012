"""A key's windows, open and closed, in one call: the open ones from state, the closed ones from a file sink's output.

Law: both are of one epoch, so every window is there once. An epoch's output is published after its manifest: it is waited for,
and what later epochs published is left out. A window that has fired and takes late records still is open: its state counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.connectors.files.reading.published import decode
from penstock.connectors.files.writing.log_format import newest_entry, read_file, shown_entries
from penstock.ids import Epoch, Milliseconds
from penstock.jobs import paths
from penstock.query.errors import RestoringError
from penstock.query.reader import StateReader
from penstock.storage import open_storage
from penstock.timing.durations import time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Where a step's results are: a file sink's folder; the fields of its rows that have the key, and the window's end."""

    folder: str
    key: str
    end: str = "window_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOfKey:
    """`closed`: `value` is the row that the sink has; otherwise what state keeps so far. `end`: of the window, or slice."""

    end: Milliseconds
    closed: bool
    value: Any


def published_until(reader: StateReader, epoch: Epoch, timeout_s: float) -> None:
    """Wait until all output of an epoch is published."""
    deadline = time.monotonic() + timeout_s
    while reader.epochs.is_kept(epoch) and not reader.storage.exists(paths.done(epoch)):
        if time.monotonic() > deadline:
            raise RestoringError(f"the output of epoch {epoch} is not published yet", hint="ask again in a moment")
        time.sleep(0.01)


def closed_windows(closed: Closed, key: Any, epoch: Epoch) -> Iterator[WindowOfKey]:
    """The rows of a key that were published up to an epoch."""
    storage = open_storage(closed.folder)
    for _, entry in shown_entries(storage):
        if entry.epoch <= epoch:
            for file in entry.files:
                for row in decode(read_file(storage, file), file.path):
                    if row.get(closed.key) == key:
                        yield WindowOfKey(end=_time(row[closed.end]), closed=True, value=row)


def went_on(closed: Closed, epoch: Epoch) -> bool:
    """Has output been taken back or replaced after an epoch? Then what is shown is no longer that epoch's."""
    _, newest = newest_entry(open_storage(closed.folder))
    return newest is not None and newest.epoch > epoch and newest.kind != "publish"


def merged(opened: list[WindowOfKey], closed: list[WindowOfKey]) -> list[WindowOfKey]:
    """By end; of a window that is in both, the open one."""
    found = {window.end: window for window in closed} | {window.end: window for window in opened}
    return [found[end] for end in sorted(found)]


def open_windows(value: Any) -> list[WindowOfKey]:
    """From the value that a key of a windowed state has."""
    found = []
    for one in value or ():
        end = one["end"] if "end" in one else one["time"]
        found.append(WindowOfKey(end=_time(end), closed=False, value=one["value"]))
    return found


def _time(value: Any) -> Milliseconds:
    return time_ms(datetime.fromisoformat(value) if isinstance(value, str) else value)
