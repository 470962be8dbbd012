"""`penstock epochs`: which epochs a job keeps, and can be started from."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.progress import duration, size
from penstock.cli.screen.showing import moment
from penstock.cli.screen.tables import console_for, print_table
from penstock.snapshots.view.retained import KeptEpoch, list_epochs
from penstock.storage import open_storage


def epochs_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's storage: a folder or URI.")],
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list, for programs.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """List the epochs that a job keeps: `penstock run APP --from JOB@EPOCH` starts from one."""
    with clean_errors(trace=trace):
        found = list_epochs(open_storage(job))
    if as_json:
        echo(json.dumps([kept.describe() for kept in found], indent=2))
    elif not found:
        echo("no epoch is committed yet")
    else:
        print_table(console_for(), _table(found), prose=("notes",))


def _table(found: list[KeptEpoch]) -> Table:
    table = Table()
    timed = any(kept.watermark_ms is not None for kept in found)
    noted = any(map(_notes, found))
    for column in ("epoch", "committed", "done", "records", "own state", "shared state"):
        right = column in ("records", "own state", "shared state")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "committed", overflow="fold")
    for column, wanted in (("watermark", timed), ("notes", noted)):
        if wanted:
            table.add_column(column, overflow="fold")
    for kept in found:
        unknown = kept.created_ms is None
        ago = "-" if kept.created_ms is None else f"{duration(max(0.0, time.time() - kept.created_ms / 1000))} ago"
        table.add_row(
            f"{kept.epoch} (of {kept.together + 1})" if kept.together else str(kept.epoch),
            ago,
            "yes" if kept.done else "no",
            "-" if unknown else f"{kept.records:,}",
            "-" if unknown else size(kept.own_bytes),
            "-" if unknown else size(kept.shared_bytes),
            *(["-" if kept.watermark_ms is None else moment(kept.watermark_ms)] if timed else []),
            *([_notes(kept)] if noted else []),
        )
    return table


def _notes(kept: KeptEpoch) -> str:
    went_back = kept.back_to is not None
    itself = went_back and (kept.restored_from or "").endswith(f"@{kept.back_to}")  # said already
    notes = [
        f"damaged: {kept.problem}" if kept.problem else "",
        f"started from {kept.restored_from}" if kept.restored_from and not itself else "",
        f"went back to epoch {kept.back_to}" if went_back else "",
        kept.repair.partition(":")[0],
        "drained" if kept.drained is not None else "finished" if kept.finished else "",
        "pinned" if kept.pinned else "",
    ]
    return ", ".join(filter(None, notes))
