"""`penstock jobs`: the jobs below a storage URI."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from penstock import paths
from penstock.cli.problems import clean_errors
from penstock.cli.progress import duration
from penstock.epochs.drivers import has_ended, is_alive, newest_term
from penstock.epochs.fencing import read_job
from penstock.epochs.status import read_status
from penstock.errors import CorruptFileError
from penstock.ids import Epoch
from penstock.runtime.manifest import load_manifest
from penstock.storage import LocalStorage, Storage, open_storage

Condition = Literal["running", "finished", "stopped", "failed", "gone", "elsewhere", "damaged"]
"""`gone`: its driver's process has disappeared; `elsewhere`: driven from another host, which cannot be looked at from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job, as its storage tells."""

    name: str
    condition: Condition
    epoch: int | None
    epoch_ms: int | None
    host: str | None
    pid: int | None
    records_per_second: float | None
    storage: str


def jobs_command(
    root: Annotated[str, typer.Argument(metavar="[STORAGE-ROOT]", help="A folder or URI; the jobs below it are listed.")] = ".",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """List the jobs below a storage URI."""
    with clean_errors(trace=trace):
        found = [describe_job(storage) for storage in find_jobs(open_storage(root))]
    if as_json:
        typer.echo(json.dumps([asdict(job) for job in found], indent=2))
    elif not found:
        typer.echo(f"no jobs below {root}")
    else:
        Console(highlight=False).print(_table(found))


def find_jobs(root: Storage) -> Iterator[Storage]:
    """The storages below `root` (and itself) that hold a job. A job's own folders are not searched."""
    if isinstance(root, LocalStorage):
        for folder, below, files in os.walk(root.root):
            if paths.JOB in files:
                below.clear()
                yield LocalStorage(folder)
            below[:] = sorted(name for name in below if not name.startswith("."))
        return
    for listed in root.list():
        if listed.path == paths.JOB:
            yield root
        elif listed.path.endswith(f"/{paths.JOB}"):
            yield root.child(listed.path[: -len(paths.JOB) - 1])


def describe_job(storage: Storage) -> FoundJob:
    term, status = newest_term(storage), read_status(storage)
    epochs = [entry for entry in storage.list(paths.EPOCHS) if entry.path.endswith(".json")]
    newest = epochs[-1] if epochs else None
    condition: Condition
    try:
        name = read_job(storage).name
        finished = newest is not None and load_manifest(storage, Epoch(paths.epoch_number(newest.path))).finished
    except CorruptFileError:
        name, finished, condition = "?", False, "damaged"
    else:
        ended = term is not None and has_ended(term, status)
        if term is not None and is_alive(term) and not ended:
            condition = "running"
        elif finished:
            condition = "finished"
        elif ended and status is not None:
            condition = status.phase
        else:
            condition = "elsewhere" if term is not None and term.host != socket.gethostname() else "gone"
    return FoundJob(
        name=name,
        condition=condition,
        epoch=None if newest is None else paths.epoch_number(newest.path),
        epoch_ms=None if newest is None else newest.modified_ms,
        host=None if term is None else term.host,
        pid=None if term is None else term.pid,
        records_per_second=status.records_per_second if status is not None and condition == "running" else None,
        storage=storage.root if isinstance(storage, LocalStorage) else storage.uri,
    )


def _table(found: list[FoundJob]) -> Table:
    table = Table()
    for column in ("job", "condition", "epoch", "committed", "records/s", "driver", "storage"):
        table.add_column(column, overflow="fold")
    for job in found:
        ago = "-" if job.epoch_ms is None else f"{duration(max(0.0, time.time() - job.epoch_ms / 1000))} ago"
        table.add_row(
            job.name,
            job.condition,
            "-" if job.epoch is None else str(job.epoch),
            ago,
            "-" if job.records_per_second is None else f"{job.records_per_second:,.0f}",
            "-" if job.host is None else f"{job.host}:{job.pid}",
            job.storage,
        )
    return table
