"""`penstock clean`: remove local copies of state that nobody needs any more."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.progress import duration, size
from penstock.cli.screen.tables import console_for, print_table
from penstock.state.stores.cleaning import Stores, clean
from penstock.state.stores.local import default_root
from penstock.timing.durations import parse_duration


def clean_command(
    local_dir: Annotated[
        str | None,
        typer.Argument(metavar="[LOCAL-DIR]", help="Where local state is kept, if not in the usual place: a job's local_dir."),
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="How long nobody has worked on the job: 90s, 12h, 7d.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; say what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Remove this host's copies of the state of jobs that nobody works on. What is in use stays.

    Nothing is lost: a job whose copy is gone reads its state from its storage.
    """
    with clean_errors(trace=trace):
        root = local_dir or default_root()
        found = clean(root, older_than=parse_duration(older_than, what="--older-than"), dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps([asdict(stores) for stores in found], indent=2))
        return
    if found:
        print_table(console_for(), _table(found))
    total = size(sum(stores.bytes for stores in found))
    jobs = f"{len(found):,} job{'s' * (len(found) != 1)}"
    typer.echo(f"{'would remove' if dry_run else 'removed'} the local state of {jobs}, {total}, below {root}")


def _table(found: list[Stores]) -> Table:
    table = Table()
    for column in ("job", "last used", "size", "why", "folder"):
        table.add_column(column, overflow="fold")
    for stores in found:
        ago = duration(max(0.0, time.time() - stores.last_used))
        table.add_row(Text(stores.name or stores.job), f"{ago} ago", size(stores.bytes), stores.why, Text(stores.path))
    return table
