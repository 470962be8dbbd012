"""`penstock savepoint`: a self-contained copy of a job's state and positions, of a job that runs or does not."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.api.job import Job
from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors, errors
from penstock.cli.screen.progress import duration
from penstock.cli.screen.tables import console_for, print_table
from penstock.snapshots.savepoint.format import SavepointInfo
from penstock.snapshots.savepoint.savepoint import OnProgress, SavepointProgress
from penstock.snapshots.savepoint.throttle import lower_priority
from penstock.state.entries.kinds import is_internal
from penstock.state.key_groups import NEW_JOBS


def savepoint_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's storage: a folder or URI.")],
    to: Annotated[
        str | None, typer.Option(metavar="URI", help="An empty folder or s3://bucket/prefix; else below the job's storage.")
    ] = None,
    epoch: Annotated[int | None, typer.Option(help="An epoch that is still kept; else the newest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Make a savepoint of a job, running or stopped. A running one goes on meanwhile."""
    with clean_errors(trace=trace):
        handle = Job(job)
        if handle.running is not False:
            lower_priority(os.getpid())
        began = time.monotonic()
        with shown_progress() as told:
            info = handle.savepoint(to, epoch=epoch, told=told)
        show_savepoint(info, time.monotonic() - began, as_json=as_json)


@contextlib.contextmanager
def shown_progress() -> Iterator[OnProgress]:
    """A bar while a savepoint is made, where somebody looks."""
    columns = (TextColumn("savepoint"), BarColumn(), TextColumn("{task.percentage:>3.0f}%  {task.fields[rows]:,} rows"))
    with Progress(*columns, TimeElapsedColumn(), console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("savepoint", total=None, rows=0)

        def told(progress: SavepointProgress) -> None:
            bar.update(task, completed=progress.groups, total=progress.of_groups, rows=progress.rows)

        yield told


def show_savepoint(info: SavepointInfo, seconds: float, *, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(summary(info, seconds), indent=2))
        return
    table = Table(title=f"savepoint of {info.job.name}, epoch {info.epoch}", title_justify="left", show_footer=True)
    table.add_column("step", "all", overflow="fold")
    table.add_column("state", f"{len(info.states)}", overflow="fold")
    table.add_column("kind")
    table.add_column("entries", f"{info.rows:,}", justify="right")
    table.add_column("bytes", f"{info.bytes:,}", justify="right")
    without = [state for state in info.states if is_internal(state.info.kind) and not state.rows]
    for state in info.states:
        if state in without:
            continue
        table.add_row(state.info.step, state.info.name, state.info.kind, f"{state.rows:,}", f"{state.bytes:,}")
    console = console_for()
    print_table(console, table)
    if without:
        console.print(f"with {len(without)} of timers, of which there are none")
    if info.key_hash != NEW_JOBS:
        console.print(str(info.key_groups), soft_wrap=True)
    console.print(f"made in {duration(seconds)}: {info.uri}", soft_wrap=True)


def summary(info: SavepointInfo, seconds: float) -> dict[str, Any]:
    """What the table shows, for programs."""
    states = [
        {"step": s.info.step, "state": s.info.name, "kind": s.info.kind, "entries": s.rows, "bytes": s.bytes} for s in info.states
    ]
    return {
        "uri": info.uri,
        "identity": info.identity,
        "job": info.job.name,
        "epoch": info.epoch,
        "key_hash": info.key_hash,
        "entries": info.rows,
        "bytes": info.bytes,
        "seconds": round(seconds, 3),
        "states": states,
    }
